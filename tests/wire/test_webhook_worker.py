"""Webhook, worker and dead letters together on loopback, and the script that sends them again."""

import json
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
import standardwebhooks
from msgspec import structs

from bus.memory import MemoryBus
from bus.messages import Delivery
from bus.topics import COMMANDS, DELIVERIES, INCIDENTS
from notifiers.base import Context
from notifiers.webhook import Settings, build
from notifiers.worker import NotifierWorker
from notifiers.worker import Settings as WorkerSettings
from runtime.clock import SystemClock
from runtime.process import run
from runtime.wait import wait_until
from tests.unit.notifiers.notices import incident
from tests.unit.notifiers.receiver import KEY, SECRET, Receiver, answer, raw, receiving

ROOT = Path(__file__).parents[2]
CLOCK = SystemClock()
WAIT_S = 20.0


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


class Desk:
    """A worker in a thread that tells `receiver` with short pauses."""

    def __init__(self, receiver: Receiver, folder: Path) -> None:
        self.bus = MemoryBus(CLOCK)
        self.letters = folder / "dead-letters-webhook.jsonl"
        settings = Settings(secret=SECRET, url=receiver.url, timeout_s=0.3, retry_after_s_max=0.05)
        self._worker = NotifierWorker(
            build(settings, Context(CLOCK, "alpha")),
            source=self.bus.source([INCIDENTS, COMMANDS]),
            sink=self.bus.sink(),
            clock=CLOCK,
            settings=WorkerSettings(pause_s=0.01, pause_s_max=0.05, poll_s=0.05),
            past=self.bus.source([DELIVERIES]),
            dead_letters=self.letters,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._worker.run, args=(self._stop,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def give(self, *names: str) -> None:
        now = CLOCK.now()
        for name in names:
            fresh = structs.replace(incident(name=name), opened=now, updated=now)
            self.bus.sink().send(INCIDENTS, name, fresh)

    def deliveries(self) -> list[Delivery]:
        found = [one.message for one in self.bus.source([DELIVERIES]).poll(1_000, 0.0)]
        return [one for one in found if isinstance(one, Delivery)]

    def outcomes(self) -> dict[str, str]:
        return {one.incident: one.outcome for one in self.deliveries()}


def test_a_receiver_that_fails_in_every_way_first_is_told_in_the_end(
    receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answers = [
        answer(503, {"Retry-After": "3600"}),
        answer(429),
        raw(b"garbage\r\n\r\n"),
        raw(ended=receiver.ended),
        raw(),
        answer(200),
    ]
    with Desk(receiver, tmp_path) as desk:
        desk.give("i1")
        wait_until(lambda: desk.outcomes() == {"i1": "done"}, WAIT_S)
    assert len(receiver.heard) >= 6
    assert len({heard.headers["webhook-id"] for heard in receiver.heard}) == 1
    for heard in receiver.heard:
        standardwebhooks.Webhook(KEY).verify(heard.body, heard.headers)
    assert not desk.letters.exists()


def test_no_delivery_and_no_dead_letter_tells_the_path_or_the_key(
    receiver: Receiver, tmp_path: Path
) -> None:
    receiver.url += "/s3cret-path?token=t0k3n"
    receiver.answers = [answer(404)]
    with Desk(receiver, tmp_path) as desk:
        desk.give("i1")
        wait_until(lambda: desk.outcomes() == {"i1": "refused"}, WAIT_S)
    said = desk.letters.read_text() + str(desk.deliveries())
    assert f"the webhook at http://127.0.0.1:{receiver.port} refused it (status 404)" in said
    assert not [word for word in ("s3cret", "t0k3n", KEY[6:]) if word in said]


def script() -> str:
    """Return the script of the page for operators."""
    page = (ROOT / "docs" / "operate" / "notifying.md").read_text("utf-8")
    (found,) = re.findall(r"```python\n(# resend\.py\n.*?)```", page, re.DOTALL)
    return str(found)


def test_the_script_of_the_page_sends_dead_letters_again_under_their_ids(
    receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answers = [answer(404)]
    with Desk(receiver, tmp_path) as desk:
        desk.give("i1", "i2")
        wait_until(lambda: len(desk.outcomes()) == 2, WAIT_S)
    before = {heard.headers["webhook-id"]: heard.body for heard in receiver.heard}
    kept = [json.loads(line)["id"] for line in desk.letters.read_bytes().splitlines()]
    assert sorted(kept) == sorted(before)
    with desk.letters.open("ab") as letters:
        letters.write(b'{"id":"cut sho')
    receiver.answers, receiver.heard = [answer(204)], []
    (tmp_path / "key").write_text(KEY + "\n")
    argv = [receiver.url, str(tmp_path / "key"), "alpha", str(desk.letters)]
    ended = run([sys.executable, "-c", script(), *argv], 60.0, cwd=ROOT)
    assert (ended.code, ended.err) == (0, "")
    assert {heard.headers["webhook-id"]: heard.body for heard in receiver.heard} == before
    for heard in receiver.heard:
        standardwebhooks.Webhook(KEY).verify(heard.body, heard.headers)
