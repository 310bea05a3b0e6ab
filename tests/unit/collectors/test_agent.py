"""The agent: one batch a turn, faults at once, and no collector that spoils it for the others."""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from bus.memory import MemoryBus
from bus.messages import LogLine, Message, SampleBatch
from bus.samples import Sample
from bus.topics import TELEMETRY
from bus.transport import Receipt, Sink
from collectors.agent import Agent, Identity, Settings, identify, until_moment_s
from collectors.base import Collector, FoundLine, Reading
from collectors.spool import Settings as SpoolSettings
from runtime.clock import Clock, Instant, ManualClock, SystemClock
from runtime.errors import Misconfigured, Rejected, Unavailable
from runtime.files import SysTree
from runtime.metrics import Metrics
from runtime.settings import Table, plugin_settings
from runtime.wait import wait_until

WHO = Identity("c1", "n1", "boot", "start")
SOON_S = 20.0
HANGS_AFTER_S = 1.0  # for healthy collectors that answer within milliseconds
PATIENT = Settings(deadline_s=60.0)
PAUSE_S_MAX = Settings().sending.pause_s_max


class Scripted:
    """A collector that does as a test says."""

    def __init__(self, collect: Callable[[Instant], Reading]) -> None:
        self._collect = collect
        self.asked = 0

    def collect(self, now: Instant) -> Reading:
        self.asked += 1
        return self._collect(now)

    def cannot_see(self) -> list[str]:
        return ["something"]


def saying(*samples: tuple[str, str, float], lines: tuple[str, ...] = ()) -> Scripted:
    def collect(now: Instant) -> Reading:
        found = [FoundLine(now, "kernel", text, {"kind": "xid"}) for text in lines]
        return Reading([Sample(*sample) for sample in samples], found)

    return Scripted(collect)


class Outage:
    """A sink that refuses as long as it is told to."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.error: Exception | None = None

    def send(self, topic: str, key: str, message: Message, partition: int = 0) -> Receipt:
        if self.error is not None:
            raise self.error
        return self._sink.send(topic, key, message, partition)

    def flush(self, timeout_s: float) -> None:
        self._sink.flush(timeout_s)

    def close(self, timeout_s: float) -> None:
        self._sink.close(timeout_s)


class Stage:
    """An agent on a bus of its own."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.bus = MemoryBus(clock)
        self.sink = Outage(self.bus.sink())
        self.metrics = Metrics()
        self._source = self.bus.source([TELEMETRY])
        self._agents: list[Agent] = []

    def agent(
        self,
        collectors: Mapping[str, Collector],
        settings: Settings = PATIENT,
        who: Identity = WHO,
        folder: Path | None = None,
    ) -> Agent:
        made = Agent(
            settings,
            collectors,
            who,
            sink=self.sink,
            clock=self.clock,
            metrics=self.metrics,
            folder=folder,
        )
        self._agents.append(made)
        return made

    def advance(self, duration_s: float) -> None:
        assert isinstance(self.clock, ManualClock)
        self.clock.advance(duration_s)

    def sent(self) -> list[Message]:
        """Return what arrived since the last call."""
        return [envelope.message for envelope in self._source.poll(10_000, 0.0)]

    def batch(self) -> SampleBatch:
        (batch,) = [message for message in self.sent() if isinstance(message, SampleBatch)]
        return batch

    def lines(self, timeout_s: float = 0.0) -> list[str]:
        arrived = self._source.poll(10_000, timeout_s)
        return [one.message.text for one in arrived if isinstance(one.message, LogLine)]

    def close(self) -> None:
        for agent in self._agents:
            agent.close()


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage(ManualClock())
    yield made
    made.close()


@pytest.fixture
def live() -> Iterator[Stage]:
    made = Stage(SystemClock())
    yield made
    made.close()


def waiting_records(stage: Stage) -> float:
    name = "farside_spool_records"
    return sum(stage.metrics.value(name, place=place) for place in ("memory", "disk", "flight"))


def values(batch: SampleBatch, metric: str) -> dict[str, float]:
    return {sample.device: sample.value for sample in batch.samples if sample.metric == metric}


