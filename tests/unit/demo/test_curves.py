"""The shapes that the demo's processes follow."""

from farside.demo.curves import LEAK, PAGECACHE, SAWTOOTH, STEADY, WARMUP, Curve


def test_a_leak_is_flat_until_its_onset_and_then_grows_past_its_limit() -> None:
    curve = Curve(LEAK, 100, 50, start_s=10.0, span_s=5.0, rate_bytes_s=10.0)
    assert [curve.private_bytes(at) for at in (0.0, 10.0, 15.0, 20.0)] == [100, 100, 150, 200]
    assert curve.peak_bytes() == 150


def test_a_sawtooth_drops_at_its_start_and_once_a_period_before_and_after() -> None:
    curve = Curve(SAWTOOTH, 100, 40, start_s=8.0, span_s=4.0, rate_bytes_s=0.0)
    assert [curve.private_bytes(at) for at in (0.0, 2.0, 4.0, 7.0, 8.0, 11.0, 12.0)] == [
        100, 120, 100, 130, 100, 130, 100,
    ]  # fmt: skip


def test_a_warmup_covers_63_percent_of_its_way_in_one_time_constant_and_never_passes_it() -> None:
    curve = Curve(WARMUP, 100, 1000, start_s=1.0, span_s=5.0, rate_bytes_s=0.0)
    assert [curve.private_bytes(at) for at in (1.0, 6.0, 1000.0)] == [100, 732, 1100]


def test_the_page_cache_grows_in_file_pages_alone_and_stops_at_the_files_size() -> None:
    curve = Curve(PAGECACHE, 100, 50, start_s=1.0, span_s=5.0, rate_bytes_s=10.0)
    assert [curve.private_bytes(at) for at in (0.0, 3.0, 99.0)] == [100, 100, 100]
    assert [curve.file_bytes(at) for at in (0.0, 3.0, 99.0)] == [0, 20, 50]
    assert (curve.value(3.0), curve.total_bytes(3.0), curve.private_peak_bytes()) == (20, 120, 100)


def test_a_steady_one_stays() -> None:
    curve = Curve(STEADY, 100, 0, start_s=1.0, span_s=5.0, rate_bytes_s=0.0)
    assert {curve.value(float(at)) for at in range(100)} == {100}
