"""What the scorer says of a cell, record by record."""

import pytest

from bus.messages import Message, Reject, SampleBatch, Suspicion, Watermark
from bus.samples import Sample
from bus.topics import TELEMETRY
from bus.transport import Envelope
from detector.outputs import Output
from tests.unit.detector.cells import (
    BEGIN,
    MB,
    Node,
    envelopes,
    flat,
    leak,
    run_of,
    sawtooth,
    scorer,
)

LEAKING = "/jobs/1@11"
HEALTHY = "/jobs/2@12"


def suspicions(outputs: list[Output]) -> list[Suspicion]:
    return [one.message for one in outputs if isinstance(one.message, Suspicion)]


def rejects(outputs: list[Output]) -> list[Reject]:
    return [one.message for one in outputs if isinstance(one.message, Reject)]


def leaking_node(**parts: object) -> Node:
    return Node(
        containers={
            LEAKING: (leak(40 * MB, 4 * MB, 20.0), 240 * MB),
            HEALTHY: (sawtooth(60 * MB, 150 * MB, 13.0), 252 * MB),
        },
        **parts,  # type: ignore[arg-type]
    )


class TestLeaks:
    def test_a_leak_is_suspected_and_forecast_before_its_limit_and_nothing_else_is(self) -> None:
        found = suspicions(scorer().step(envelopes(run_of([leaking_node()], 69.0))))
        assert {one.scope.name for one in found} == {LEAKING}
        first = found[0]
        assert first.state == "suspect"
        assert first.exhaustion is not None
        assert first.exhaustion.low < BEGIN.plus(70.0) < first.exhaustion.high
        assert abs(first.exhaustion.time.since(BEGIN) - 70.0) < 2.0

    def test_near_its_limit_the_evidence_grows(self) -> None:
        found = suspicions(scorer().step(envelopes(run_of([leaking_node()], 69.0))))
        assert found[0].score < 3.0 < found[-1].score
        assert "near_limit" in {part.signal for part in found[-1].contributions}

    def test_a_suspicion_ends_when_what_was_suspected_ends(self) -> None:
        node = leaking_node()
        records = run_of([node], 60.0)
        del node.containers[LEAKING]
        records += [(at + 0.01, node.batch(at)) for at in range(60, 75)]
        found = suspicions(scorer().step(envelopes(records)))
        assert found[-1].state == "healthy"

    def test_a_node_that_booted_anew_begins_afresh(self) -> None:
        node = leaking_node()
        records = run_of([node], 60.0)
        node.boot, node.start, node.sequence = "boot-2", "start-2", 0
        records += [(at + 0.01, node.batch(at)) for at in range(60, 65)]
        found = suspicions(scorer().step(envelopes(records)))
        assert (found[-1].state, found[-1].boot) == ("healthy", "boot-2")

    def test_a_container_without_a_limit_is_never_forecast(self) -> None:
        node = Node(
            more=lambda at: [
                Sample("container_memory_unreclaimable_bytes", LEAKING, 40 * MB + at * 4 * MB),
            ]
        )
        assert suspicions(scorer().step(envelopes(run_of([node], 69.0)))) == []

    @pytest.mark.parametrize("phase_s", [0.0, 0.2, 0.4, 0.6, 0.8, 0.95])
    @pytest.mark.parametrize("period_s", [25.3, 27.0, 33.0, 47.0, 60.0])
    def test_a_slow_tooth_is_never_forecast_to_end_within_the_time_that_an_act_takes(
        self,
        period_s: float,
        phase_s: float,
    ) -> None:
        """A tooth of 1.2 times its peak as limit: the fall before it is no swing on top of it."""

        def tooth(at: float) -> float:
            return 50 * MB + 55 * MB * (((at + phase_s) / period_s) % 1.0)

        node = Node(containers={HEALTHY: (tooth, 1.2 * 105 * MB)})
        records = run_of([node], 3 * period_s, period_s=0.5)
        found = suspicions(scorer(period_s=0.5, lateness_s=2.0).step(envelopes(records)))
        left_s = [one.exhaustion.low.since(one.time) for one in found if one.exhaustion]
        assert min(left_s, default=60.0) > 4.0


