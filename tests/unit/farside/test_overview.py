"""`farside top` over topics: what is open however old, what is new, and that nobody watches."""

import pytest

from bus.messages import Incident, IncidentState, Scope, Watermark
from bus.messages import Source as Place
from bus.topics import COMMANDS, INCIDENTS, REPORTS, SUSPICIONS, TELEMETRY
from bus.transport import Envelope, Source
from farside.overview import Overview
from farside.view.snapshot import About, Snapshot
from runtime.clock import Instant
from runtime.errors import Unavailable
from tests.unit.farside.fleet import NODE, START, Log, record


def looked(log: Log, look_back_s: float = 3600.0, *, readings: bool = False) -> Snapshot:
    overview = Overview(
        log, log.clock, About(host="lab", watching="Kafka"), look_back_s, readings=readings
    )
    overview.begin()
    return overview.look(0.0)


def incident(name: str, state: IncidentState, opened: Instant) -> Incident:
    scope = Scope("node", "lab", "gpu-7", "")
    return Incident(
        id=name, scope=scope, state=state, severity="warning", opened=opened, sentence=f"{name} is"
    )


def mark(log: Log, second: float, cell: str, behind_s: float = 0.4) -> None:
    moment = START.plus(second)
    said = Watermark(
        cell=cell,
        time=moment.plus(-behind_s),
        head_time=moment,
        source=Place(partition=0, offset=int(second)),
    )
    log.add(moment, SUSPICIONS, cell, said)


def test_incidents_rows_and_events_are_those_of_the_topics() -> None:
    found = looked(Log(record()))
    assert [(one.state, one.scope.node) for one in found.incidents] == [("contained", NODE)]
    assert [row.held for row in found.rows if row.incident] == ["frozen"]
    assert {"suspicion", "incident", "command", "refusal", "report"} <= {
        event.kind for event in found.events
    }


def test_telemetry_is_read_only_where_it_is_asked_for() -> None:
    assert looked(Log(record())).samples == 0
    assert looked(Log(record()), readings=True).samples > 0


def test_what_comes_later_is_shown_at_the_next_look() -> None:
    log = Log(one for one in record() if one.topic != INCIDENTS)
    overview = Overview(log, log.clock, About())
    overview.begin()
    assert overview.look(0.0).incidents == ()
    for one in record():
        if one.topic == INCIDENTS:
            log.add(log.clock.now(), one.topic, one.key, one.message)
    assert [one.state for one in overview.look(0.0).incidents] == ["contained"]


def test_an_open_incident_is_shown_however_long_nothing_was_said_of_it() -> None:
    log = Log(record())
    log.clock.advance(86_400.0)
    mark(log, 86_500, "lab")
    found = looked(log)
    assert [one.state for one in found.incidents] == ["contained"]
    # What was done about it is as old, and shown too.
    assert [row.held_until is not None for row in found.rows if row.incident] != []
    assert "report" in {event.kind for event in found.events}


def test_what_was_closed_long_ago_is_shown_no_more_nor_what_was_done_about_it() -> None:
    log = Log(one for one in record() if one.topic in {INCIDENTS, COMMANDS, REPORTS})
    last = [one.message for one in record() if isinstance(one.message, Incident)][-1]
    closed = incident(last.id, "closed", last.opened)
    log.add(START.plus(200), INCIDENTS, last.id, closed)
    open_one = incident("another", "open", START.plus(50))
    log.add(START.plus(201), INCIDENTS, "another", open_one)
    log.clock.advance(7200.0)
    found = looked(log)
    assert [one.id for one in found.incidents] == ["another"]
    assert {event.kind for event in found.events} == {"incident"}


def test_lag_is_that_of_the_cell_that_is_farthest_behind() -> None:
    log = Log()
    mark(log, 1, "a", 0.5)
    mark(log, 2, "b", 340.0)
    mark(log, 3, "a", 0.5)
    found = looked(log)
    assert found.lag_s == pytest.approx(340.0)
    assert found.about.watching == "cells a, b; Kafka"


def test_a_cell_of_which_no_scorer_speaks_is_unwatched_and_counts_as_lag() -> None:
    log = Log()
    mark(log, 1, "a")
    mark(log, 41, "b")
    found = looked(log)
    assert found.lag_s == pytest.approx(40.4)
    assert found.about.watching == "unwatched for 40 s: cell a (no scorer speaks for it); Kafka"


def test_that_nothing_comes_any_more_is_said() -> None:
    log = Log()
    mark(log, 1, "a")
    log.clock.advance(90.0)
    assert looked(log).about.watching.startswith("nothing new for 90 s")
    log.clock.advance(7200.0)
    silent = looked(log)
    assert silent.about.watching.startswith("nothing: no scorer has said a word")
    assert silent.lag_s is None


def test_it_does_not_claim_to_have_run_since_the_first_record_that_it_read() -> None:
    assert looked(Log(record())).since is None


def test_a_bus_that_goes_away_is_told_in_place_of_what_is_watched() -> None:
    log = Log(record())

    class Away(Log):
        """A bus whose readers fail once they have begun."""

        def __init__(self) -> None:
            self.broken = False

        def source(self, *args: object) -> Source:  # type: ignore[override]
            own = self
            inner = log.source(*args)  # type: ignore[arg-type]

            class Failing:
                def __getattr__(self, name: str) -> object:
                    return getattr(inner, name)

                def poll(self, limit: int, timeout_s: float) -> list[Envelope]:
                    if own.broken:
                        raise Unavailable("Kafka at kafka-1:9092 can't be reached")
                    return inner.poll(limit, timeout_s)

            return Failing()  # type: ignore[return-value]

    away = Away()
    overview = Overview(away, log.clock, About(watching="Kafka"))
    overview.begin()
    before = overview.look(0.0)
    away.broken = True
    after = overview.look(0.0)
    assert after.about.watching == "Kafka at kafka-1:9092 can't be reached"
    assert after.incidents == before.incidents


def test_telemetry_of_all_partitions_is_read() -> None:
    both = [one._replace(partition=int(one.topic == TELEMETRY)) for one in record()]
    assert looked(Log(both, partitions=2), readings=True).nodes == 1
