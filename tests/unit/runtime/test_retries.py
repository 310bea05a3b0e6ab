"""What can't be done now: how long it waits, what waits behind it, and how it arrives after all."""

import threading
from collections.abc import Callable

import hypothesis
import pytest
from hypothesis import strategies as st

from runtime import logs
from runtime.clock import ManualClock
from runtime.errors import Rejected, Unavailable
from runtime.retries import Lanes, Outbox, Patience, Retry, Waiting, lot, read_through

LOG = logs.get(worker="test")


def patience() -> Patience:
    return Patience("it can't be read", Retry("it", 1.0, 8.0), LOG)


def test_pauses_are_drawn_from_a_span_that_doubles_up_to_its_most() -> None:
    retry, spans_s = Retry("a", 1.0, 8.0), (1, 2, 4, 8, 8, 8)
    for span_s in spans_s:
        retry = retry.failed(100.0)
        assert 100.0 <= retry.due_s < 100.0 + span_s


def test_many_that_fail_at_one_moment_come_back_spread_over_the_whole_span() -> None:
    pauses_s = [Retry(f"n{n}", 10.0, 10.0).failed(0.0).due_s for n in range(1_000)]
    tenths = [sum(lower <= pause_s < lower + 1 for pause_s in pauses_s) for lower in range(10)]
    assert all(60 <= count <= 140 for count in tenths)


def test_the_same_name_draws_the_same_and_another_another() -> None:
    assert Retry("a", 1.0, 8.0).failed(5.0) == Retry("a", 1.0, 8.0).failed(5.0)
    assert lot("a", 1) != lot("a", 2) != lot("b", 2)


def test_the_other_sides_wish_comes_on_top_and_is_bounded() -> None:
    assert 30.0 <= Retry("a", 1.0, 8.0).failed(0.0, hint_s=30.0).due_s < 31.0
    assert Retry("a", 1.0, 8.0).failed(0.0, hint_s=1e9).due_s < 3601.0
    assert Retry("a", 1.0, 8.0).failed(0.0, hint_s=-5.0).due_s >= 0.0


def test_it_goes_on_for_ever_without_growing_beyond_its_most() -> None:
    assert 0.0 <= Retry("a", 1.0, 8.0, tries=1_000_000).failed(0.0).due_s < 8.0


class Shop:
    """Lanes, a hand-moved time, and what was done."""

    def __init__(self, limit: int = 10) -> None:
        self.now_s = 0.0
        self.lanes: Lanes[str] = Lanes(1.0, 8.0, limit)
        self.away: set[str] = set()
        self.done: list[str] = []

    def add(self, *names: str) -> None:
        for name in names:
            self.lanes.add(name[0], name, name, self.now_s)

    def settle(self, waiting: Waiting[str], due: bool) -> bool:  # noqa: FBT001  # the lanes'
        if not due:
            return False
        if waiting.item in self.away:
            raise Unavailable("closed", retry_after_s=0.0)
        self.done.append(waiting.item)
        return True

    def work(self, go_on: Callable[[], bool] = lambda: True) -> list[str]:
        """Work once, and return what was done."""
        self.done = []
        self.lanes.work(self.settle, lambda: self.now_s, go_on)
        return self.done


def test_what_waits_holds_up_its_own_lane_and_no_other() -> None:
    shop = Shop()
    shop.away = {"a1"}
    shop.add("a1", "a2", "b1")
    assert shop.work() == ["b1"]
    shop.away.clear()
    shop.now_s = 1.0
    assert (shop.work(), len(shop.lanes)) == (["a1", "a2"], 0)


def test_a_new_lane_does_not_wait_for_those_that_failed() -> None:
    shop = Shop()
    shop.away = {"a1", "b1"}
    shop.add("a1", "b1")
    shop.work()
    shop.now_s = 1.0
    shop.away.clear()
    shop.add("c1")
    assert shop.work()[0] == "c1"


def test_work_ends_when_it_is_told_to_and_what_is_left_stays_in_order() -> None:
    shop = Shop()
    shop.add("a1", "a2", "b1")
    assert shop.work(lambda: len(shop.done) < 1) == ["a1"]
    assert shop.work() == ["a2", "b1"]


def test_more_than_may_wait_are_not_taken() -> None:
    shop = Shop(limit=2)
    shop.add("a1", "b1")
    assert shop.lanes.full
    with pytest.raises(Rejected, match="2 are waiting already"):
        shop.add("c1")


