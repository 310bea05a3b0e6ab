"""SIGHUP: a mistake is refused with its key, and what needs a restart is named."""

from pathlib import Path

import pytest

from farside.parts import Parts
from farside.reloading import changed, reloader
from farside.settings import read_settings
from runtime.errors import Misconfigured


def test_a_mistake_in_the_file_is_refused_and_names_its_key(tmp_path: Path) -> None:
    config = tmp_path / "farside.toml"
    config.write_text("[decide]\nhold_s = 300\n")
    reload = reloader(config, read_settings(config), Parts)
    config.write_text("[decide]\nhold = 300\n")
    with pytest.raises(Misconfigured, match=r"decide\.hold is no known key"):
        reload()


def test_what_differs_and_can_not_change_live_is_named(tmp_path: Path) -> None:
    config = tmp_path / "farside.toml"
    config.write_text("[farside]\nlog_level = 'info'\n")
    before = read_settings(config)
    config.write_text("[farside]\nlog_level = 'debug'\n[http]\nport = 9999\n[decide]\nhold_s = 9\n")
    assert changed(before, read_settings(config)) == ["decide", "http"]
