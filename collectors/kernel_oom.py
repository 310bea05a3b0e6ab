"""The kernel ends processes for want of memory: one event, told in one to four lines.

From 5.0 on one line holds everything ("oom-kill:constraint=…"), and a line that names the victim
follows or does not. Before that the group and the victim stand in lines of their own, and the
first victim named may be spared for a child of it. What `cgroup` names is the group whose limit was
met; it is absent where the whole node ran out.
"""

import re

Fields = dict[str, str]

_KILLED = re.compile(r"Killed process (\d{1,10}),? (?:UID \d{1,10},? )?\(")
_CHOSEN = re.compile(r"Kill process (\d{1,10}) \(")
_SAME_US = 10_000_000  # the lines of one event come within milliseconds, seconds on a slow console


class Ooms:
    """Joins the lines of one event."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._group = ("", 0)
        self._told: dict[str, int] = {}
        self._chosen: tuple[Fields, int] | None = None

    def take(self, text: str, time_us: int) -> Fields | None:
        """Return what a line means; None for nothing (new)."""
        if text.startswith("oom-kill:constraint="):
            return self._whole(text, time_us)
        if text.startswith("Task in ") and " killed as a result of limit of " in text:
            self._group = (text.partition(" killed as a result of limit of ")[2].strip(), time_us)
            return None
        match = _KILLED.search(text)
        if match is not None:
            return self._killed(text, match, time_us)
        match = _CHOSEN.search(text)
        if match is not None and "sacrifice child" in text:
            process = text[match.end() :].rpartition(") score")[0]
            if not self._is_told(match[1], time_us):
                self._chosen = (self._fields(text, match[1], process, time_us), time_us)
        return None

    def overdue(self, time_us: int) -> Fields | None:
        """Return the victim that was chosen, where after a second no line told of its end."""
        if self._chosen is None or time_us - self._chosen[1] < 1_000_000:
            return None
        fields, since_us = self._chosen
        self._chosen = None
        self._note(fields["pid"], since_us)
        return fields

    def _whole(self, text: str, time_us: int) -> Fields:
        # From the right, because names of groups may hold commas; a command has 15 letters at most.
        rest, _, _ = text.rpartition(",uid=")
        rest, _, pid = rest.rpartition(",pid=")
        rest, _, process = rest.rpartition(",task=")
        rest, _, victim = rest.partition(",task_memcg=")
        limited = rest.partition(",oom_memcg=")[2]
        fields = _fields(pid, process, limited)
        if victim and victim != limited:
            fields["victim_cgroup"] = victim
        self._note(pid, time_us)
        return fields

    def _killed(self, text: str, match: re.Match[str], time_us: int) -> Fields | None:
        self._chosen = None
        pid = match[1]
        told = self._is_told(pid, time_us)
        self._note(pid, time_us)
        if told:
            return None
        rest = text[match.end() :]
        process = rest.rpartition(") total-vm")[0] or rest.rpartition(")")[0]
        return self._fields(text, pid, process, time_us)

    def _fields(self, text: str, pid: str, process: str, time_us: int) -> Fields:
        """Fill in the group that an earlier line named; a node-wide end has none."""
        group, since_us = self._group
        node_wide = text.startswith("Out of memory")
        near = 0 <= time_us - since_us <= _SAME_US
        return _fields(pid, process, group if near and not node_wide else "")

    def _is_told(self, pid: str, time_us: int) -> bool:
        before = self._told.get(pid)
        return before is not None and 0 <= time_us - before <= _SAME_US

    def _note(self, pid: str, time_us: int) -> None:
        if len(self._told) > 256:
            self._told.clear()
        self._told[pid] = time_us


def _fields(pid: str, process: str, group: str) -> Fields:
    fields = {
        "kind": "oom_kill",
        "severity": "error",
        "action": "find what holds the memory, or raise the limit",
        "pid": pid,
        "process": process,
    }
    if group:
        fields["cgroup"] = group
    return fields
