"""However records are grouped, repeated, reordered or interrupted, the judgement is the same."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from bus.messages import Message, Suspicion, Tick
from bus.topics import SUSPICIONS
from bus.transport import Envelope
from detector.outputs import Output
from detector.scorer import Scorer
from tests.unit.detector.cells import BEGIN, MB, Node, envelopes, leak, run_of, sawtooth, scorer

LATENESS_S = 5.0


def records() -> list[tuple[float, Message]]:
    """Return 75 s of two nodes: one leaks, a line tells of a hung task."""
    leaking = Node(containers={"/a@1": (leak(40 * MB, 4 * MB, 20.0), 240 * MB)})
    other = Node(name="n2", containers={"/b@2": (sawtooth(60 * MB, 150 * MB, 9.0), 260 * MB)})

    def hung(at: float) -> list[tuple[float, Message]]:
        fields = {"kind": "hung_task", "severity": "error"}
        return [(at + 0.3, leaking.line(at + 0.2, "task x blocked", **fields))] if at == 40 else []

    found = run_of([leaking, other], 69.0, also=hung)
    return sorted(found, key=lambda one: one[0])


def settled(log: list[tuple[float, Message]]) -> list[Envelope]:
    """Let the log's time go on after the last record until every frame has closed."""
    ticks = [(at, Tick(cell="cell", time=BEGIN.plus(at))) for at in (72.5, 73.5, 74.5, 75.5)]
    return envelopes([*log, *ticks])


RECORDS = records()


def judged(outputs: list[Output]) -> list[Suspicion]:
    return [one.message for one in outputs if isinstance(one.message, Suspicion)]


def essence(outputs: list[Output]) -> set[tuple[object, ...]]:
    """What a suspicion says, without its place in the log.

    What lasts is told again by the log's time, so of that the moment of telling does not count.
    """
    return {
        (
            one.scope,
            one.state,
            one.exhaustion and one.time,
            round(one.score, 6),
            one.since,
            one.exhaustion,
        )
        for one in judged(outputs)
    }


UNDISTURBED = scorer(lateness_s=LATENESS_S).step(envelopes(RECORDS))


def restored(core: Scorer) -> Scorer:
    plain, arrays = core.save()
    fresh = scorer(lateness_s=LATENESS_S)
    fresh.load(plain, arrays)
    return fresh


@given(st.lists(st.integers(0, len(RECORDS)), max_size=12))
@settings(max_examples=12)
def test_grouping_records_into_steps_changes_nothing(cuts: list[int]) -> None:
    core, log = scorer(lateness_s=LATENESS_S), envelopes(RECORDS)
    edges = [0, *sorted(cuts), len(log)]
    outputs = [
        output for begin, end in itertools.pairwise(edges) for output in core.step(log[begin:end])
    ]
    assert outputs == UNDISTURBED


def test_a_restore_after_every_single_record_changes_nothing() -> None:
    core, outputs = scorer(lateness_s=LATENESS_S), []
    for envelope in envelopes(RECORDS):
        outputs += core.step([envelope])
        core = restored(core)
    assert outputs == UNDISTURBED


@given(st.integers(0, len(RECORDS) - 1), st.integers(1, 40))
@settings(max_examples=12)
def test_a_crash_that_repeats_the_last_turn_publishes_the_same_again(at: int, turn: int) -> None:
    core, log = scorer(lateness_s=LATENESS_S), envelopes(RECORDS)
    before = core.step(log[:at])
    saved = restored(core)
    core.step(log[at : at + turn])  # published, then the process died before it saved
    after = saved.step(log[at:])
    assert before + after == UNDISTURBED


def disturbed(delays: list[float], repeats: list[int]) -> list[Envelope]:
    """The same records on a rough way: some overtaken by less than the lateness, some twice."""
    moved = [
        (at + delays[number % len(delays)], message) for number, (at, message) in enumerate(RECORDS)
    ]
    moved += [(moved[n][0] + 0.3, RECORDS[n][1]) for n in repeats]
    return settled(sorted(moved, key=lambda one: one[0]))


@given(
    st.lists(st.sampled_from([0.0, 0.0, 0.4, 1.7, 3.1]), min_size=1, max_size=13),
    st.lists(st.integers(0, len(RECORDS) - 1), max_size=20),
    st.lists(st.integers(0, len(RECORDS)), max_size=3),
)
@settings(max_examples=25)
def test_repeats_delays_and_restores_leave_the_same_suspicions(
    delays: list[float],
    repeats: list[int],
    crashes: list[int],
) -> None:
    core, outputs = scorer(lateness_s=LATENESS_S), []
    for number, envelope in enumerate(disturbed(delays, repeats)):
        outputs += core.step([envelope])
        if number in crashes:
            core = restored(core)
    undisturbed = scorer(lateness_s=LATENESS_S).step(settled(RECORDS))
    assert essence(outputs) == essence(undisturbed)


def test_the_run_has_something_to_judge() -> None:
    scopes = {one.scope.kind for one in judged(UNDISTURBED)}
    assert scopes == {"container", "node"}
    assert all(one.topic == SUSPICIONS for one in UNDISTURBED)
