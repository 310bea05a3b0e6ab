"""What a story knows: things and incident files, kept up to date by records of all topics.

Not safe for several threads by itself: `farside.view.story` puts a lock around it.
"""

from collections import deque
from operator import itemgetter

from bus.messages import (
    Delivery,
    Directive,
    ExecutionReport,
    Incident,
    IsolationCommand,
    Message,
    NodeHealth,
    Proposal,
    Refusal,
    Reject,
    SampleBatch,
    Scope,
    Suspicion,
    Watermark,
)
from bus.transport import Envelope
from farside.view.casefiles import NEIGHBOURS_MAX, CaseFile
from farside.view.events import event_of, report_event
from farside.view.snapshot import Event
from farside.view.things import KEPT, Key, Thing, encloses, short_names, siblings
from runtime.clock import Instant, nanoseconds

AHEAD_S = 60.0  # a reading from farther in the future than this is a broken clock's
TIDY_S = 5.0
EVENTS_MAX = 400
ENOUGH = 3  # neighbours of the same sort, so that others need not be shown
EARLY_MAX = 64  # messages that wait for the incident or command they belong to
Early = IsolationCommand | Proposal | Refusal | ExecutionReport | Delivery


class Known:
    """Everything that is kept, in bounded memory."""

    def __init__(self, window_s: float, points_max: int, things_max: int, cases_max: int) -> None:
        """Start with nothing known; the bounds are those of `Story`."""
        self._window_ns = nanoseconds(window_s)
        self._points_max = points_max
        self._things_max = things_max
        self._cases_max = cases_max
        self._full = False
        self._case_of_command: dict[str, str] = {}
        self._tidied_ns = 0
        self.things: dict[Key, Thing] = {}
        self.cases: dict[str, CaseFile] = {}
        self._appended = Instant(0)  # of the record in hand
        self._early: deque[tuple[Instant, Early]] = deque(maxlen=EARLY_MAX)
        self._directives: deque[str] = deque(maxlen=EARLY_MAX)
        self._events: deque[tuple[Instant, Event]] = deque(maxlen=EVENTS_MAX)
        self.health: dict[str, NodeHealth] = {}
        self.nodes: dict[str, int] = {}  # when each node was read last, ns
        self.marks: dict[str, tuple[Instant, Watermark]] = {}  # of each cell the last, and when
        self.now_ns = 0
        self.since_ns = 0
        self.samples = 0
        self.rejected = 0
        self.happened = 0

    def take(self, envelope: Envelope) -> None:
        """Take one record of any topic."""
        self.now_ns = max(self.now_ns, int(envelope.appended))
        self.since_ns = self.since_ns or self.now_ns
        self._appended = envelope.appended
        self._take(envelope.message)
        if self.now_ns - self._tidied_ns >= nanoseconds(TIDY_S):
            self._tidied_ns = self.now_ns
            self._tidy()

    def _take(self, message: Message) -> None:
        match message:
            case SampleBatch():
                self._read(message)
            case Suspicion():
                self._suspect(message)
            case Incident():
                self._open(message)
            case IsolationCommand() | Proposal() | Refusal():
                self._decide(message)
            case ExecutionReport():
                self._report(message)
            case Watermark():
                self.marks[message.cell] = (self._appended, message)
            case Reject():
                self.rejected += 1
            case _:
                self._hear(message)

    def _read(self, batch: SampleBatch) -> None:
        if int(batch.time) > self.now_ns + nanoseconds(AHEAD_S):
            return
        self.nodes[batch.node] = max(self.nodes.get(batch.node, 0), int(batch.time))
        self.samples += len(batch.samples)
        time_ns = int(batch.time)
        read = set()
        values = batch.samples.numbers()
        for (metric, device), value in zip(batch.samples.layout.pairs, values, strict=True):
            kind = KEPT.get(metric)
            if kind is None:
                continue
            thing = self._thing(Scope(kind, "", batch.node, device))
            if thing is not None:
                thing.read(metric, time_ns, value, self._points_max)
                thing.seen_ns = max(thing.seen_ns, time_ns)
                read.add(thing)
        for thing in read:
            thing.note_share()

    def _suspect(self, message: Suspicion) -> None:
        thing = self._thing(message.scope, always=True)
        if thing is None:
            return
        before = thing.latest
        if thing.suspect(message):
            self._note(event_of(message, self._name(message.scope), before))

    def _open(self, message: Incident) -> None:
        case = self.cases.get(message.id)
        if case is None:
            thing = self._thing(message.scope, always=True)
            if thing is None:
                return
            thing.scope = message.scope
            case = self.cases[message.id] = CaseFile(message, thing, self._appended)
        else:
            last = case.incident
            if not case.take(message, self._appended):
                return
            if (last.state, last.sentence) == (message.state, message.sentence):
                return
        case.follow(self.beside(case.thing))
        self._note(event_of(message, self._name(message.scope), None))
        self._again()

    def _decide(self, message: IsolationCommand | Proposal | Refusal) -> None:
        wish = message.command if isinstance(message, Proposal) else message
        case = self.cases.get(wish.incident)
        if case is None:
            self._early.append((self._appended, message))
            return
        if not case.take(message, self._appended):
            return
        if not isinstance(message, Refusal):
            self._case_of_command[wish.id] = wish.incident
        self._note(event_of(message, self._name(wish.scope), None))
        self._again()

    def _report(self, message: ExecutionReport) -> None:
        case = self.cases.get(self._case_of_command.get(message.command, ""))
        if case is None:
            self._early.append((self._appended, message))
        elif case.take(message, self._appended):
            command = case.commands[message.command]
            self._note(report_event(message, self._name(command.scope), command))

    def _again(self) -> None:
        """Try again what came before the incident or the command that it belongs to.

        Nothing orders the topics against each other.
        """
        early, self._early = self._early, deque(maxlen=EARLY_MAX)
        now = self._appended
        for appended, message in early:
            self._appended = appended
            self._take(message)
        self._appended = now

    def _give_up(self) -> None:
        """Tell at least what happened of that whose incident is not known, and never will be."""
        oldest = self.now_ns - nanoseconds(TIDY_S)
        for appended, message in list(self._early):
            if appended < oldest:
                self._early.remove((appended, message))
                if isinstance(message, ExecutionReport):
                    self._note(report_event(message, "", None), appended)
                else:
                    self._note(event_of(message, self._named(message), None), appended)

    def _hear(self, message: Message) -> None:
        if isinstance(message, NodeHealth):
            if self.health.get(message.node) == message:
                return
            self.health[message.node] = message
        if isinstance(message, Delivery):
            case = self.cases.get(message.incident)
            if case is None:
                self._early.append((self._appended, message))
                return
            if not case.take(message, self._appended):
                return
        if isinstance(message, Directive):
            if message.id in self._directives:
                return  # it is on the audit's topic, too
            self._directives.append(message.id)
        self._note(event_of(message, self._named(message), None))

    def _note(self, event: Event | None, appended: Instant | None = None) -> None:
        if event is not None:
            self._events.append((appended or self._appended, event))
            self.happened += 1

    @property
    def events(self) -> list[Event]:
        """Return what happened lately, in the order in which the log took it."""
        return [event for _, event in sorted(self._events, key=itemgetter(0))]

    def _thing(self, scope: Scope, *, always: bool = False) -> Thing | None:
        key = Key.of(scope)
        thing = self.things.get(key)
        if thing is None and (always or not self._full):
            thing = self.things[key] = Thing(scope)
            self._full = len(self.things) >= self._things_max
        return thing

    def _tidy(self) -> None:
        """Let go what is too old or too much."""
        self._give_up()
        oldest_ns = self.now_ns - self._window_ns
        held = {case.thing.key for case in self.cases.values()}
        for key, thing in list(self.things.items()):
            thing.forget_before(oldest_ns, keep_suspicions=key in held)
            if thing.seen_ns < oldest_ns and not thing.suspected and key not in held:
                del self.things[key]
        if len(self.things) >= self._things_max:
            healthy = [
                thing
                for key, thing in self.things.items()
                if not thing.suspected and key not in held
            ]
            healthy.sort(key=lambda thing: thing.peak)
            for thing in healthy[: len(self.things) - self._things_max * 4 // 5]:
                del self.things[thing.key]
        self._full = len(self.things) >= self._things_max
        self.nodes = {node: at for node, at in self.nodes.items() if at >= oldest_ns}
        for case in self.cases.values():
            if not case.closed:
                case.follow([])
        self._let_cases_go()

    def _let_cases_go(self) -> None:
        spare = len(self.cases) - self._cases_max
        if spare <= 0:
            return
        ranked = sorted(self.cases.values(), key=lambda case: (not case.closed, moved(case)))
        for case in ranked[:spare]:
            del self.cases[case.incident.id]
            for command in case.commands:
                self._case_of_command.pop(command, None)

    def beside(self, thing: Thing) -> list[Thing]:
        """Return its node and the things beside it: those of the same parent, then the largest.

        Where there are enough that live under a limit of the same kind (the same signal, else the
        same kind of thing), the others add nothing. What lies around or inside the thing is not
        beside it, and of two that lie in each other one is shown.
        """
        key = thing.key
        others = [
            one
            for one in self.things.values()
            if one.key.node == key.node
            and one is not thing
            and one.key.kind != "node"
            and one.signal() is not None
            and not encloses(one.key, key)
            and not encloses(key, one.key)
        ]
        alike = [
            one for one in others if one.key.kind == key.kind and one.signal() == thing.signal()
        ]
        same = alike if len(alike) >= ENOUGH else [o for o in others if o.key.kind == key.kind]
        ranked = sorted(
            same if len(same) >= ENOUGH else others,
            key=lambda one: (not siblings(one.key, key), one.key.kind != key.kind, -one.peak),
        )
        chosen: list[Thing] = []
        for one in ranked:
            if not any(encloses(o.key, one.key) or encloses(one.key, o.key) for o in chosen):
                chosen.append(one)
            if len(chosen) == NEIGHBOURS_MAX:
                break
        node = self.things.get(Key("node", key.node, ""))
        return [node, *chosen] if node is not None and node is not thing else chosen

    def case_of(self, incident_id: str) -> CaseFile | None:
        """Return an incident's file, brought up to date."""
        case = self.cases.get(incident_id)
        if case is not None:
            case.follow(self.beside(case.thing))
        return case

    def _named(self, message: Message) -> str:
        about = message.command if isinstance(message, Proposal) else message
        scope = getattr(about, "scope", None)
        return self._name(scope) if isinstance(scope, Scope) else ""

    def _name(self, scope: Scope) -> str:
        return short_names([scope])[scope]


def moved(case: CaseFile) -> int:
    """Return when an incident was last told of, in ns."""
    return int(case.incident.updated or case.incident.opened)
