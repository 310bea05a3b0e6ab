"""Whatever happens, in whatever grouping, with restarts and repeats: the same results, in bounds.

A play is drawn: which scopes leak, how near their limits are, when time passes, what executors
answer. It is played once with its reports, then the very same records again under disturbance.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.messages import Directive, ExecutionReport, IsolationCommand, Outcome, Scope
from detector.deciding import ActRule, DeciderSettings
from detector.outputs import Output
from tests.unit.detector.stage import Stage, at, kept, leak, trouble, well

NODES = ("n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8")
SCOPES = (
    *(Scope("process", "c1", node, "leaky:7:9") for node in NODES),
    *(Scope("container", "c1", node, "/jobs/1@5") for node in NODES[:3]),
    *(Scope("container", "c1", node, "/jobs/1/step@6") for node in NODES[:2]),
    *(Scope("node", "c1", node) for node in NODES[:3]),
)
ACT = {"memory_leak": {"default": ActRule(actions=("freeze", "reclaim", "hold"))}}
TIGHT = DeciderSettings(
    quiet_s=40.0,
    hold_s=200.0,
    cooldown_s=5.0,
    command_ttl_s=5.0,
    answer_s=5.0,
    acts_per_hour=120.0,
    held_percent=40.0,
    held_max=2,
)


class Move(NamedTuple):
    """One thing that happens, `after_s` after the last."""

    what: Literal["leaks", "fails", "is well", "time", "answer", "said twice", "order"]
    after_s: float
    scope: Scope
    left_s: float
    wide: bool
    outcome: Outcome
    which: int


MOVES = st.builds(
    Move,
    what=st.sampled_from(get_args(Move.__annotations__["what"]))
    | st.sampled_from(["leaks", "time", "answer"]),
    after_s=st.sampled_from([0.0, 0.5, 1.0, 3.0, 20.0, 70.0]),
    scope=st.sampled_from(SCOPES),
    left_s=st.sampled_from([-1.0, 0.5, 2.0, 2.0, 9.0, 500.0]),
    wide=st.booleans(),
    outcome=st.sampled_from(get_args(Outcome)),
    which=st.integers(0, 3),
)
PLAYS = st.lists(MOVES, min_size=5, max_size=60)


def played(moves: list[Move]) -> Stage:
    """Play once; answers go to commands that were really issued."""
    stage = Stage(ACT, TIGHT, executors=("process", "slurm"))
    stage.know(*NODES[:5])
    second = 10.0
    for number, move in enumerate(moves):
        second += move.after_s
        _play(stage, move, number, second)
    return stage


def _play(stage: Stage, move: Move, number: int, second: float) -> None:
    widths = (1.0, 5.0) if move.wide else (1.0,)
    commands = kept(stage.said, IsolationCommand)[-4:]
    if move.what == "leaks":
        stage.suspect(
            leak(second, scope=move.scope, left_s=move.left_s, widths=widths, near=move.wide)
        )
    elif move.what == "fails":
        stage.suspect(trouble(second, "memory_exhaustion", scope=move.scope, text="oom"))
    elif move.what == "is well":
        stage.suspect(well(second, move.scope))
    elif move.what in {"answer", "said twice"} and commands:
        command = commands[move.which % len(commands)]
        stage.report(command, move.outcome, second=second, detail=f"answer {number}")
        if move.what == "said twice":
            stage.take(stage.played[-1])
    elif move.what == "order":
        scope = commands[-1].scope if commands else move.scope
        kind = ("stop_everything", "lift", "release", "release")[move.which]
        stage.order(
            Directive(id=f"d{number}", who="ada", kind=kind, scope=scope, time=at(second))  # type: ignore[arg-type]
        )
    stage.pass_to(second)


@given(PLAYS, st.data())
@settings(max_examples=40)
def test_grouping_and_restarts_and_repeats_change_nothing(
    moves: list[Move], data: st.DataObject
) -> None:
    stage = played(moves)
    decider, outputs = stage.fresh(), []
    place = 0
    while place < len(stage.played):
        size = data.draw(st.integers(1, 12))
        outputs += decider.step(stage.played[place : place + size])
        back = data.draw(st.integers(0, 6))
        outputs += decider.step(stage.played[max(place + size - back, 0) : place + size])
        place += size
        if data.draw(st.booleans()):
            saved = decider.save()
            decider = stage.fresh()
            decider.load(*saved)
    assert outputs == stage.said
    assert decider.save()[0] == _but_for_repeats(stage, decider.counts)


def _but_for_repeats(stage: Stage, counts: dict[str, int]) -> bytes:
    """Return the state of the undisturbed play with the disturbed one's counts."""
    stage.decider.counts.clear()
    stage.decider.counts.update(counts)
    return stage.decider.save()[0]


@given(PLAYS)
@settings(max_examples=40)
def test_budgets_are_never_exceeded(moves: list[Move]) -> None:
    stage = played(moves)
    wishes = [
        command for command in kept(stage.said, IsolationCommand) if command.action != "release"
    ]
    # What an executor refused touched nobody and gave its token back.
    refused = {
        envelope.message.command
        for envelope in stage.played
        if isinstance(envelope.message, ExecutionReport) and envelope.message.outcome == "refused"
    }
    acts = [command for command in wishes if command.id not in refused]
    for place, first in enumerate(acts):
        for number, last in enumerate(acts[place:], start=1):
            hours = last.issued.since(first.issued) / 3600
            assert number <= TIGHT.burst + TIGHT.acts_per_hour * hours + 1e-6
    assert len({command.id for command in wishes}) == len(wishes)
    for held in _held_after_each(stage):
        assert len(held) <= TIGHT.held_max
        assert len({scope.node for scope in held}) <= 4  # 40 % of at most 9 nodes, rounded up


def _held_after_each(stage: Stage) -> Iterator[set[Scope]]:
    """Replay, and after each record yield what any executor may be holding by the rules."""
    decider = stage.fresh()
    for envelope in stage.played:
        decider.step([envelope])
        state = msgspec.msgpack.decode(decider.save()[0])
        yield {
            Scope(**case["scope"])
            for here in state["cases"].values()
            for case in here.values()
            if case["held_until"] is not None
        }


@given(PLAYS)
@settings(max_examples=30)
def test_what_is_closed_is_told_once_and_never_heard_of_again(moves: list[Move]) -> None:
    ended: set[str] = set()
    for output in _incidents(played(moves).said):
        assert output.message.id not in ended  # type: ignore[union-attr]
        if output.message.state == "closed":  # type: ignore[union-attr]
            ended.add(output.message.id)  # type: ignore[union-attr]


def _incidents(outputs: list[Output]) -> list[Output]:
    return [output for output in outputs if output.topic == "farside.incidents"]
