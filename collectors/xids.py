"""NVIDIA's Xid codes: what each means and what is usually done about it.

The classes follow NVIDIA's Xid catalogue; where drivers and sites disagree, the milder reading is
taken, because one crash of a job makes many Xids on healthy GPUs.
"""

from typing import NamedTuple


class Xid(NamedTuple):
    """How bad a code is, and what to do now."""

    severity: str
    action: str
    meaning: str = ""


_APPLICATION = ("warning", "restart the application; look at the GPU if it repeats there")
_RECORD = ("info", "none: keep for the record")
_WHEN_IDLE = ("info", "reset the GPU when it is idle")
_RESET = ("error", "reset the GPU")
_REBOOT = ("fatal", "reboot the node; replace the GPU if it comes back")
_LOOK = ("error", "take the node out and look at it")
_REPLACE = ("fatal", "take the GPU out of service and replace it")
_OTHER = ("warning", "look at the other messages of this GPU, Xid 154 first")

UNKNOWN = Xid("warning", "look the code up in the driver's Xid catalogue")

_CLASSES: tuple[tuple[tuple[str, str], tuple[int, ...]], ...] = (
    (_APPLICATION, (8, 11, 13, 25, 31, 32, *range(39, 42), 60, 68, 69, *range(70, 73),
                    *range(75, 78), 80, *range(82, 87), 88, 89, 94, *range(96, 106),
                    *range(126, 136), 139, 142)),
    (_RECORD, (37, 38, 43, 44, 45, 56, 65, 66, 67, 73, 81, 92, 93, 106, 107, 121, 137, 141,
               152, 153, *range(160, 166))),
    (_WHEN_IDLE, (63,)),
    (_RESET, (46, 48, 62, 74, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158)),
    (_REBOOT, (61, 79, 151, 167)),
    (_LOOK, (54, 57, 58, 157)),
    (_REPLACE, (64,)),
    (_OTHER, (*range(144, 151), 154, 159, 166, *range(168, 173))),
)  # fmt: skip

_MEANINGS = {
    13: "exception in the graphics engine",
    31: "page fault in the GPU's memory management",
    43: "the GPU stopped processing one program's work",
    44: "fault during a context switch",
    45: "work was cleared away after another error",
    46: "the GPU stopped processing",
    48: "double-bit memory error that can't be corrected",
    54: "auxiliary power is not connected",
    61: "internal micro-controller warning",
    62: "internal micro-controller halt",
    63: "a bad memory row is marked for remapping: a reset makes it so",
    64: "a bad memory row can't be remapped",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "many single-bit memory errors",
    94: "memory error, contained to one program",
    95: "memory error, not contained",
    109: "timeout of a context switch",
    119: "the GPU's system processor does not answer",
    120: "error in the GPU's system processor",
    136: "a link could not be trained",
    140: "memory error that was not recovered",
    143: "the GPU could not be initialised",
    154: "the driver's recommended recovery has changed",
}

XIDS: dict[int, Xid] = {
    code: Xid(severity, action, _MEANINGS.get(code, ""))
    for (severity, action), codes in _CLASSES
    for code in codes
}


def xid(code: int) -> Xid:
    """Return what is known of a code."""
    return XIDS.get(code, UNKNOWN)
