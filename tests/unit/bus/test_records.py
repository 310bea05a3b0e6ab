"""Record files: complete lines come back, incomplete ones are filled in, broken ones are told."""

import io

from bus.records import LINE_BYTES_MAX, Broken, dump, lines_of, load
from bus.topics import TELEMETRY
from bus.transport import Envelope
from tests.unit.bus.examples import EXAMPLES, T

BARE = b'{"message":{"type":"Tick","cell":"c","time":"2026-11-30T12:00:0%dZ"}}\n'


def test_every_message_comes_back_from_its_line() -> None:
    sent = [Envelope("farside.x", 2, n, T.plus(n), "k", one) for n, one in enumerate(EXAMPLES)]
    assert list(load(dump(one) for one in sent)) == sent


def test_a_line_with_a_message_alone_is_filled_in() -> None:
    first, second = load([BARE % 1, BARE % 3])
    assert isinstance(first, Envelope)
    assert isinstance(second, Envelope)
    assert (first.topic, first.partition, first.offset) == (TELEMETRY, 0, 0)
    assert second.offset == 1
    assert first.appended.text() == "2026-11-30T12:00:01.000000000Z"
    assert second.appended.since(first.appended) == 2.0


def test_a_missing_appended_time_never_goes_back() -> None:
    newer, older = load([BARE % 5, BARE % 2])
    assert isinstance(newer, Envelope)
    assert isinstance(older, Envelope)
    assert older.appended == newer.appended


def test_one_message_from_the_far_future_does_not_move_the_time() -> None:
    far = b'{"message":{"type":"Tick","cell":"c","time":"3026-11-30T12:00:00Z"}}'
    _, strange, after = load([BARE % 1, far, BARE % 2])
    assert isinstance(strange, Envelope)
    assert isinstance(after, Envelope)
    assert after.appended.since(strange.appended) == 1.0


def test_broken_lines_are_told_with_their_number_and_nothing_around_them_is_lost() -> None:
    found = list(load([BARE % 1, b"no json\n", b'{"message":3}\n', b"\n", BARE % 2]))
    assert [(one.line, one.reason) for one in found if isinstance(one, Broken)] == [
        (2, "no record"),
        (3, "no message"),
    ]
    assert len([one for one in found if isinstance(one, Envelope)]) == 2


def test_an_endless_line_costs_one_line_and_no_memory() -> None:
    file = io.BytesIO(BARE % 1 + b"x" * (2 * LINE_BYTES_MAX + 7) + b"\n" + BARE % 2)
    found = list(load(lines_of(file)))
    assert [type(one) for one in found] == [Envelope, Broken, Envelope]
