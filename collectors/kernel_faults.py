"""Which kernel lines are faults: one table, and two readers for events of several lines.

A rule is asked only where its word stands in the line, and its pattern has bounded repeats, so that
no line takes long. The kinds, and what a kind speaks for, are known to the detector's rules.
"""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from collectors.base import FoundLine
from collectors.kernel_gpu import Gpus
from collectors.kernel_oom import Ooms
from collectors.kmsg import Record
from runtime.clock import Instant
from runtime.words import plain_text

SOURCE = "kernel"
SEARCHED_CHARS = 2048  # as long as the kernel makes a line; keeps any line cheap
Fields = dict[str, str]
Reader = Callable[[re.Match[str]], Fields]

_KERNEL_FACILITY = 0
_SEVERITY_OF_CPER = {"corrected": "warning", "recoverable": "error", "fatal": "fatal"}
# Floppy, optical and loop devices answer with errors when they are merely empty or detached.
_TOY_DISK = re.compile(r"(?:fd|sr|loop)\d")


class Rule(NamedTuple):
    """`word` must stand in the line, `pattern` must match; `read` makes the fields."""

    word: str
    pattern: re.Pattern[str]
    read: Reader


def _as(kind: str, severity: str, action: str = "", **named: str) -> Reader:
    """Return a reader of fixed fields, and of groups of the pattern by the field's name."""

    def read(match: re.Match[str]) -> Fields:
        fields = {"kind": kind, "severity": severity}
        if action:
            fields["action"] = action
        fields |= named
        fields |= {name: text for name, text in match.groupdict().items() if text}
        return fields

    return read


def _edac(match: re.Match[str]) -> Fields:
    uncorrected = match["code"] == "UE"
    return {
        "kind": "edac",
        "code": match["code"],
        "severity": "error" if uncorrected else "warning",
        "action": "replace the memory module" if uncorrected else "watch the memory module",
        "device": f"{match['controller']} {match['label']}",
        "count": match["count"],
    }


def _cper(match: re.Match[str]) -> Fields:
    return {"kind": "mce", "code": match["code"], "severity": _SEVERITY_OF_CPER[match["code"]]}


def _mce(match: re.Match[str]) -> Fields:
    fields = {"kind": "mce", "severity": "warning", "device": f"cpu{match['cpu']}"}
    if match[2]:
        fields |= {"severity": "error", "code": "exception", "action": "take the node out"}
    return fields


def _lockup(match: re.Match[str]) -> Fields:
    fields = {"kind": "soft_lockup", "severity": "error", "action": "reboot the node"}
    fields |= {name: text for name, text in match.groupdict().items() if text}
    return fields | {"device": f"cpu{match['device']}"}


def _disk(match: re.Match[str]) -> Fields:
    device = match["device"]
    severity = "info" if _TOY_DISK.match(device) else "error"
    return {"kind": "io_error", "severity": severity, "device": device, "action": "check the disk"}


def _nfs(match: re.Match[str]) -> Fields:
    fields = {"kind": "nfs", "severity": "warning", "device": match["server"]}
    if match["answer"] == "OK":
        fields |= {"severity": "info", "clears": "nfs"}
    return fields


def _link(match: re.Match[str]) -> Fields:
    fields = {"kind": "link", "severity": "warning", "device": match["device"]}
    if match["state"].lower() in {"up", "active"}:
        fields |= {"severity": "info", "clears": "link"}
    return fields


