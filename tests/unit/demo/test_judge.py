"""The judge holds what farside said against what happened, mode by mode.

PROVENANCE: plans, fates and records are composed; the plan is the one below, in round figures.
"""

from dataclasses import replace

import pytest

from bus.messages import (
    Action,
    ExecutionReport,
    Exhaustion,
    Incident,
    IsolationCommand,
    Message,
    Outcome,
    Refusal,
    Scope,
    Source,
    Suspicion,
    SuspicionState,
)
from bus.topics import SUSPICIONS
from bus.transport import Envelope
from farside.demo.curves import LEAK, SAWTOOTH, STEADY, WARMUP, Curve
from farside.demo.judge import Result, judge, means
from farside.demo.plan import MB, Member, Plan
from farside.demo.summary import figures, summary
from farside.demo.truth import Child, Ending, Fate, Truth
from runtime.clock import Instant

GO = Instant.parse("2025-03-01T12:00:00Z")
PLAN = Plan(
    seed=7,
    hard=False,
    members=(
        Member("loader", Curve(SAWTOOTH, 20 * MB, 80 * MB, 3.0, 10.0, 0.0), 1.5),
        Member("trainer", Curve(WARMUP, 20 * MB, 90 * MB, 22.0, 5.0, 0.0), 1.5),
        Member("server", Curve(LEAK, 50 * MB, 150 * MB, 20.0, 50.0, 3.0 * MB), 1.0),
    ),
    onset_s=20.0,
    limit_s=70.0,
)
STEADY_ONE = Member("server", Curve(STEADY, 50 * MB, 0, 20.0, 50.0, 0.0), 1.5)
NO_LEAK = replace(PLAN, members=(*PLAN.members[:2], STEADY_ONE))


def child(name: str, pid: int, role: str = "neighbour") -> Child:
    return Child(
        name=name,
        kind=PLAN.member(name).curve.kind,
        pid=pid,
        scope_kind="container",
        device=f"/farside-demo-1-7/{name}@{pid}",
        limit_bytes=200 * MB,
        role=role,
        process=f"{name}:{pid}:1000",
    )


LOADER, TRAINER, SERVER = child("loader", 11), child("trainer", 12), child("server", 13, "leak")


def truth(leak: Ending = "stopped", hits: int = 0, **endings: Ending) -> Truth:
    return Truth(
        go=GO,
        onset=GO.plus(20.0),
        limit=GO.plus(70.0),
        fates=(
            Fate(LOADER, endings.get("loader", "alive"), 30 * MB),
            Fate(TRAINER, endings.get("trainer", "alive"), 90 * MB),
            Fate(SERVER, leak, 190 * MB, hits),
        ),
    )


CONTROL = replace(
    truth(), fates=(*truth().fates[:2], Fate(replace(SERVER, role="neighbour"), "alive", 50 * MB))
)


def scope(one: Child) -> Scope:
    return Scope("container", "main", "node-1", one.device)


def suspicion(
    one: Child, at_s: float, end_s: float | None = None, state: SuspicionState = "suspect"
) -> Message:
    exhaustion = None
    if end_s is not None:
        exhaustion = Exhaustion(
            time=GO.plus(end_s), low=GO.plus(end_s - 4.0), high=GO.plus(end_s + 4.0)
        )
    return Suspicion(
        scope=scope(one),
        time=GO.plus(at_s),
        state=state,
        source=Source(partition=0, offset=1),
        exhaustion=exhaustion,
    )


def incident(one: Child, at_s: float = 52.0) -> Message:
    return Incident(
        id=f"incident-{one.name}",
        scope=scope(one),
        state="open",
        severity="warning",
        opened=GO.plus(at_s),
        sentence=f"{one.name} leaks",
    )


def command(
    one: Child, at_s: float = 66.0, action: Action = "freeze", *, dry_run: bool = False
) -> Message:
    return IsolationCommand(
        id=f"{action}-{one.name}",
        scope=scope(one),
        action=action,
        executor="process",
        generation=1,
        reason="leaks",
        incident=f"incident-{one.name}",
        issued=GO.plus(at_s),
        expires=GO.plus(at_s + 30.0),
        dry_run=dry_run,
    )


def report(
    one: Child, at_s: float = 66.1, action: Action = "freeze", outcome: Outcome = "done"
) -> Message:
    return ExecutionReport(
        command=f"{action}-{one.name}",
        executor="process",
        outcome=outcome,
        detail="frozen in 3 ms" if outcome == "done" else "no such group",
        finished=GO.plus(at_s),
    )


def refusal(one: Child, reason: str) -> Message:
    return Refusal(
        id="r1",
        scope=scope(one),
        incident=f"incident-{one.name}",
        action="freeze",
        reason=reason,
        time=GO.plus(66.0),
    )


def records(*messages: Message) -> list[Envelope]:
    return [Envelope(SUSPICIONS, 0, i, GO, "", message) for i, message in enumerate(messages)]