class TestArrival:
    def test_a_repeated_batch_changes_nothing(self) -> None:
        records = run_of([leaking_node()], 69.0)
        twice = [record for record in records for _ in range(2)]
        core = scorer()
        found = suspicions(core.step(envelopes(twice)))
        assert [(one.time, one.score) for one in found] == [
            (one.time, one.score) for one in suspicions(scorer().step(envelopes(records)))
        ]
        assert core.counts["duplicate"] == 69

    def test_a_batch_that_comes_too_late_is_counted_and_dropped(self) -> None:
        node, other = Node(), Node(name="n2")
        records = run_of([node, other], 20.0)
        late = records.pop(6)
        core = scorer()
        core.step(envelopes([*records, (late[0] + 20.0, late[1])]))
        assert core.counts["late"] == 1

    def test_a_clock_that_is_an_hour_ahead_is_corrected_by_the_logs_time(self) -> None:
        node = leaking_node()
        records = [
            (at, _moved(message, 3600.0)) if isinstance(message, SampleBatch) else (at, message)
            for at, message in run_of([node], 69.0)
        ]
        core = scorer()
        found = suspicions(core.step(envelopes(records)))
        assert abs(found[0].exhaustion.time.since(BEGIN) - 70.0) < 2.0  # type: ignore[union-attr]
        assert core.counts["skewed"] == 69

    def test_a_clock_that_is_steadily_behind_is_corrected_as_well(self) -> None:
        node = leaking_node()
        records = [
            (at, _moved(message, -600.0)) if isinstance(message, SampleBatch) else (at, message)
            for at, message in run_of([node], 69.0)
        ]
        found = suspicions(scorer().step(envelopes(records)))
        assert abs(found[0].exhaustion.time.since(BEGIN) - 70.0) < 2.0  # type: ignore[union-attr]

    def test_a_restarted_agent_counts_anew(self) -> None:
        node = leaking_node()
        records = run_of([node], 40.0)
        node.start, node.sequence = "start-2", 0
        records += [(at + 0.01, node.batch(at)) for at in range(40, 69)]
        core = scorer()
        found = suspicions(core.step(envelopes(records)))
        assert found
        assert "duplicate" not in core.counts


def _moved(batch: SampleBatch, by_s: float) -> SampleBatch:
    return SampleBatch(
        cluster=batch.cluster,
        node=batch.node,
        boot=batch.boot,
        start=batch.start,
        sequence=batch.sequence,
        time=batch.time.plus(by_s),
        samples=batch.samples,
    )