def test_a_turn_sends_one_batch_of_what_all_collectors_saw(stage: Stage) -> None:
    agent = stage.agent({"a": saying(("m1", "", 1.0)), "b": saying(("m2", "d", 2.0))})
    now = stage.clock.now()
    agent.gather(now)
    batch = stage.batch()
    assert (batch.cluster, batch.node, batch.boot, batch.start, batch.time) == (*WHO, now)
    assert [tuple(sample) for sample in batch.samples][:2] == [("m1", "", 1.0), ("m2", "d", 2.0)]
    assert values(batch, "collector_success") == {"a": 1.0, "b": 1.0}
    assert set(values(batch, "collector_duration_seconds")) == {"a", "b"}


def test_a_fault_goes_out_before_the_batch_and_shares_its_numbering(stage: Stage) -> None:
    agent = stage.agent({"log": saying(lines=("first", "second"))})
    agent.gather(stage.clock.now())
    agent.gather(stage.clock.now())
    sent = stage.sent()
    kinds = [type(message).__name__ for message in sent]
    numbers = [one.sequence for one in sent if isinstance(one, SampleBatch | LogLine)]
    assert (kinds, numbers) == (["LogLine", "LogLine", "SampleBatch"] * 2, [1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize("error", [Unavailable("away"), ZeroDivisionError("a bug")])
def test_a_collector_that_fails_costs_the_others_nothing(stage: Stage, error: Exception) -> None:
    def fail(_: Instant) -> Reading:
        raise error

    agent = stage.agent({"bad": Scripted(fail), "good": saying(("m", "", 1.0))})
    agent.gather(stage.clock.now())
    agent.gather(stage.clock.now())
    last = [one for one in stage.sent() if isinstance(one, SampleBatch)][-1]
    assert (values(last, "collector_success"), values(last, "m")) == (
        {"bad": 0.0, "good": 1.0},
        {"": 1.0},
    )
    assert stage.metrics.value("farside_collector_failures_total", collector="bad") == 2


class Hanging:
    """A collector that hangs in its first look until it is let go."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.asked = 0

    def collect(self, now: Instant) -> Reading:
        self.asked += 1
        if self.asked > 1:
            return Reading([Sample("m", "", 2.0)], [])
        self.release.wait(SOON_S)
        line = FoundLine(now, "kernel", "seen while hanging", {"kind": "xid"})
        return Reading([Sample("m", "", 1.0)], [line])

    def cannot_see(self) -> list[str]:
        return []


def test_a_collector_that_hangs_is_told_left_alone_and_used_again_when_it_is_back(
    live: Stage,
) -> None:
    hanging = Hanging()
    agent = live.agent(
        {"stuck": hanging, "good": saying(("other", "", 1.0))}, Settings(deadline_s=HANGS_AFTER_S)
    )
    agent.gather(live.clock.now())
    first = live.batch()
    agent.gather(live.clock.now())
    second = live.batch()
    asked_while_hanging = hanging.asked
    hanging.release.set()
    late_lines = live.lines(SOON_S)
    back = wait_until(lambda: _success(agent, live, "stuck"), SOON_S)
    assert [values(one, "collector_success") for one in (first, second)] == [
        {"stuck": 0.0, "good": 1.0}
    ] * 2
    assert [values(one, "other") for one in (first, second)] == [{"": 1.0}] * 2
    assert (asked_while_hanging, late_lines) == (1, ["seen while hanging"])
    assert back is not None
    assert values(back, "m") == {"": 2.0}  # what came too late is not sent as news
    assert live.metrics.value("farside_collector_hangs_total", collector="stuck") == 1


def _success(agent: Agent, stage: Stage, name: str) -> SampleBatch | None:
    agent.gather(stage.clock.now())
    batch = stage.batch()
    return batch if values(batch, "collector_success")[name] == 1.0 else None


def test_the_second_turn_does_not_wait_for_one_that_hangs(live: Stage) -> None:
    hanging = Hanging()
    agent = live.agent({"stuck": hanging}, Settings(deadline_s=HANGS_AFTER_S))
    agent.gather(live.clock.now())
    for _ in range(60):  # a minute, were each of them to wait
        agent.gather(live.clock.now())
    hanging.release.set()
    assert hanging.asked == 1


def test_what_is_no_finite_number_is_not_sent_and_counted(stage: Stage) -> None:
    nan, inf = float("nan"), float("inf")
    agent = stage.agent({"a": saying(("m", "1", nan), ("m", "2", 2.0), ("m", "3", -inf))})
    agent.gather(stage.clock.now())
    assert values(stage.batch(), "m") == {"2": 2.0}
    name = "farside_samples_left_out_total"
    assert stage.metrics.value(name, reason="not a number") == 2


def test_names_with_control_characters_are_made_safe(stage: Stage) -> None:
    who = Identity("c1", "n\x1b[1m1\n", "boot", "start")
    agent = stage.agent({"a": saying(("m", "d\r\x00", 1.0))}, who=who)
    agent.gather(stage.clock.now())
    batch = stage.batch()
    assert (batch.node, values(batch, "m")) == ("n\\x1b[1m1\\x0a", {"d\\x0d\\x00": 1.0})


def test_a_long_name_is_shortened_and_keeps_its_identity(stage: Stage) -> None:
    names = ["/" + "a" * 400 + f"{one}" + "b" * 400 + "@4711" for one in "xy"]
    agent = stage.agent({"a": saying(*(("m", name, 1.0) for name in names))})
    agent.gather(stage.clock.now())
    sent = list(values(stage.batch(), "m"))
    assert [(len(name) <= 256, name[:3], name[-5:]) for name in sent] == [
        (True, "/aa", "@4711")
    ] * 2
    assert len(set(sent)) == 2


def test_samples_beyond_the_limit_are_left_out_counted_and_told(stage: Stage) -> None:
    many = saying(*(("m", f"d{number}", 1.0) for number in range(30)))
    agent = stage.agent({"a": many}, Settings(deadline_s=60.0, samples_max=20))
    agent.gather(stage.clock.now())
    left_out = stage.metrics.value("farside_samples_left_out_total", reason="over the limit")
    assert (len(stage.batch().samples), left_out) == (20, 12)
    assert agent.cannot_see()[-1].startswith("12 of this node's series")


def test_a_batch_fits_into_a_record_of_the_bus_however_long_the_names_are(stage: Stage) -> None:
    many = saying(*(("m", f"{number:0250}", 1.0) for number in range(4096)))
    agent = stage.agent({"a": many})
    agent.gather(stage.clock.now())
    # A record that is too large would arrive as a Reject.
    assert 3000 < len(stage.batch().samples) < 4096


def test_while_the_bus_is_away_records_wait_and_then_arrive_in_order(stage: Stage) -> None:
    agent = stage.agent({"log": saying(lines=("fault",))})
    stage.sink.error = Unavailable("no broker", retry_after_s=0.0)
    for _ in range(3):
        agent.gather(stage.clock.now())
    waiting = waiting_records(stage)
    nothing = stage.sent()
    stage.sink.error = None
    stage.advance(PAUSE_S_MAX)
    agent.gather(stage.clock.now())
    stage.advance(PAUSE_S_MAX)  # its own moment to begin
    agent.gather(stage.clock.now())
    numbers = [one.sequence for one in stage.sent() if isinstance(one, SampleBatch | LogLine)]
    assert (waiting, nothing, numbers) == (6, [], list(range(1, 11)))
    assert waiting_records(stage) == 0


def test_a_bus_that_asks_for_patience_is_left_alone_so_long(stage: Stage) -> None:
    agent = stage.agent({"a": saying(("m", "", 1.0))})
    stage.sink.error = Unavailable("no broker", retry_after_s=5.0)
    agent.gather(stage.clock.now())
    stage.sink.error = None
    stage.advance(4.9)
    agent.gather(stage.clock.now())
    early = len(stage.sent())
    stage.advance(0.1 + Settings().sending.pause_s)
    agent.gather(stage.clock.now())
    assert (early, len(stage.sent()) > 0) == (0, True)


def test_of_too_many_that_wait_old_telemetry_is_given_up_and_faults_stay(stage: Stage) -> None:
    settings = Settings(deadline_s=60.0, spool=SpoolSettings(records_max=4))
    agent = stage.agent({"log": saying(lines=("fault",))}, settings)
    stage.sink.error = Unavailable("no broker", retry_after_s=0.0)
    for _ in range(3):
        agent.gather(stage.clock.now())
    stage.sink.error = None
    agent.close()
    kinds = [type(message).__name__ for message in stage.sent()]
    assert kinds == ["LogLine", "LogLine", "LogLine", "SampleBatch"]
    assert stage.metrics.value("farside_spool_dropped_total", kind="batch") == 2


def test_a_record_that_the_bus_refuses_for_good_does_not_block_the_next(stage: Stage) -> None:
    agent = stage.agent({"a": saying(("m", "", 1.0))})
    stage.sink.error = Rejected("never")
    agent.gather(stage.clock.now())
    stage.sink.error = None
    agent.gather(stage.clock.now())
    assert stage.batch().sequence == 2


@contextlib.contextmanager
def running(agent: Agent) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=agent.run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(SOON_S)


class Bell:
    """A collector that knows when there is news."""

    def __init__(self) -> None:
        self.rung = threading.Event()

    def wait(self, timeout_s: float) -> bool:
        return self.rung.wait(timeout_s)

    def collect(self, now: Instant) -> Reading:
        news = self.rung.is_set()
        self.rung.clear()
        line = FoundLine(now, "kernel", "the bell", {"kind": "xid"})
        return Reading([], [line] if news else [])

    def cannot_see(self) -> list[str]:
        return []


def test_news_reach_the_bus_without_waiting_for_the_period(live: Stage) -> None:
    bell = Bell()
    with running(live.agent({"bell": bell}, Settings(period_s=3600.0))):
        wait_until(lambda: any(isinstance(one, SampleBatch) for one in live.sent()), SOON_S)
        bell.rung.set()
        lines = live.lines(SOON_S)
    assert lines == ["the bell"]


@pytest.mark.parametrize(
    ("takes_s", "at_s"),
    [
        ([0.3] * 5, [0.0, 1.0, 2.0, 3.0, 4.0]),
        ([0.0, 2.5, 0.0, 0.0, 0.0], [0.0, 1.0, 4.0, 5.0, 6.0]),
    ],
)
def test_turns_keep_to_their_seconds_and_missed_ones_are_not_made_up_for(
    stage: Stage, takes_s: list[float], at_s: list[float]
) -> None:
    stop = threading.Event()
    durations = list(takes_s)

    def collect(_: Instant) -> Reading:
        stage.advance(durations.pop(0))
        if not durations:
            stop.set()
        return Reading([], [])

    agent = stage.agent({"slow": Scripted(collect)})
    agent.run(stop)
    times = [batch.time for batch in stage.sent() if isinstance(batch, SampleBatch)]
    assert [round(time.since(times[0]), 6) for time in times] == at_s


class Stuck:
    """A sink whose send does not return until it is let go."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.entered = threading.Event()
        self.release = threading.Event()

    def send(self, topic: str, key: str, message: Message, partition: int = 0) -> Receipt:
        self.entered.set()
        self.release.wait(SOON_S)
        return self._sink.send(topic, key, message, partition)

    def flush(self, timeout_s: float) -> None:
        self._sink.flush(timeout_s)

    def close(self, timeout_s: float) -> None:
        self._sink.close(timeout_s)


def test_a_bus_that_does_not_return_stops_no_collector_and_loses_nothing(live: Stage) -> None:
    stuck = Stuck(live.bus.sink())
    busy, bell = saying(("m", "", 1.0)), Bell()
    agent = Agent(
        Settings(period_s=0.01, deadline_s=60.0),
        {"busy": busy, "bell": bell},
        WHO,
        sink=stuck,
        clock=live.clock,
        metrics=live.metrics,
    )
    with running(agent):
        stuck.entered.wait(SOON_S)
        asked = busy.asked
        bell.rung.set()
        wait_until(lambda: busy.asked >= asked + 30 and not bell.rung.is_set(), SOON_S)
        nothing = live.sent()
        stuck.release.set()
    sent = [one for one in live.sent() if isinstance(one, SampleBatch | LogLine)]
    assert nothing == []
    assert [one.sequence for one in sent] == list(range(1, len(sent) + 1))
    assert [one.text for one in sent if isinstance(one, LogLine)] == ["the bell"]


def test_what_a_bus_that_was_away_did_not_get_is_sent_by_the_next_start(
    stage: Stage, tmp_path: Path
) -> None:
    collectors = {"log": saying(lines=("fault",))}
    first = stage.agent(collectors, folder=tmp_path)
    stage.sink.error = Unavailable("no broker")
    for _ in range(3):
        first.gather(stage.clock.now())
    first.close()
    stage.sink.error = None
    second = stage.agent(collectors, who=WHO._replace(start="next"), folder=tmp_path)
    second.gather(stage.clock.now())
    sent = [one for one in stage.sent() if isinstance(one, SampleBatch | LogLine)]
    assert [(one.start, one.sequence) for one in sent] == [
        *(("start", number) for number in range(1, 7)),
        ("next", 1),
        ("next", 2),
    ]


def test_while_the_bus_is_away_metrics_tell_where_the_records_are_and_how_old(
    stage: Stage, tmp_path: Path
) -> None:
    agent = stage.agent({"a": saying(("m", "", 1.0))}, folder=tmp_path)
    stage.sink.error = Unavailable("no broker", retry_after_s=60.0)
    told = []
    for _ in range(2):
        agent.gather(stage.clock.now())
        told.append([stage.metrics.value(f"farside_{name}") for name in ("bus_away",)])
        told[-1] += [
            stage.metrics.value("farside_spool_records", place=place)
            for place in ("memory", "disk", "flight")
        ]
        told[-1].append(stage.metrics.value("farside_spool_oldest_seconds"))
        stage.advance(10.0)
    assert told == [[1.0, 1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 2.0, 0.0, 10.0]]
    assert stage.metrics.value("farside_spool_disk_bytes") > 0


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("spool", "records_max", 0),
        ("spool", "disk_after_s", -1.0),
        ("spool", "disk_bytes_max", 1000),
        ("spool", "sync_s", 0.0),
        ("spool", "disk", "yes"),
        ("spool", "folder", "/elsewhere"),
        ("sending", "in_flight_records_max", 0),
        ("sending", "in_flight_bytes_max", 1),
        ("sending", "catch_up_records_s", 0.5),
        ("sending", "spread_s", 1e9),
        ("sending", "pause_s", 0.0),
    ],
)
def test_a_setting_out_of_its_bounds_is_refused_by_its_name(
    section: str, key: str, value: object
) -> None:
    table = Table({section: {key: value}}, "agent")
    with pytest.raises(Misconfigured, match=rf"agent\.{section}\.{key}"):
        plugin_settings(table, Settings)