def test_what_still_waits_can_be_taken_out() -> None:
    shop = Shop()
    shop.add("a1", "b1", "a2")
    assert sorted(shop.lanes.clear()) == ["a1", "a2", "b1"]
    assert (len(shop.lanes), list(shop.lanes.lane("a"))) == (0, [])


class Post:
    """Somebody who takes letters, or doesn't: `mood` says what becomes of each."""

    def __init__(self) -> None:
        self.mood = "takes"
        self.taken: list[str] = []
        self.on_the_way: list[Slip] = []

    def send(self, letter: str) -> "Slip":
        if self.mood == "away":
            raise Unavailable("closed", retry_after_s=0.0)
        if self.mood == "refuses":
            raise Rejected(f"{letter} is too heavy")
        slip = Slip(self, letter)
        if self.mood == "takes":
            slip.arrive()
        else:
            self.on_the_way.append(slip)
        return slip

    def answer(self, *, lose: bool) -> None:
        """Answer all that is on its way: it arrived, or was lost."""
        for slip in self.on_the_way:
            if lose:
                slip.error = Unavailable("lost", retry_after_s=0.0)
            else:
                slip.arrive()
        self.on_the_way = []


class Slip:
    """What became of one letter."""

    def __init__(self, post: Post, letter: str) -> None:
        self._post = post
        self.letter = letter
        self.error: Unavailable | None = None
        self._there = False

    def arrive(self) -> None:
        self._post.taken.append(self.letter)
        self._there = True

    def taken(self) -> bool:
        if self.error is not None:
            raise self.error
        return self._there


def outbox(post: Post, limit: int = 100) -> Outbox[str]:
    return Outbox(post.send, limit, patience())


def test_what_is_acknowledged_at_once_leaves_at_once_in_order() -> None:
    post = Post()
    box = outbox(post)
    for letter in "abc":
        box.add(letter)
    assert (box.step(0.0), len(box), post.taken) == (["a", "b", "c"], 0, ["a", "b", "c"])


def test_what_is_on_its_way_is_kept_and_not_sent_again() -> None:
    post = Post()
    box = outbox(post)
    post.mood = "is slow"
    box.add("a")
    assert (box.step(0.0), box.step(9.0), len(box)) == ([], [], 1)
    post.answer(lose=False)
    assert (box.step(10.0), post.taken) == (["a"], ["a"])


def test_what_was_lost_is_sent_again_after_a_pause_with_all_behind_it() -> None:
    post = Post()
    box = outbox(post)
    post.mood = "is slow"
    box.add("a")
    box.add("b")
    box.step(0.0)
    post.on_the_way[0].error = Unavailable("lost", retry_after_s=0.0)
    post.on_the_way[1].arrive()
    post.mood = "takes"
    box.step(0.0)
    assert box.step(2.0) == ["a", "b"]
    assert post.taken == ["b", "a", "b"]  # the last word is the last


def test_nothing_is_sent_again_before_all_on_its_way_is_answered() -> None:
    post = Post()
    box = outbox(post)
    post.mood = "is slow"
    box.add("a")
    box.add("b")
    box.step(0.0)
    post.on_the_way[0].error = Unavailable("lost", retry_after_s=0.0)
    post.mood = "takes"
    assert (box.step(5.0), post.taken) == ([], [])
    post.on_the_way[1].arrive()
    assert box.step(9.0) == ["a", "b"]


def test_what_is_refused_is_dropped_and_counted_and_holds_nobody_up() -> None:
    post = Post()
    box = outbox(post)
    box.add("a")
    post.mood = "refuses"
    assert (box.step(0.0), box.dropped, box.why) == ([], 1, "a is too heavy")
    post.mood = "takes"
    box.add("b")
    assert box.step(0.0) == ["b"]


def test_more_than_it_may_hold_drops_the_oldest_and_counts() -> None:
    post = Post()
    box = outbox(post, limit=2)
    post.mood = "is slow"
    for letter in "abc":
        box.add(letter)
        box.step(0.0)
    post.answer(lose=False)
    assert (box.step(1.0), box.dropped, box.why) == (["b", "c"], 1, "too many wait")


