"""The decider: suspicions of all cells in; incidents, commands, refusals and node health out.

Pure: no clock, no chance, no network. Its "now" is the newest head of the log that a watermark
told, and acts are decided on watermarks (and reports) alone, because only they tell how old a
suspicion is. Records are judged one by one, so that their grouping into steps changes nothing.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from numpy.typing import NDArray

from bus.codec import type_of
from bus.messages import (
    Directive,
    ExecutionReport,
    Fault,
    IsolationCommand,
    JobFacts,
    Message,
    NodeFacts,
    Refusal,
    Reject,
    Scope,
    Suspicion,
    Watermark,
)
from bus.topics import AUDIT, COMMANDS, HEALTH, INCIDENTS
from bus.transport import Envelope
from detector import explain, fleet, health, policy, remembered, sight, wishes
from detector.deciding import ActRule as ActRule  # noqa: PLC0414  # part of how a decider is made
from detector.deciding import DeciderSettings
from detector.health import DEFAULT_POOL, NodeRecord
from detector.incidents import (
    HOLDS,
    STAYS,
    WORKED,
    Case,
    first_within,
    home_of,
    inside,
    opened,
    short_id,
)
from detector.outputs import Output
from detector.remembered import State
from detector.suspicions import left_s, opens, urgent_leak, worst
from runtime.clock import Instant

FOR_EVER_S = 1e18
_NARROW_FIRST = {"process": 0, "container": 1}


class Decider:
    """All state of the fleet's decisions, and the one function that moves it."""

    def __init__(
        self,
        settings: DeciderSettings,
        act: Mapping[str, Mapping[str, ActRule]],
        *,
        executors: Sequence[str] = (),
        answers: bool = True,
    ) -> None:
        """Know nothing yet.

        `act` holds the rules by fault and pool. `executors` are the names of those configured, in
        the order of preference. Without `answers` nobody is expected to report (a replay).
        """
        self._settings = settings
        # In a cell that is judged late nothing ends for want of news.
        self._patient = msgspec.structs.replace(settings, quiet_s=FOR_EVER_S, forget_s=FOR_EVER_S)
        self._act = act
        self._executors = tuple(executors)
        self._answers = answers
        self._state = State()
        self._out: list[Output] = []
        self._touched: dict[str, Case] = {}
        self._nodes: dict[str, None] = {}
        self.counts = self._state.counts

    @property
    def now(self) -> Instant:
        """The moment up to which time is known to have passed."""
        return self._state.now

    def step(self, envelopes: Sequence[Envelope]) -> list[Output]:
        """Take records in the order in which they were read; return what there is to publish."""
        outputs: list[Output] = []
        for envelope in envelopes:
            sight.pass_log(self._state, envelope.appended, self._settings)
            self._take(envelope.message)
            if not isinstance(envelope.message, Suspicion):
                self._look()
            self._publish()
            outputs += self._out
            self._out, self._touched, self._nodes = [], {}, {}
        return outputs

    def save(self) -> tuple[bytes, dict[str, NDArray[Any]]]:
        """Return all state; there are no arrays in it."""
        return self._state.saved(), {}

    def load(self, plain: bytes, arrays: Mapping[str, NDArray[Any]]) -> None:  # noqa: ARG002  # all cores load alike
        """Become the saved state; ValueError where it is of another form."""
        self._state = remembered.restored(plain)
        self.counts = self._state.counts

    def judged(self) -> dict[str, Instant]:
        """Return up to when each cell is judged, of those of which anything is."""
        sights = self._state.sights.items()
        return {cell: seen.judged for cell, seen in sights if seen.judged}

    def blind(self) -> list[str]:
        """Return the cells that are judged too far behind for anything to be acted on."""
        return [cell for cell, seen in self._state.sights.items() if seen.blind]

    def forget_places(self) -> None:
        """Forget how far each cell was judged: the log was begun anew, its offsets start again."""
        self._state.places = {}

    def _take(self, message: Message) -> None:
        if isinstance(message, Suspicion):
            self._suspect(message)
        elif isinstance(message, Watermark):
            self._pass_time(message)
        elif isinstance(message, ExecutionReport):
            self._report(message)
        elif isinstance(message, NodeFacts):
            self._learn_node(message)
        elif isinstance(message, JobFacts):
            for node in message.nodes:
                self._node(node, "")
        elif isinstance(message, Directive):
            self._obey(message)
        elif isinstance(message, Reject):
            self._count(f"rejected: {message.reason}")
        else:
            self._count(f"ignored: {type_of(message)}")

    # --- suspicions ----------------------------------------------------------------------------

    def _suspect(self, suspicion: Suspicion) -> None:
        state, settings, scope = self._state, self._settings, suspicion.scope
        if not state.is_new(suspicion):
            self._count("repeats")
            return
        self._count("suspicions")
        if not state.marked:
            state.now = suspicion.time
        self._node(scope.node, scope.cell)
        if not state.keep(suspicion, settings.suspicions_max):
            self._count("over the limit: suspicions")
        for case in state.cases_of(scope.node):
            if case.scope == scope:
                case.see(suspicion, state.now, settings)
                self._touch(case)
        fault = worst(suspicion)
        if fault is not None and opens(suspicion, fault, settings):
            if scope.node and fault != "telemetry":
                state.ledger.show(fault, scope.node, state.now)
            self._open(suspicion, fault)

    def _open(self, suspicion: Suspicion, fault: Fault) -> None:
        """Open an incident, unless it is open or this is an echo of another one."""
        state, settings = self._state, self._settings
        if state.case(suspicion.scope, fault) is not None:
            return
        here = state.cases_of(suspicion.scope.node)
        home = home_of(suspicion, fault, here, state.now, settings)
        if home is not None:
            home.fold(suspicion)
            self._touch(home)
        elif sum(map(len, state.cases.values())) >= settings.incidents_max:
            self._count("over the limit: incidents")
        else:
            self._begin(opened(suspicion, fault, state.now, settings))

    def _begin(self, case: Case) -> None:
        self._count("incidents")
        self._state.add(case)
        self._touch(case)

    # --- time ----------------------------------------------------------------------------------

    def _pass_time(self, mark: Watermark) -> None:
        state, settings = self._state, self._settings
        if not state.place(mark.cell, mark.source).advance(mark):
            self._count("repeats")
            return
        state.now = max(state.now, mark.head_time) if state.marked else mark.head_time
        state.marked = True
        sight.see(state, mark)
        self._look()
        for case in list(state.every_case()):
            late = sight.is_late(state, case.scope.cell)
            missed = case.pass_time(state.now, self._patient if late else settings)
            if missed is not None:
                self._miss(missed)
            self._touch(case)
        state.ledger.forget(state.now, settings)
        for suspicion in state.every_suspicion():
            age_s = state.now.since(suspicion.time)
            if age_s > settings.forget_s and not sight.is_late(state, suspicion.scope.cell):
                state.lose(suspicion.scope)
                self._nodes[suspicion.scope.node] = None
            elif age_s <= settings.age_limit_s and urgent_leak(suspicion, state.now, settings):
                self._open(suspicion, "memory_leak")
        self._note_common()
        self._judge()
        self._nodes |= dict.fromkeys(state.suspicions) | dict.fromkeys(state.cases)
        self._nodes |= {name: None for name, node in state.nodes.items() if node.state != "healthy"}

    def _look(self) -> None:
        """Judge which cells are blind; of one that sees again, tell the health of its nodes."""
        state = self._state
        for cell in sight.judge(state, self._settings):
            self._nodes |= {name: None for name, node in state.nodes.items() if node.cell == cell}
        for case in sight.cases(state):
            if case.told is None:
                self._count("incidents")
            self._touch(case)

    def _miss(self, command: IsolationCommand) -> None:
        """Open the incident of an executor that keeps silent, once until it answers."""
        self._count("commands: unanswered")
        state = self._state
        known = state.case(fleet.executor_scope(command.executor), "software")
        if self._answers and known is None:
            self._begin(fleet.silent_executor(command, state.now))

    def _note_common(self) -> None:
        """Keep one incident of the fleet for each fault that has a common cause."""
        state = self._state
        for fault in list(state.ledger.positives):
            sentence = self._common(fault)
            case = state.case(fleet.fault_scope(fault), fault)
            if case is not None:
                case.calm = None if sentence else case.calm or state.now
                self._touch(case)
            elif sentence:
                self._begin(fleet.common_cause(fault, sentence, state.now))

    def _common(self, fault: Fault) -> str:
        """Return the sentence on a fault's common cause, "" where there is none."""
        state, settings = self._state, self._settings
        known = len(state.nodes)
        shown, shared = state.ledger.common(fault, known, state.now, settings)
        return explain.common(fault, shown, known, settings.veto_s) if shared else ""

    # --- decisions -----------------------------------------------------------------------------

    def _judge(self) -> None:
        """Decide about every case, the most urgent first, the narrower of two before the wider."""
        shared = {fault: self._common(fault) for fault in self._state.ledger.positives}
        held = [case.scope for case in self._state.every_case() if case.held_until is not None]
        waiting = [
            (self._left_s(case), _NARROW_FIRST.get(case.scope.kind, 2), case.id, case)
            for case in self._state.every_case()
            if case.suspicion is not None and case.state in {"open", "probation"}
        ]
        for left, _, _, case in sorted(waiting, key=lambda entry: entry[:3]):
            suspicion = case.judged_on()
            if suspicion is None or not self._state.covered(suspicion):
                continue
            view = self._view(case, left, held, shared.get(case.fault, ""))
            decision = policy.decide(case, view, self._settings)
            if decision is None:
                continue
            if isinstance(decision.message, IsolationCommand):
                self._command(case, decision.message)
                held += [case.scope] if decision.message.action in HOLDS | STAYS else []
            elif decision.message.id not in case.refused:
                case.refused.append(decision.message.id)
                self._refuse(decision.kind, decision.message)

    def _left_s(self, case: Case) -> float:
        """Return the time left to a case, or to a container around it if that is less.

        What leaks inside a container may fill the limit of the container before one of its own.
        """
        around = [
            suspicion
            for suspicion in self._state.suspicions.get(case.scope.node, {}).values()
            if inside(case.scope, suspicion.scope) and worst(suspicion) == case.fault
        ]
        own = [case.suspicion] if case.suspicion is not None else []
        now = self._state.now
        return min((left_s(suspicion, now) for suspicion in own + around), default=math.inf)

    def _view(self, case: Case, left: float, held: Sequence[Scope], shared: str) -> policy.View:
        state, settings = self._state, self._settings
        node = state.nodes.get(case.scope.node)
        pool = node.pool if node is not None else DEFAULT_POOL
        return policy.View(
            now=state.now,
            left_s=left,
            pool=pool,
            rule=self._act.get(case.fault, {}).get(pool),
            executors=self._executors,
            stopped=state.stopped,
            shared=shared,
            within=first_within(case, state.cases_of(case.scope.node), state.now, settings),
            held=held,
            known_nodes=len(state.nodes),
            ledger=state.ledger,
        )

    def _command(self, case: Case, command: IsolationCommand) -> None:
        state = self._state
        case.issue(command, state.now)
        if command.action != "release":
            state.ledger.spend(case.scope, state.now, self._settings)
        self._count("commands")
        self._send(COMMANDS, case.id, command)
        self._send(AUDIT, case.id, command)
        self._touch(case)

    def _refuse(self, kind: str, refusal: Refusal) -> None:
        self._count(f"refusals: {kind}")
        key = refusal.incident or refusal.id
        self._send(COMMANDS, key, refusal)
        self._send(AUDIT, key, refusal)

    # --- answers -------------------------------------------------------------------------------

    def _report(self, report: ExecutionReport) -> None:
        state = self._state
        identity = short_id(report.command, report.executor, report.outcome, int(report.finished))
        if not state.handle(f"report {identity}"):
            self._count("repeats")
            return
        self._count(f"reports: {report.outcome}")
        silent = state.case(fleet.executor_scope(report.executor), "software")
        if silent is not None:
            silent.end(f"{report.executor} answered", state.now)
            self._touch(silent)
        for case in list(state.every_case()):
            command = case.asked(report.command)
            if command is not None:
                self._send(AUDIT, case.id, report)
                self._take_answer(case, command, report)
                return
        self._count("reports on unknown commands")
        self._send(AUDIT, report.command, report)

    def _take_answer(self, case: Case, command: IsolationCommand, report: ExecutionReport) -> None:
        state = self._state
        awaited = case.awaits(command)
        if not case.answer(command, report, state.now):
            return
        worked = report.outcome in WORKED
        if command.action == "release" and worked:
            state.ledger.rest(case.scope, state.now)
        elif command.action != "release" and awaited and not worked:
            refused = report.outcome == "refused"
            state.ledger.forgive(case.scope, state.now, self._settings, whole=refused)
        self._touch(case)
        self._judge()

    # --- what people and schedulers say --------------------------------------------------------

    def _learn_node(self, facts: NodeFacts) -> None:
        node = self._node(facts.node, facts.cell)
        if node is not None:
            node.pool = facts.pool or DEFAULT_POOL
            node.cell = facts.cell or node.cell

    def _node(self, name: str, cell: str) -> NodeRecord | None:
        """Return what is known of a node, a new record where it is new."""
        state = self._state
        node = state.nodes.get(name)
        if not name or (node is None and len(state.nodes) >= self._settings.nodes_max):
            return None
        if node is None:
            node = state.nodes[name] = NodeRecord(name=name, cell=cell)
        self._nodes[name] = None
        return node

    def _obey(self, wish: Directive) -> None:
        if not self._state.handle(f"directive {wish.id}"):
            self._count("repeats")
            return
        self._send(AUDIT, wish.scope.key, wish)
        if wish.kind == "stop_everything":
            self._state.stopped = wish
        elif wish.kind == "lift" and wish.target in {"", "stop_everything"}:
            self._state.stopped = None
        elif wish.kind == "release":
            self._release(wish)
        elif wish.kind != "label":
            self._count(f"directives not known yet: {wish.kind}")
            return
        self._count(f"directives: {wish.kind}")

    def _release(self, wish: Directive) -> None:
        found = False
        for case in list(self._state.every_case()):
            holding = case.held_by
            if holding is None or not wishes.means(wish, case, holding):
                continue
            found = True
            if not case.pending:
                now, settings = self._state.now, self._settings
                self._command(case, policy.release(case, holding, wish, now, settings))
        if not found:
            self._refuse("release", wishes.nothing_held(wish, self._state.now))

    # --- what goes out -------------------------------------------------------------------------

    def _touch(self, case: Case) -> None:
        self._touched[case.id] = case
        if case.scope.node:
            self._nodes[case.scope.node] = None

    def _send(self, topic: str, key: str, message: Message) -> None:
        self._out.append(Output(topic, key, message))

    def _publish(self) -> None:
        """Tell of what changed: incidents first, then the nodes that they befall."""
        state = self._state
        for case in self._touched.values():
            if case.due(state.now, self._settings):
                self._send(INCIDENTS, case.id, case.tell(state.now))
            if case.state == "closed":
                state.drop(case)
        for name in self._nodes:
            node = state.nodes.get(name)
            if node is None:
                continue
            suspicions = state.suspicions.get(name, {}).values()
            judged = health.judge(state.cases_of(name), suspicions, state.now)
            if judged.state == "healthy" and sight.is_late(state, node.cell):
                continue  # that nothing is seen of it does not make it well
            told = health.tell(node, judged, state.now)
            if told is not None:
                self._send(HEALTH, name, told)

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
