"""What can be set about the scorer: `[detect]` and `[models.*]`."""

import msgspec

from detector.arrivals import ArrivalSettings
from detector.frames import FrameSettings
from detector.fusion import FusionSettings
from detector.leaks import LeakSettings
from detector.pressure import PressureSettings
from detector.rules import RuleSettings
from detector.series import Limits
from detector.watch import WatchSettings
from models import floors, level, silence


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.*]`."""

    floors: floors.Settings = floors.Settings()
    level: level.Settings = level.Settings()
    silence: silence.Settings = silence.Settings()


class ScorerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[detect]`."""

    samples_per_batch_max: int = 4096
    frames: FrameSettings = FrameSettings()
    arrivals: ArrivalSettings = ArrivalSettings()
    series: Limits = Limits()
    leaks: LeakSettings = LeakSettings()
    pressure: PressureSettings = PressureSettings()
    rules: RuleSettings = RuleSettings()
    watch: WatchSettings = WatchSettings()
    fusion: FusionSettings = FusionSettings()