def test_at_the_end_what_is_left_is_sent_at_once_and_waited_for() -> None:
    post = Post()
    box = outbox(post)
    post.mood = "away"
    box.add("a")
    box.step(0.0)  # a pause begins, which the end does not wait for
    box.add("b")
    post.mood = "is slow"
    arrived = box.last(lambda _: post.answer(lose=False), lambda: 0.0, 5.0)
    assert (arrived, len(box)) == (["a", "b"], 0)


def test_at_the_end_a_post_that_stays_away_is_left_with_its_reason() -> None:
    post = Post()
    box = outbox(post)
    post.mood = "is slow"
    box.add("a")
    asked_s = []

    def flush(timeout_s: float) -> None:
        asked_s.append(timeout_s)
        raise Unavailable("nothing was acknowledged")

    assert (box.last(flush, lambda: 0.0, 5.0), len(box)) == ([], 1)
    assert (asked_s, box.why) == ([5.0], "nothing was acknowledged")


@hypothesis.given(
    st.lists(
        st.sampled_from(["add", "add", "takes", "away", "is slow", "arrive", "lose", "step"]),
        max_size=60,
    )
)
def test_whatever_the_post_does_all_arrives_and_the_last_word_stays_the_last(
    events: list[str],
) -> None:
    post = Post()
    box, now_s, added = outbox(post), 0.0, 0
    acknowledged: list[str] = []
    for event in events:
        now_s += 0.7
        if event == "add":
            added += 1
            box.add(str(added))
        elif event in {"arrive", "lose"}:
            post.answer(lose=event == "lose")
        elif event == "step":
            acknowledged += box.step(now_s)
        else:
            post.mood = event
    post.mood = "takes"
    for _ in range(4):
        post.answer(lose=False)
        now_s += 10.0
        acknowledged += box.step(now_s)
    wanted = [str(number + 1) for number in range(added)]
    assert acknowledged == wanted
    # Of each letter the last copy counts: those stand in the order of writing.
    assert list(dict.fromkeys(reversed(post.taken)))[::-1] == wanted


class Tape:
    """A log of numbers that can be away, and whose first reads may bring nothing."""

    def __init__(self, records: int, empty_reads: int = 0) -> None:
        self.left = list(range(records))
        self.empty_reads = empty_reads
        self.away = False
        self.known = True

    def poll(self, limit: int, timeout_s: float) -> list[int]:  # noqa: ARG002  # the protocol's
        if self.away:
            raise Unavailable("the tape is away")
        if self.empty_reads:
            self.empty_reads -= 1
            return []
        taken, self.left = self.left[:2], self.left[2:]
        return taken

    def lag(self) -> dict[tuple[str, int], int]:
        if self.away:
            raise Unavailable("the tape is away")
        return {("tape", 0): len(self.left)} if self.known else {}


def read(
    tape: Tape, stop: threading.Event | None = None, turns: Callable[[int], None] = lambda _: None
) -> tuple[bool, list[int]]:
    """Read a tape through; `turns` is called with the number of each turn."""
    found: list[int] = []
    count = 0

    def meanwhile() -> None:
        nonlocal count
        turns(count)
        count += 1

    whole = read_through(
        tape,
        found.extend,
        patience=patience(),
        clock=ManualClock(),
        stop=stop or threading.Event(),
        meanwhile=meanwhile,
    )
    return whole, found


def test_a_log_is_read_to_its_end_though_its_first_reads_bring_nothing() -> None:
    assert read(Tape(5, empty_reads=4)) == (True, [0, 1, 2, 3, 4])


def test_an_empty_log_is_known_at_once() -> None:
    assert read(Tape(0)) == (True, [])


def test_a_log_whose_partitions_are_not_known_yet_is_waited_for() -> None:
    tape = Tape(1)
    tape.known = False

    def turns(number: int) -> None:
        tape.known = number >= 3

    assert read(tape, turns=turns) == (True, [0])


def test_a_log_that_is_away_is_waited_for() -> None:
    tape = Tape(3)

    def turns(number: int) -> None:
        tape.away = number < 20

    assert read(tape, turns=turns) == (True, [0, 1, 2])


def test_who_is_asked_to_stop_while_waiting_does_not_know_the_log() -> None:
    tape, stop = Tape(3), threading.Event()
    tape.away = True

    def turns(number: int) -> None:
        if number == 20:
            stop.set()

    assert read(tape, stop, turns) == (False, [])