class TestBadInput:
    @pytest.mark.parametrize(
        ("node", "samples", "reason"),
        [
            (Node(name="n\x1b[2J"), [Sample("memory_total_bytes", "", 1.0)], "bad node name"),
            (Node(name=""), [Sample("memory_total_bytes", "", 1.0)], "bad node name"),
            (Node(), [], "empty batch"),
            (Node(), [Sample("memory_total_bytes", "", 1.0)] * 100_000, "too many samples"),
            (Node(), [Sample("memory_total_bytes", "", float("nan"))], "not a number"),
            (Node(), [Sample("memory_total_bytes", "", float("inf"))], "not a number"),
        ],
    )
    def test_a_bad_batch_is_kept_as_a_reject_with_its_reason(
        self,
        node: Node,
        samples: list[Sample],
        reason: str,
    ) -> None:
        core = scorer()
        outputs = core.step(envelopes([(0.0, node.send(0.0, samples))]))
        assert [one.reason for one in rejects(outputs)] == [reason]
        assert core.counts[f"rejected: {reason}"] == 1

    @pytest.mark.parametrize("years", [-1000, 1000])
    def test_a_time_a_thousand_years_off_is_rejected(self, years: int) -> None:
        batch = _moved(Node().batch(0.0), years * 365 * 86_400.0)
        outputs = scorer().step(envelopes([(0.0, batch)]))
        assert [one.reason for one in rejects(outputs)] == ["impossible time"]

    def test_a_name_of_a_megabyte_costs_that_sample_and_no_other(self) -> None:
        node = leaking_node(more=lambda _: [Sample("m" * 900_000, "", 1.0)])
        core = scorer()
        found = suspicions(core.step(envelopes(run_of([node], 69.0))))
        assert {one.scope.name for one in found} == {LEAKING}
        assert core.counts["rejected: unknown signal"] >= 1

    def test_what_is_no_number_does_not_hide_the_numbers_beside_it(self) -> None:
        nan = Sample("memory_swap_used_bytes", "", float("nan"))
        node = leaking_node(more=lambda _: [nan])
        outputs = scorer().step(envelopes(run_of([node], 69.0)))
        assert {one.scope.name for one in suspicions(outputs)} == {LEAKING}
        assert {one.reason for one in rejects(outputs)} == {"not a number"}

    def test_a_record_that_could_not_be_decoded_is_passed_on_and_counted(self) -> None:
        place = run_of([Node()], 1.0)
        reject = Reject(
            reason="no message",
            source={"partition": 0, "offset": 0},  # type: ignore[arg-type]
            first_bytes=b"\xc1",
            size=1,
            time=BEGIN,
        )
        core = scorer()
        outputs = core.step([Envelope(TELEMETRY, 0, 0, BEGIN, "", reject), *envelopes(place)])
        assert rejects(outputs) == [reject]
        assert core.counts["kept"] == 1


class TestRules:
    def test_a_gpu_off_the_bus_is_degraded_on_arrival(self) -> None:
        node = Node()
        records = run_of([node], 5.0)
        xid = {"kind": "xid", "code": "79", "severity": "fatal", "device": "0000:44:00"}
        records.append((5.1, node.line(5.0, "NVRM: Xid 79, fallen off the bus", **xid)))
        found = suspicions(scorer().step(envelopes(records)))
        assert [(one.scope.kind, one.state) for one in found] == [("node", "degraded")]
        assert max(found[0].p_bad, key=lambda fault: found[0].p_bad[fault]) == "gpu_off_bus"

    def test_a_line_that_clears_takes_its_fault_back(self) -> None:
        node = Node()
        records = [
            *run_of([node], 5.0),
            (5.1, node.line(5.0, "nfs: server not responding", kind="nfs", severity="error")),
            (8.1, node.line(8.0, "nfs: server OK", kind="nfs", clears="nfs")),
        ]
        found = suspicions(scorer().step(envelopes(records)))
        assert [one.state for one in found] == ["suspect", "healthy"]

    def test_an_oom_kill_belongs_to_the_container_whose_limit_it_was(self) -> None:
        node = leaking_node()
        records = run_of([node], 5.0)
        oom = {"kind": "oom_kill", "severity": "error", "cgroup": "/jobs/1/worker"}
        records.append((5.1, node.line(5.0, "Memory cgroup out of memory", **oom)))
        found = suspicions(scorer().step(envelopes(records)))
        assert [(one.scope.kind, one.scope.name) for one in found] == [("container", LEAKING)]

    def test_evidence_of_a_line_ends_after_its_time(self) -> None:
        node = Node()
        records = run_of([node], 5.0)
        records.append((5.1, node.line(5.0, "hung", kind="hung_task", severity="error")))
        records += [(at + 0.01, node.batch(at)) for at in range(6, 620)]
        found = suspicions(scorer().step(envelopes(records)))
        assert found[-1].state == "healthy"


