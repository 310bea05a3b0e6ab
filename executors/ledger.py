"""An executor's own disk: what it was asked, what it is about to change, what it answered.

One JSON object a line, appended and synced before the thing that it tells of is done, so that a
crash at any point leaves a trace: an intent without an answer, a change without its lifting. Old
answers go when they are older than `keep_s` or more than `cases_max`; what is held stays. A line
that a crash cut short is passed over and counted.
"""

import contextlib
import os
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from bus.messages import Action, IsolationCommand, Outcome, Scope
from runtime.clock import Instant, nanoseconds
from runtime.errors import FarsideError, NotPermitted, Unavailable
from runtime.files import take_lock, write_atomically
from runtime.words import plain_text

KEEP_S = 7 * 86_400.0  # a week: longer than any bus gives a command again after a failure
CASES_MAX = 10_000
DETAIL_CHARS_MAX = 1_000
LINES_MAX = 4 * CASES_MAX  # a case is an intent, its changes, an answer, a lifting


class Verdict(NamedTuple):
    """What became of a command, in one plain sentence; `held_until` while something is held."""

    outcome: Outcome
    detail: str
    held_until: Instant | None = None

    def plain(self) -> "Verdict":
        """Return it with a sentence that is safe to print: names in it may come from anybody."""
        return self._replace(detail=plain_text(self.detail, DETAIL_CHARS_MAX))


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is changed, with all that is needed to undo it.

    `place` and `identity` name the thing (a cgroup's folder and its inode), `before` and `after`
    its values by name, `members` what is stopped one by one (processes as `pid:start`).
    """

    place: str = ""
    identity: str = ""
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    members: tuple[str, ...] = ()


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    step: Literal["intent", "change", "answer", "withdrawn", "lifted", "told"]
    command: str
    at: int = 0
    action: Action | None = None
    scope: Scope | None = None
    boot: str = ""
    until: int | None = None
    change: Change | None = None
    outcome: Outcome | None = None
    detail: str = ""


class Case(msgspec.Struct, kw_only=True):
    """All that is known of one command."""

    command: str
    action: Action
    scope: Scope
    boot: str
    begun: Instant
    until: Instant | None = None
    change: Change | None = None
    verdict: Verdict | None = None
    lifted: bool = False
    told: bool = False

    @property
    def holds(self) -> bool:
        """Tell whether something is (or may be) changed and not yet undone."""
        return self.change is not None and not self.lifted

    @property
    def pending(self) -> bool:
        """Tell whether it was begun and never answered."""
        return self.verdict is None


class Ledger:
    """The cases of one executor, on disk where `path` is given; opened at its first use.

    Errors: `Misconfigured` when another process keeps the same ledger, `NotPermitted` when the
    folder may not be written, `Unavailable` when the disk is full.
    """

    def __init__(
        self, path: Path | None, *, keep_s: float = KEEP_S, cases_max: int = CASES_MAX
    ) -> None:
        """Remember where and how much to keep."""
        self._path = path
        self._keep_ns = nanoseconds(keep_s)
        self._cases_max = cases_max
        self._cases: dict[str, Case] = {}
        self._opened = False
        self._file = -1
        self._lock = -1
        self._lines = 0
        self.torn = 0

    def case(self, command: str) -> Case | None:
        """Return what is known of a command."""
        self._open()
        return self._cases.get(command)

    def earlier(self, command: str) -> Verdict | None:
        """Return the answer to a command that is asked once more, None where there was none yet."""
        case = self.case(command)
        if case is None or case.verdict is None:
            return None
        verdict = repeated(case.verdict)
        if not case.lifted:
            return verdict
        return verdict._replace(detail=f"{verdict.detail} (no longer held)", held_until=None)

    def pending(self) -> list[Case]:
        """Return what was begun and never answered, the oldest first."""
        self._open()
        return [case for case in self._cases.values() if case.pending]

    def holding(self) -> list[Case]:
        """Return what is changed and not yet undone, the oldest first."""
        self._open()
        return [case for case in self._cases.values() if case.holds]

    def untold(self) -> list[Case]:
        """Return the answered cases whose report was not handed over as far as is known."""
        self._open()
        return [case for case in self._cases.values() if not case.pending and not case.told]

    def begin(self, command: IsolationCommand, boot: str, until: Instant | None, now: int) -> Case:
        """Note an intent before acting."""
        line = _Line(
            step="intent",
            command=command.id,
            at=int(now),
            action=command.action,
            scope=command.scope,
            boot=boot,
            until=_number(until),
        )
        self._append(line)
        return self._cases[command.id]

    def change(self, command: str, change: Change) -> None:
        """Note what is about to be changed, all of it so far, before it is touched."""
        self._append(_Line(step="change", command=command, change=change))

    def answer(self, command: IsolationCommand, verdict: Verdict, now: int) -> None:
        """Note the answer, before it is reported."""
        line = _Line(
            step="answer",
            command=command.id,
            at=int(now),
            action=command.action,
            scope=command.scope,
            until=_number(verdict.held_until),
            outcome=verdict.outcome,
            detail=verdict.detail,
        )
        self._append(line)

    def settle(self, case: Case, verdict: Verdict, now: int) -> None:
        """Note the answer to what an earlier run began."""
        line = _Line(
            step="answer",
            command=case.command,
            at=int(now),
            until=_number(verdict.held_until),
            outcome=verdict.outcome,
            detail=verdict.detail,
        )
        self._append(line)

    def withdraw(self, command: str) -> None:
        """Note that an intent came to nothing and left nothing: it may be tried again."""
        self._append(_Line(step="withdrawn", command=command))

    def lift(self, command: str, detail: str, now: int) -> None:
        """Note that what a command held is undone."""
        self._append(_Line(step="lifted", command=command, at=int(now), detail=detail))

    def tell(self, command: str) -> None:
        """Note that the answer's report was handed over; lost in a crash it is told once more."""
        case = self.case(command)
        if case is not None and not case.told:
            self._append(_Line(step="told", command=command), sync=False)

    def close(self) -> None:
        """Let go of the files; the next use opens them again."""
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1
        self._opened = False

    def _open(self) -> None:
        if self._opened:
            return
        self._cases, self._lines = {}, 0
        if self._path is not None:
            self._lock = take_lock(self._path)
            try:
                for line in _read(self._path):
                    self._apply(line)
                self._rewrite()
            except BaseException:
                self.close()
                raise
        self._opened = True

    def _apply(self, text: bytes) -> None:
        try:
            self._take(_DECODER.decode(text))
        except (msgspec.DecodeError, ValueError):
            self.torn += 1

    def _take(self, line: _Line) -> None:
        case = self._cases.get(line.command)
        if case is None:
            if line.action is None or line.scope is None:
                return  # tells of a case that was dropped for its age
            case = Case(
                command=line.command,
                action=line.action,
                scope=line.scope,
                boot=line.boot,
                begun=Instant(line.at),
                until=None if line.until is None else Instant(line.until),
            )
            self._cases[line.command] = case
        if line.step == "change":
            case.change = line.change
        elif line.step == "answer" and line.outcome is not None:
            until = None if line.until is None else Instant(line.until)
            case.verdict = Verdict(line.outcome, line.detail, until)
        elif line.step == "withdrawn":
            del self._cases[line.command]
        elif line.step == "lifted":
            case.lifted = True
        elif line.step == "told":
            case.told = True

    def _append(self, line: _Line, *, sync: bool = True) -> None:
        """Write first, know it then: what can't be written is not done."""
        self._open()
        if self._path is not None:
            if self._lines >= LINES_MAX:
                self._rewrite()
            _write(self._path, self._file, _ENCODER.encode(line) + b"\n", sync=sync)
            self._lines += 1
        self._take(line)
        if line.at and self._cases:
            self._prune(line.at)

    def _prune(self, now: int) -> None:
        """Drop the oldest cases that hold nothing, when too many or too old."""
        excess = len(self._cases) - self._cases_max
        oldest = next(iter(self._cases.values()))
        if excess <= 0 and now - oldest.begun <= self._keep_ns:
            return
        for case in list(self._cases.values()):
            if excess <= 0 and now - case.begun <= self._keep_ns:
                return
            if not case.pending and not case.holds:
                del self._cases[case.command]
                excess -= 1

    def _rewrite(self) -> None:
        """Keep on disk only what is still known, in a new file."""
        if self._path is None:
            return
        lines = [line for case in self._cases.values() for line in _lines_of(case)]
        write_atomically(self._path, b"".join(_ENCODER.encode(line) + b"\n" for line in lines))
        if self._file >= 0:
            os.close(self._file)
        try:
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise _explained(self._path, error) from None
        self._lines = len(lines)


def repeated(verdict: Verdict) -> Verdict:
    """Return the answer to a command that was answered before: what was done is done already."""
    if verdict.outcome == "done":
        return verdict._replace(outcome="already")
    return verdict


def _lines_of(case: Case) -> list[_Line]:
    lines = [
        _Line(
            step="intent",
            command=case.command,
            at=int(case.begun),
            action=case.action,
            scope=case.scope,
            boot=case.boot,
            until=_number(case.until),
        )
    ]
    if case.change is not None:
        lines.append(_Line(step="change", command=case.command, change=case.change))
    if case.verdict is not None:
        outcome, detail, until = case.verdict
        lines.append(
            _Line(
                step="answer",
                command=case.command,
                until=_number(until),
                outcome=outcome,
                detail=detail,
            )
        )
    if case.lifted:
        lines.append(_Line(step="lifted", command=case.command))
    if case.told:
        lines.append(_Line(step="told", command=case.command))
    return lines


def _number(moment: Instant | None) -> int | None:
    return None if moment is None else int(moment)


def _read(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _explained(path, error) from None


def _write(path: Path, descriptor: int, record: bytes, *, sync: bool) -> None:
    """Append one line whole; where the disk takes only a part of it, that part is taken back."""
    size = os.fstat(descriptor).st_size
    try:
        if os.write(descriptor, record) < len(record):
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, size)
            raise Unavailable(f"{path}: no room left on its disk", retry_after_s=10.0)
        if sync:
            os.fdatasync(descriptor)
    except OSError as error:
        raise _explained(path, error) from None


def _explained(path: Path, error: OSError) -> FarsideError:
    reason = os.strerror(error.errno or 0).lower()
    if isinstance(error, PermissionError):
        return NotPermitted(f"{path}: {reason}: give this user the right to its folder")
    return Unavailable(f"{path}: {reason}: make room or set another state_dir", retry_after_s=10.0)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Line)