def test_two_agents_on_one_folder_are_refused(stage: Stage, tmp_path: Path) -> None:
    stage.agent({}, folder=tmp_path)
    with pytest.raises(Misconfigured, match="another agent keeps its records"):
        stage.agent({}, folder=tmp_path)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_in_sending_ends_the_run_so_that_the_service_counts_it_and_starts_anew(
    live: Stage,
) -> None:
    live.sink.error = ZeroDivisionError("a bug")
    agent = live.agent({"a": saying(("m", "", 1.0))}, Settings(period_s=0.01, deadline_s=60.0))
    with pytest.raises(RuntimeError, match="thread that sends has ended"):
        agent.run(threading.Event())
    live.sink.error = None
    with running(agent):
        batches = wait_until(live.sent, SOON_S)
    assert isinstance(batches[0], SampleBatch)
    assert batches[0].sequence == 1


def test_each_node_has_a_moment_of_its_own_in_the_period_whenever_it_started() -> None:
    at = [Instant.parse(f"2026-03-01T12:00:{text}Z") for text in ("00", "17.25", "59.999")]
    moments = [
        {round(int(now.plus(until_moment_s(f"n{node}", 1.0, now))) / 1e9 % 1.0, 6) for now in at}
        for node in range(1000)
    ]
    tenths = Counter(int(moment * 10) for own in moments for moment in own)
    assert {len(own) for own in moments} == {1}
    assert (min(tenths), max(tenths)) == (1, 8)
    assert max(tenths.values()) < 1000 / 8 * 1.3


def test_a_start_has_a_name_that_follows_from_what_it_is() -> None:
    now = Instant.parse("2026-03-01T12:00:00Z")
    once, again = (identify("c", "n", SysTree(), now) for _ in range(2))
    later = identify("c", "n", SysTree(), now.plus(1.0))
    other = identify("c", "m", SysTree(), now)
    assert (once == again, len({once.start, later.start, other.start})) == (True, 3)


def test_what_the_collectors_cannot_see_is_told_by_the_agent(stage: Stage) -> None:
    agent = stage.agent({"a": saying(), "b": saying()})
    assert agent.cannot_see() == ["something", "something"]