class TestSilence:
    def test_one_node_of_five_that_falls_silent_is_suspected_within_twelve_seconds(self) -> None:
        nodes = [Node(name=f"n{n}") for n in range(5)]
        records = run_of(nodes, 60.0, silent=lambda node, at: node.name == "n3" and at > 30.0)
        found = suspicions(scorer().step(envelopes(records)))
        assert {(one.scope.kind, one.scope.node) for one in found} == {("node", "n3")}
        assert found[0].time.since(BEGIN) <= 30.0 + 12.0
        assert "silence" in found[0].p_bad

    def test_a_whole_cell_that_falls_silent_is_one_fault_of_telemetry(self) -> None:
        nodes = [Node(name=f"n{n}") for n in range(5)]
        records = run_of(nodes, 60.0, silent=lambda _node, at: at > 30.0)
        found = suspicions(scorer().step(envelopes(records)))
        assert next(one.scope.kind for one in found if one.state != "healthy") == "cell"
        assert {one.scope.kind for one in found} == {"cell"}
        assert found[0].time.since(BEGIN) <= 30.0 + 12.0

    def test_a_log_that_stood_still_makes_nobody_silent(self) -> None:
        nodes = [Node(name=f"n{n}") for n in range(5)]
        records = run_of(nodes, 30.0)
        records += [(at + 300.0, _later(message, 300.0)) for at, message in run_of(nodes, 30.0)]
        assert suspicions(scorer().step(envelopes(records))) == []

    def test_a_node_that_comes_back_is_healthy_again(self) -> None:
        nodes = [Node(name=f"n{n}") for n in range(5)]
        records = run_of(
            nodes,
            90.0,
            silent=lambda node, at: node.name == "n3" and 30.0 < at < 60.0,
        )
        found = suspicions(scorer().step(envelopes(records)))
        assert found[-1].state == "healthy"


def _later(message: Message, by_s: float) -> Message:
    return _moved(message, by_s) if isinstance(message, SampleBatch) else message


class TestTime:
    def test_watermarks_come_at_least_once_a_second_and_tell_how_far_the_cell_is_judged(
        self,
    ) -> None:
        outputs = scorer().step(envelopes(run_of([Node()], 10.0)))
        marks = [one.message for one in outputs if isinstance(one.message, Watermark)]
        seconds = {mark.head_time // 10**9 for mark in marks}
        assert len(seconds) == 10
        assert marks[-1].time.since(BEGIN) == 10.0

    def test_a_slow_node_holds_a_frame_up_only_as_long_as_lateness_allows(self) -> None:
        nodes = [Node(name="n1"), Node(name="n2")]
        records = run_of(nodes, 30.0, silent=lambda node, at: node.name == "n2" and at > 5.0)
        outputs = scorer(lateness_s=2.0).step(envelopes(records))
        marks = [one.message for one in outputs if isinstance(one.message, Watermark)]
        assert max(m.head_time.since(m.time) for m in marks) <= 4.0

    def test_a_collector_that_does_not_answer_is_told(self) -> None:
        node = Node(
            more=lambda at: [
                Sample("collector_success", "memory", 1.0),
                Sample("collector_success", "disk", 0.0 if 5.0 < at < 12.0 else 1.0),
            ]
        )
        found = suspicions(scorer().step(envelopes(run_of([node], 30.0))))
        assert [
            (one.state, one.contributions[0].device if one.contributions else "") for one in found
        ] == [("suspect", "disk"), ("healthy", "")]

    def test_memory_that_runs_out_fast_is_told_without_any_trend(self) -> None:
        available = leak(3e9, -120 * MB, 10.0)
        found = suspicions(scorer().step(envelopes(run_of([Node(available=available)], 30.0))))
        assert "memory_exhaustion" in found[0].p_bad
        assert found[0].time.since(BEGIN) < 25.0

    def test_plenty_of_memory_is_nothing_to_tell(self) -> None:
        assert (
            suspicions(scorer().step(envelopes(run_of([Node(available=flat(2e10))], 60.0)))) == []
        )
