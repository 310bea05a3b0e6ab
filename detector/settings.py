"""What can be set about the scorer: `[detect]` and `[models.*]`."""

from typing import Annotated

import msgspec

from detector.arrivals import ArrivalSettings
from detector.frames import FrameSettings
from detector.fusion import FusionSettings
from detector.leaks import LeakSettings
from detector.pressure import PressureSettings
from detector.rules import RuleSettings
from detector.series import Limits
from detector.watch import WatchSettings
from models.floors import Settings as FloorSettings
from models.level import Settings as LevelSettings
from models.silence import Settings as SilenceSettings


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.*]`."""

    floors: FloorSettings = FloorSettings()
    level: LevelSettings = LevelSettings()
    silence: SilenceSettings = SilenceSettings()


class ScorerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[detect]`."""

    samples_per_batch_max: Annotated[int, msgspec.Meta(ge=16, le=1_000_000)] = 4096
    frames: FrameSettings = FrameSettings()
    arrivals: ArrivalSettings = ArrivalSettings()
    series: Limits = Limits()
    leaks: LeakSettings = LeakSettings()
    pressure: PressureSettings = PressureSettings()
    rules: RuleSettings = RuleSettings()
    watch: WatchSettings = WatchSettings()
    fusion: FusionSettings = FusionSettings()