CAUGHT = (
    suspicion(SERVER, 50.0, 72.0),
    incident(SERVER),
    suspicion(SERVER, 55.0, 70.5),
    command(SERVER),
    report(SERVER),
)


def without(*left_out: type) -> list[Envelope]:
    return records(*(message for message in CAUGHT if not isinstance(message, left_out)))


def test_a_caught_leak_passes_with_its_figures() -> None:
    result = judge(PLAN, truth(), records(*CAUGHT))
    assert result.failures == ()
    assert result.caught
    assert result.lead_s == pytest.approx(3.9)
    assert result.suspected_at == GO.plus(50.0)
    assert result.forecast is not None
    assert result.forecast.error_s == pytest.approx(2.0)
    assert result.forecast.error_percent == pytest.approx(10.0)
    assert result.forecast.covers


def test_a_leak_that_was_ended_before_its_limit_passes_too() -> None:
    ended = (*CAUGHT[:3], command(SERVER, action="reclaim"), report(SERVER, action="reclaim"))
    assert judge(PLAN, truth(leak="killed"), records(*ended)).failures == ()


def test_an_executor_that_had_done_it_already_counts() -> None:
    again = records(*CAUGHT[:4], report(SERVER, outcome="already"))
    assert judge(PLAN, truth(), again).failures == ()


def test_a_second_command_is_what_counts_when_the_first_failed() -> None:
    tried = records(
        *CAUGHT[:4],
        report(SERVER, outcome="failed"),
        command(SERVER, 67.0, "reclaim"),
        report(SERVER, 67.1, "reclaim"),
    )
    result = judge(PLAN, truth(leak="killed"), tried)
    assert result.failures == ()
    assert result.lead_s == pytest.approx(2.9)


@pytest.mark.parametrize(
    ("seen", "told", "failure"),
    [
        (truth(), without(Suspicion), "server was never suspected"),
        (
            truth(),
            [*without(Suspicion), *records(suspicion(SERVER, 50.0))],
            "server was suspected, but its limit was never forecast",
        ),
        (truth(), without(Incident), "server never became an incident"),
        (
            truth(),
            without(IsolationCommand, ExecutionReport),
            "neither freezing nor ending server was ordered",
        ),
        (
            truth(),
            [*without(IsolationCommand, ExecutionReport), *records(refusal(SERVER, "cooldown"))],
            "neither freezing nor ending server was ordered (freeze refused: cooldown)",
        ),
        (
            truth(),
            without(ExecutionReport),
            "freeze of server was not carried out (no executor answered)",
        ),
        (
            truth(),
            [*without(ExecutionReport), *records(report(SERVER, outcome="failed"))],
            "freeze of server was not carried out (failed: no such group)",
        ),
        (
            truth(),
            [*without(ExecutionReport), *records(report(SERVER, 71.0))],
            "freeze of server came 1.0 s after its limit",
        ),
        (truth("alive"), records(*CAUGHT), "server still runs and leaks"),
        (truth("at its limit", 3), records(*CAUGHT), "server died at its limit"),
        (truth("stopped", 3), records(*CAUGHT), "server met its limit 3 times"),
        (truth("ended"), records(*CAUGHT),
         "server ended with exit code None, which nobody asked for"),
        (
            truth(),
            [*without(Incident), *records(incident(SERVER, 12.0))],
            "server became an incident 8.0 s before it leaked",
        ),
        (truth(loader="killed"), records(*CAUGHT), "loader, a healthy neighbour, was killed"),
        (truth(loader="stopped"), records(*CAUGHT), "loader, a healthy neighbour, is stopped"),
        (
            truth(trainer="at its limit"),
            records(*CAUGHT),
            "trainer, a healthy neighbour, died at its limit",
        ),
        (
            truth(),
            records(*CAUGHT, command(TRAINER)),
            "trainer, a healthy neighbour, was acted on",
        ),
        (
            truth(),
            records(*CAUGHT, suspicion(LOADER, 30.0)),
            "loader, a healthy neighbour, was suspected",
        ),
    ],
)  # fmt: skip
def test_each_thing_that_did_not_happen_is_told(
    seen: Truth, told: list[Envelope], failure: str
) -> None:
    result = judge(PLAN, seen, told)
    assert failure in result.failures
    assert not result.kept


def test_only_the_missing_station_is_told() -> None:
    assert judge(PLAN, truth(), without(ExecutionReport)).failures == (
        "freeze of server was not carried out (no executor answered)",
    )


def test_an_act_on_something_that_is_no_process_of_the_demo_is_a_failure() -> None:
    node = Scope("node", "main", "node-1")
    act = IsolationCommand(
        id="c9", scope=node, action="drain", executor="slurm", generation=1, reason="",
        incident="i9", issued=GO, expires=GO, dry_run=False,
    )  # fmt: skip
    failures = judge(PLAN, truth(), records(*CAUGHT, act)).failures
    assert failures == ("drain was ordered for node-1, which is not the leaking one",)


