from pathlib import Path

import pytest

from runtime import plugins
from runtime.errors import Misconfigured


@pytest.fixture
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like one that pip fills: a distribution with entry points, and its modules."""
    described = tmp_path / "acme-1.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    (described / "entry_points.txt").write_text(
        "[farside.notifiers]\npager = acme_pager\nbell = acme_bell\nlamp = acme_lamp\n"
    )
    (tmp_path / "acme_pager.py").write_text("class Settings: ...\ndef build(settings): ...\n")
    (tmp_path / "acme_bell.py").write_text("import acme_no_such_package\n")
    (tmp_path / "acme_lamp.py").write_text("colour = 'red'\n")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("third_party")
def test_a_third_partys_plug_in_is_found_by_its_entry_point() -> None:
    assert plugins.load("notifiers", "pager").__name__ == "acme_pager"
    assert {"bell", "lamp", "pager"} <= set(plugins.available("notifiers"))


@pytest.mark.usefixtures("third_party")
def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(Misconfigured, match=r"no 'pagr'; did you mean pager\? known: .*lamp"):
        plugins.load("notifiers", "pagr")


@pytest.mark.usefixtures("third_party")
def test_a_plug_in_whose_needs_are_not_installed_says_so() -> None:
    with pytest.raises(Misconfigured, match=r"bell .*acme_no_such_package"):
        plugins.load("notifiers", "bell")


@pytest.mark.usefixtures("third_party")
def test_a_module_without_settings_and_build_is_no_plug_in() -> None:
    with pytest.raises(Misconfigured, match=r"lamp .*no module with Settings and build"):
        plugins.load("notifiers", "lamp")


@pytest.mark.parametrize("family", ["collectors", "executors", "models", "notifiers"])
def test_every_plug_in_of_ours_has_settings_and_build(family: plugins.Family) -> None:
    for name in plugins.available(family):
        module = plugins.load(family, name)
        assert isinstance(module.Settings, type), name
        assert callable(module.build), name


@pytest.mark.parametrize("name", ["__init__", "base", "../notifiers/console", ""])
def test_a_name_that_is_no_plug_in_is_refused(name: str) -> None:
    with pytest.raises(Misconfigured, match="there is no"):
        plugins.load("models", name)
