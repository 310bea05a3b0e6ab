import re
from pathlib import Path

import pytest

from bus.records import dump
from docs.pictures.make import (
    moment_of,
    page_of,
    read,
    size_of,
    snapshot_at,
    terminal_picture,
)
from farside.view.snapshot import About
from runtime.errors import Rejected
from tests.unit.view import composed


def test_the_terminals_picture_is_taken_when_the_act_was_ordered_and_fetches_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "record.jsonl"
    path.write_bytes(b"".join(map(dump, composed.record())))
    envelopes = read(path)
    assert moment_of(envelopes) == composed.at(71.0)
    snapshot = snapshot_at(envelopes, moment_of(envelopes), About(host="gpu-0421"))
    picture = terminal_picture(snapshot)
    assert set(re.findall(r'https?://[^"\s]*', picture)) == {"http://www.w3.org/2000/svg"}
    assert "degraded" in picture
    (tmp_path / "terminal.svg").write_text(picture, "utf-8")
    width, height = size_of(tmp_path / "terminal.svg")
    assert (width > 1000, 300 < height < 800) == (True, True)
    assert "<svg" in page_of(envelopes, None)


def test_a_record_that_can_not_be_read_or_holds_no_incident_is_told(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    path.write_bytes(b"{}\n")
    with pytest.raises(Rejected, match=r"record\.jsonl line 1"):
        read(path)
    with pytest.raises(Rejected, match="holds no incident"):
        page_of([], None)
