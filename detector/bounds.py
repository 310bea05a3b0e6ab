"""What a number of the detector's settings may be at all; most keys narrow it further."""

from typing import Annotated

import msgspec

YEAR_S = 31_622_400  # 366 days
Seconds = Annotated[float, msgspec.Meta(gt=0, le=YEAR_S)]
Nats = Annotated[float, msgspec.Meta(ge=0, le=100)]  # e^100 to one is certainty, twice over
LogOdds = Annotated[float, msgspec.Meta(ge=-100, le=100)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Percent = Annotated[float, msgspec.Meta(gt=0, le=100)]
Phi = Annotated[float, msgspec.Meta(ge=0.5, le=300)]
