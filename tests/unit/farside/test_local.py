"""The local socket: answers questions, guards its place, says who is missing."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from farside.local import Ask, LocalServer, ask
from runtime.errors import NotPermitted, Rejected, Unavailable

pytestmark = pytest.mark.loopback


def answer(question: Ask) -> str:
    if question.want == "nothing":
        msg = "no such thing"
        raise Rejected(msg)
    return f"{question.want} of {question.name}"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A state folder in which a server answers."""
    server = LocalServer(tmp_path, answer)
    stop = threading.Event()
    thread = threading.Thread(target=server.run, args=(stop,))
    thread.start()
    yield tmp_path
    stop.set()
    thread.join()


def test_a_question_is_answered(folder: Path) -> None:
    assert ask(folder, Ask(want="page", name="n1")) == "page of n1"


def test_no_is_an_answer_with_its_reason(folder: Path) -> None:
    with pytest.raises(Rejected, match="no such thing"):
        ask(folder, Ask(want="nothing"))


def test_only_its_owner_may_ask(folder: Path) -> None:
    assert (folder / "farside.sock").stat().st_mode & 0o777 == 0o600


def test_a_second_farside_in_the_same_folder_is_refused(folder: Path) -> None:
    with pytest.raises(NotPermitted, match="another farside"):
        LocalServer(folder, answer)


def test_a_socket_left_behind_by_a_killed_one_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "farside.sock").write_text("")
    stop = threading.Event()
    stop.set()
    LocalServer(tmp_path, answer).run(stop)
    assert not (tmp_path / "farside.sock").exists()


def test_nobody_there_is_a_sentence_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="start one with farside up"):
        ask(tmp_path, Ask(want="snapshot"))
