"""What NVIDIA's driver says in the kernel log: Xids, and a GPU that is gone from the bus.

A GPU is named by its PCI address without the function ("0000:cb:00"), which both forms share.
"""

import re

from collectors.xids import xid

Fields = dict[str, str]

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]{4,24})[^)]{0,40}\): ?(\d{1,4})\b")
_RECOVERY = re.compile(r"changed from 0x[0-9a-fA-F]+ \([^)]{0,40}\) to (0x[0-9a-fA-F]+) ")
_ADDRESS = re.compile(r"\b((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)\b")
_SAME_US = 10_000_000  # one fall from the bus is told in several words within seconds

# What a driver recommends (Xid 154): severity, and what to do.
_RECOVERIES = {
    "0x0": ("info", "none: the driver has withdrawn its advice"),
    "0x1": ("error", "reset the GPU"),
    "0x2": ("fatal", "reboot the node"),
    "0x3": ("error", "drain the jobs that use peer-to-peer access, then reset"),
    "0x4": ("error", "drain the node's jobs, then reset the GPU"),
}


class Gpus:
    """Remembers the last lines, because one event may be several of them."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._named = ("", 0)
        self._fallen: dict[str, int] = {}

    def take(self, text: str, time_us: int) -> Fields | None:
        """Return what a line of the driver means; None for nothing (new)."""
        match = _XID.search(text)
        if match is not None:
            return self._xid(match, text, time_us)
        if "fallen off the bus" in text:
            return self._off_bus(text, time_us)
        if "The NVIDIA GPU " in text:
            self._named = (_address(text), time_us)
        return None

    def _xid(self, match: re.Match[str], text: str, time_us: int) -> Fields | None:
        device, code = _plain_address(match[1]), int(match[2])
        known = xid(code)
        fields = {
            "kind": "xid",
            "code": str(code),
            "severity": known.severity,
            "device": device,
            "action": known.action,
        }
        if known.meaning:
            fields["meaning"] = known.meaning
        if code == 79 and self._told(device, time_us):
            return None
        change = _RECOVERY.search(text) if code == 154 else None
        if change is not None:
            severity, action = _RECOVERIES.get(change[1].lower(), (known.severity, known.action))
            fields |= {"severity": severity, "action": action}
            if change[1] == "0x0":
                fields["clears"] = "xid"
        return fields

    def _off_bus(self, text: str, time_us: int) -> Fields | None:
        device = _address(text)
        named, named_us = self._named
        if not device and time_us - named_us <= _SAME_US:
            device = named
        if self._told(device, time_us):
            return None
        known = xid(79)
        return {
            "kind": "gpu_off_bus",
            "severity": known.severity,
            "device": device,
            "action": known.action,
            "meaning": known.meaning,
        }

    def _told(self, device: str, time_us: int) -> bool:
        """Tell whether this fall was told already; note it."""
        before = self._fallen.get(device)
        if len(self._fallen) > 64:
            self._fallen.clear()
        self._fallen[device] = time_us
        return before is not None and 0 <= time_us - before <= _SAME_US


def _address(text: str) -> str:
    match = _ADDRESS.search(text)
    return "" if match is None else _plain_address(match[1])


def _plain_address(address: str) -> str:
    return address.lower().partition(".")[0]
