"""The one sentence that goes with each decision, as people read it."""

import msgspec
import pytest

from bus.messages import Contribution, Exhaustion, Fault, Scope, Suspicion
from detector import explain
from tests.unit.detector.stage import JAIL, LEAK, at, leak, trouble

NODE = Scope("node", "c1", "gpu-07")
MIB = 1 << 20


def of(suspicion: Suspicion, second: float = 10.0, fault: Fault = "memory_leak") -> str:
    return explain.sentence(suspicion.scope, fault, suspicion, at(second))


def forecast(best_s: float, low_s: float, high_s: float, limit: float, growth: float) -> Exhaustion:
    return Exhaustion(
        time=at(10 + best_s),
        low=at(10 + low_s),
        high=at(10 + high_s),
        used=limit / 2,
        limit=limit,
        growth=growth,
    )


def test_a_leaking_process() -> None:
    soon = forecast(6, 5, 7, 214 * MIB, 3.1 * MIB)
    assert of(leak(10, exhaustion=soon)) == (
        "trainer (pid 4242) on gpu-07: private memory grows 3.1 MiB/s without a pause for 26 s and "
        "reaches its limit of 214 MiB in 6 s (5\u20137 s)"
    )


def test_a_leaking_container() -> None:
    later = forecast(7200, 5400, 10800, 64 * 1024 * MIB, 0.5 * MIB)
    assert of(leak(10, scope=JAIL, exhaustion=later)) == (
        "container /jobs/7 on gpu-07: memory that can't be taken back grows 512 KiB/s without a "
        "pause for 26 s and reaches its limit of 64 GiB in 2 h (1 h 30 min \u2013 3 h)"
    )


def test_a_leaking_node() -> None:
    later = forecast(7200, 7100, 7300, 2000 * 1024 * MIB, 30 * MIB)
    assert "reaches the node's 2.0 TiB in 2 h" in of(leak(10, scope=NODE, exhaustion=later))


def test_time_that_has_passed_since_the_forecast_is_taken_off() -> None:
    assert "in 16 s (15\u201317 s)" in of(leak(10, left_s=30), 25)


def test_at_its_limit_no_time_is_told() -> None:
    assert of(leak(10, left_s=3), 15).endswith("and is at its limit of 200 MiB")


def test_a_leak_without_a_forecast() -> None:
    assert of(leak(10, exhaustion=None)) == (
        "trainer (pid 4242) on gpu-07: private memory grows without a pause for 26 s"
    )


def test_further_evidence_is_told_and_nearness_is_not_told_twice() -> None:
    pressure = Contribution(
        signal="memory_pressure", nats=4.0, text="all work waits for memory 23 % of the time"
    )
    base = leak(10, near=True)
    suspicion = msgspec.structs.replace(base, contributions=(pressure, *base.contributions))
    assert of(suspicion).endswith("; all work waits for memory 23 % of the time")


@pytest.mark.parametrize(
    ("fault", "text", "sentence"),
    [
        ("silence", "nothing heard for 12 s", "gpu-07: nothing heard for 12 s"),
        ("gpu_off_bus", "NVRM: Xid 79", "gpu-07: NVRM: Xid 79"),
        ("memory_exhaustion", "Out of memory: Killed", "gpu-07: Out of memory: Killed"),
        ("disk", "", "gpu-07: a disk fails"),
    ],
)
def test_other_faults_speak_through_their_evidence(fault: Fault, text: str, sentence: str) -> None:
    assert of(trouble(10, fault, scope=NODE, text=text), fault=fault) == sentence


def test_the_strongest_evidence_comes_first_and_each_piece_once() -> None:
    parts = tuple(
        Contribution(signal="s", nats=nats, text=text)
        for nats, text in ((1.0, "weak"), (9.0, "strong"), (2.0, "weak"))
    )
    suspicion = msgspec.structs.replace(trouble(10, "disk", scope=NODE), contributions=parts)
    assert of(suspicion, fault="disk") == "gpu-07: strong; weak"


def test_no_sentence_holds_a_score() -> None:
    text = of(leak(10, score=5.123, p_bad={"memory_leak": 0.987}))
    assert "5.1" not in text
    assert "0.98" not in text


def test_names_from_anybody_stay_on_one_line() -> None:
    odd = Scope("process", "c1", "gpu-07", "a\nb\x1b[31m:4242:99")
    assert of(leak(10, scope=odd)).startswith("a\\x0ab\\x1b[31m (pid 4242) on gpu-07: private")


def test_a_very_long_name_leaves_room_for_the_facts() -> None:
    long = Scope("container", "c1", "gpu-07", f"/{'x' * 4000}@7")
    sentence = of(leak(10, scope=long))
    assert len(sentence) <= explain.SENTENCE_CHARS_MAX
    assert "reaches its limit of 200 MiB" in sentence


def test_a_second_look_is_mentioned_with_its_growth() -> None:
    assert explain.also_seen(leak(10, scope=LEAK)) == (
        "also seen: trainer (pid 4242) on gpu-07, growing 10 MiB/s"
    )