_RULES = (
    Rule(
        "blocked ",
        re.compile(
            r"INFO: task (?P<process>.{1,64}):(?P<pid>\d{1,10}) blocked "
            r"(?:in I/O wait )?for more than (?P<code>\d{1,9}) seconds"
        ),
        _as("hung_task", "warning", "look for a dead file system or device"),
    ),
    Rule(
        "soft lockup",
        re.compile(
            r"soft lockup - CPU#(?P<device>\d{1,5}) stuck for (?P<code>\d{1,9})s! "
            r"\[(?P<process>.{1,64}):(?P<pid>\d{1,10})\]"
        ),
        _lockup,
    ),
    Rule(
        "LOCKUP on cpu",
        re.compile(r"detected (?P<code>hard) LOCKUP on cpu (?P<device>\d{1,5})"),
        _lockup,
    ),
    Rule(
        "Kernel panic",
        re.compile(r"Kernel panic - not syncing"),
        _as("panic", "fatal", "reboot the node"),
    ),
    Rule(
        "EDAC MC",
        re.compile(
            r"EDAC (?P<controller>MC\d{1,4}): (?P<count>\d{1,9}) (?P<code>CE|UE)\b"
            r".{0,120}? on (?P<label>\S{1,160})"
        ),
        _edac,
    ),
    Rule(
        "event severity",
        re.compile(r"\[Hardware Error\]: event severity: (?P<code>corrected|recoverable|fatal)"),
        _cper,
    ),
    Rule(
        "Machine check events logged",
        re.compile(r"Machine check events logged"),
        _as("mce", "warning", "read the machine check log"),
    ),
    Rule(
        "Machine Check",
        re.compile(r"\[Hardware Error\]: CPU (?P<cpu>\d{1,5}): Machine Check( Exception)?: "),
        _mce,
    ),
    Rule(
        "nvme",
        re.compile(
            r"(?P<device>nvme\d{1,4}): (?:I/O .{1,80}? timeout, disable controller"
            r"|Disabling device after reset failure|Removing after probe failure)"
        ),
        _as("nvme", "error", "replace the disk", code="disabled"),
    ),
    Rule(
        "nvme",
        re.compile(
            r"(?P<device>nvme\d{1,4}): (?:I/O .{1,80}? (?P<code>timeout)"
            r"|controller is down; will (?P<reset>reset))"
        ),
        lambda match: {
            "kind": "nvme",
            "severity": "warning",
            "device": match["device"],
            "code": match["code"] or match["reset"],
        },
    ),
    Rule(
        "no available path",
        re.compile(r"block (?P<device>\S{1,32}): no available path - failing I/O"),
        _as("nvme", "error", "check the disk and its paths", code="no path"),
    ),
    Rule(
        "read",
        re.compile(
            r"\((?:device )?(?P<device>[^()]{1,64})\).{0,160}?"
            r"(?:Remounting filesystem read-only|set read-only|forced readonly)"
        ),
        _as("read_only", "error", "check the disk, then the file system"),
    ),
    Rule(
        "EXT4-fs",
        re.compile(r"EXT4-fs (?P<code>error|warning) \(device (?P<device>[^)]{1,64})\)"),
        lambda match: {
            "kind": "filesystem",
            "severity": match["code"],
            "device": match["device"],
            "action": "check the disk, then the file system",
        },
    ),
    Rule(
        "XFS",
        re.compile(
            r"XFS \((?P<device>[^)]{1,64})\): .{0,200}?"
            r"(?:Shutting down filesystem|has been shut down|[Cc]orruption (?:of|detected)"
            r"|Metadata (?:CRC error|corruption))"
        ),
        _as("filesystem", "error", "check the disk, then the file system"),
    ),
    Rule(
        "I/O error",
        re.compile(r"I/O error(?: on)?,? dev(?:ice)? (?P<device>[^\s,]{1,64})"),
        _disk,
    ),
    Rule(
        "medium error",
        re.compile(r"critical medium error, dev (?P<device>[^\s,]{1,64})"),
        _disk,
    ),
    Rule(
        "I/O error while writing superblock",
        re.compile(r"\((?P<device>[^)]{1,64})\): I/O error while writing superblock"),
        _disk,
    ),
    Rule(
        "beyond end of device",
        re.compile(
            r"attempt to access beyond end of device(?:\s{1,4}(?P<device>[^\s:]{1,64}): rw=)?"
        ),
        _as("io_error", "error", "check the disk and its partition table"),
    ),
    Rule(
        "Disk failure on",
        re.compile(
            r"md/raid[^:]{0,16}:(?P<device>[^\s:]{1,64}): "
            r"Disk failure on (?P<code>[^\s,]{1,64})"
        ),
        _as("raid", "error", "replace the disk"),
    ),
    Rule(
        "nfs: server",
        re.compile(r"nfs: server (?P<server>\S{1,253}) (?P<answer>not responding|OK)"),
        _nfs,
    ),
    Rule(
        "Link ",
        re.compile(r"(?P<device>[^\s:]{1,64}): Port: \d{1,3} Link (?P<state>DOWN|ACTIVE)"),
        _link,
    ),
    Rule(
        "ink is ",
        re.compile(r"(?P<device>[^\s:]{1,64}):? (?:NIC )?[Ll]ink is (?P<state>[Dd]own|[Uu]p)\b"),
        _link,
    ),
    Rule(
        "Link ",
        re.compile(r"(?P<device>[^\s:]{1,64}): Link (?P<state>[Dd]own|[Uu]p)$"),
        _link,
    ),
)


class Recogniser:
    """Turns records of the kernel log into faults; counts the rest."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._gpus = Gpus()
        self._ooms = Ooms()
        self._newest_us = 0

    def take(self, record: Record, time: Instant) -> FoundLine | None:
        """Return the fault that a record tells of; None for nothing (new)."""
        self._newest_us = record.time_us
        fields = self._fields(record.text[:SEARCHED_CHARS], record.time_us)
        if fields is None:
            return None
        if record.facility != _KERNEL_FACILITY:
            fields["writer"] = "a program, not the kernel"
        return found(record.text, fields, time)

    def overdue(self, now: Instant, passed_us: int = 0) -> Iterable[FoundLine]:
        """Return faults whose last line should have come by now."""
        fields = self._ooms.overdue(self._newest_us + passed_us)
        if fields is not None:
            text = f"Kill process {fields['pid']} ({fields['process']})"
            yield found(text, fields, now)

    def _fields(self, text: str, time_us: int) -> Fields | None:
        if "NVRM" in text:
            return self._gpus.take(text, time_us)
        if "ill" in text:  # kill, Kill, killed, Killed
            fields = self._ooms.take(text, time_us)
            if fields is not None:
                return fields
        for rule in _RULES:
            if rule.word in text:
                match = rule.pattern.search(text)
                if match is not None:
                    return rule.read(match)
        return None


def found(text: str, fields: Fields, time: Instant) -> FoundLine:
    """Return a line whose every word is safe to print; a fault without a count is one."""
    shown = {name: plain_text(value, 256) for name, value in fields.items()}
    shown.setdefault("count", "1")
    return FoundLine(time, SOURCE, plain_text(text, 8192), shown)