def test_a_strangers_leak_is_no_failure_as_long_as_nothing_is_done_to_it() -> None:
    stranger = Scope("process", "main", "node-1", "stranger:99:1")
    act = IsolationCommand(
        id="c9", scope=stranger, action="freeze", executor="process", generation=1, reason="",
        incident="i9", issued=GO, expires=GO, dry_run=False,
    )  # fmt: skip

    def answered(outcome: Outcome) -> ExecutionReport:
        return ExecutionReport(
            command="c9", executor="process", outcome=outcome, detail="", finished=GO
        )

    assert judge(PLAN, truth(), records(*CAUGHT, act, answered("refused"))).failures == ()
    assert judge(PLAN, truth(), records(*CAUGHT, act, answered("done"))).failures == (
        "freeze was ordered for stranger (pid 99) on node-1, which is not the leaking one",
    )


def test_telling_people_releasing_and_dry_runs_are_no_acts() -> None:
    harmless = (
        command(LOADER, action="notify"),
        command(LOADER, action="release"),
        command(LOADER, dry_run=True),
        suspicion(LOADER, 30.0, state="healthy"),
    )
    assert judge(PLAN, truth(), records(*CAUGHT, *harmless)).failures == ()


def test_hard_neighbours_may_be_suspected_but_not_acted_on() -> None:
    hard = replace(PLAN, hard=True)
    suspected = judge(hard, truth(), records(*CAUGHT, suspicion(TRAINER, 40.0)))
    assert (suspected.failures, suspected.neighbours_suspected) == ((), ("trainer",))
    acted_on = judge(hard, truth(), records(*CAUGHT, suspicion(TRAINER, 40.0), command(TRAINER)))
    assert acted_on.failures == ("trainer, a healthy neighbour, was acted on",)


def test_a_control_run_passes_while_nothing_is_opened() -> None:
    result = judge(NO_LEAK, CONTROL, [])
    assert (result.failures, result.mode, result.caught) == ((), "no leak", False)


def test_a_control_run_fails_once_for_each_incident() -> None:
    opened = records(incident(LOADER), incident(LOADER), incident(TRAINER))
    assert judge(NO_LEAK, CONTROL, opened).failures == (
        "an incident was opened though nothing leaks: loader leaks",
        "an incident was opened though nothing leaks: trainer leaks",
    )


def test_without_acting_the_leak_must_die_at_its_limit() -> None:
    died = judge(PLAN, truth("at its limit", 5), without(ExecutionReport), acting=False)
    assert (died.failures, died.mode) == ((), "no act")
    lived = judge(PLAN, truth("alive"), [], acting=False)
    assert lived.failures == ("server runs; left alone it should have died at its limit",)


def test_without_acting_nothing_may_be_carried_out() -> None:
    failures = judge(PLAN, truth("at its limit", 5), records(*CAUGHT), acting=False).failures
    assert failures == (f"freeze was carried out on {scope(SERVER).label} though acting was off",)


def test_a_child_is_meant_by_its_cgroup_and_as_a_process_and_by_nothing_else() -> None:
    scopes = {
        Scope("container", "main", "node-1", SERVER.device): True,
        Scope("process", "main", "node-1", SERVER.process): True,
        Scope("container", "main", "node-1", SERVER.device + "0"): False,
        Scope("process", "main", "node-1", SERVER.device): False,
        Scope("node", "main", "node-1"): False,
    }
    assert {one: means(one, SERVER) for one in scopes} == scopes


def test_the_summary_tells_every_station_in_seconds_after_go() -> None:
    result = judge(PLAN, truth(), records(*CAUGHT))
    forecast = (
        "72.0 s  between 68.0 s and 76.0 s, made at 50.0 s; "
        "+2.0 s against the truth (+10 % of the time left), the interval covers it"
    )
    assert summary(PLAN, result) == [
        "seed 7 (plain)",
        "onset               20.0 s  server begins to leak",
        "first suspicion     50.0 s  30.0 s after the onset",
        f"forecast            {forecast}",
        "incident            52.0 s  server leaks",
        "command             66.0 s  freeze container /farside-demo-1-7/server on node-1",
        "execution           66.1 s  done: frozen in 3 ms",
        "limit               70.0 s  would have been met (200 MB); server is stopped before it",
        "lead time            3.9 s before the limit",
        "neighbours        2 of 2 run on; suspected: none; acted on: none",
    ]


def test_the_summary_of_a_missed_leak_ends_with_what_was_not_so() -> None:
    lines = summary(PLAN, judge(PLAN, truth("at its limit", 3), []))
    assert [line for line in lines if line.startswith("NOT SO")] == [
        "NOT SO: server was never suspected",
        "NOT SO: server never became an incident",
        "NOT SO: neither freezing nor ending server was ordered",
        "NOT SO: server died at its limit",
    ]


def test_the_figures_are_plain_values_in_seconds() -> None:
    result: Result = judge(PLAN, truth(), records(*CAUGHT))
    told = figures(result)
    assert (told["suspected_s"], told["executed_s"], told["action"]) == (50.0, 66.1, "freeze")
    assert set(map(type, told.values())) <= {int, float, str, bool, list, type(None)}
