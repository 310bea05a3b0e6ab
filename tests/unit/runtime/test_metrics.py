import pytest

from runtime.metrics import LabelLimit, Metrics


def test_a_counted_thing_shows_up_in_the_text() -> None:
    metrics = Metrics()
    metrics.counter("farside_batches_total", "Batches seen", ["stage"]).labels(stage="late").inc()
    assert 'farside_batches_total{stage="late"} 1.0' in metrics.text().decode().splitlines()
    assert metrics.value("farside_batches_total", stage="late") == 1
    assert metrics.value("farside_batches_total", stage="kept") == 0


def test_two_registries_do_not_share_a_count() -> None:
    one, other = Metrics(), Metrics()
    one.gauge("farside_lag_seconds", "Lag").set(7)
    other.gauge("farside_lag_seconds", "Lag").set(8)
    assert one.value("farside_lag_seconds") == 7


def test_asking_twice_gives_the_same_metric() -> None:
    metrics = Metrics()
    metrics.histogram("farside_step_seconds", "Step").observe(0.2)
    metrics.histogram("farside_step_seconds", "Step").observe(0.2)
    assert metrics.value("farside_step_seconds_count") == 2


def test_a_name_can_not_be_two_things() -> None:
    metrics = Metrics()
    metrics.gauge("farside_incidents", "Open incidents")
    with pytest.raises(ValueError, match="taken by another kind"):
        metrics.gauge("farside_incidents", "Open incidents", ["severity"])
    with pytest.raises(ValueError, match="taken by another kind"):
        metrics.histogram("farside_incidents", "Open incidents")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("step_seconds", "farside_"),
        ("farside_Step_seconds", "lower-case"),
        ("farside_step_ms", "no base unit"),
        ("farside_seconds_of_step", "comes last"),
    ],
)
def test_a_name_against_the_rules_is_refused(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Metrics().gauge(name, "")


def test_a_counter_ends_in_total() -> None:
    with pytest.raises(ValueError, match="_total"):
        Metrics().counter("farside_read_bytes", "")


def test_our_own_cost_is_told_when_asked_for() -> None:
    assert Metrics(process=True).value("process_resident_memory_bytes") > 0
    assert b"process_" not in Metrics().text()


def test_a_label_from_outside_makes_no_series_without_end() -> None:
    reason = LabelLimit(2)
    assert [reason(value) for value in ("a", "b", "c", "a", "d")] == [
        "a",
        "b",
        "other",
        "a",
        "other",
    ]
    assert reason.folded == 2
