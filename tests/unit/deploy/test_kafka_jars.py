"""The broker's jars: fetched once, by one of several, judged, and every refusal with its remedy."""

import concurrent.futures
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.kafka import jars
from runtime.errors import NotPermitted, Unavailable

Harm = Callable[[Path], object]
CONTENT = {"a-1.jar": b"first", "b-2.jar": b"second"}
# Stands in for Maven: what it is asked is written down, what it gives lies in a folder.
MAVEN = """#!/bin/sh
echo "$@" >>{folder}/asked
for one; do case $one in -DoutputDirectory=*) target=${{one#*=}} ;; esac; done
mkdir -p "$target" && cp {folder}/given/*.jar "$target"
"""


class Place:
    """A machine with a Maven of the test's own, and a cache."""

    def __init__(self, folder: Path) -> None:
        (folder / "bin").mkdir()
        (folder / "given").mkdir()
        self.given = folder / "given"
        self.cache = folder / "cache"
        self.env = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        self.asked = folder / "asked"
        self.maven(MAVEN.format(folder=folder))
        for name, content in CONTENT.items():
            (self.given / name).write_bytes(content)
        self.names = {name: jars.digest_of(self.given / name) for name in CONTENT}

    def maven(self, script: str) -> None:
        program = self.given.parent / "bin" / "mvn"
        program.write_text(script)
        program.chmod(0o755)

    def ensure(self) -> Path:
        return jars.ensure(self.cache, self.env, self.names)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_jars_are_fetched_once_with_strict_checksums(place: Place) -> None:
    library = place.ensure()
    assert place.ensure() == library
    assert {jar.name: jar.read_bytes() for jar in library.glob("*.jar")} == CONTENT
    [asked] = place.asked.read_text().splitlines()
    assert "-C" in asked.split()


def test_of_several_at_once_one_fetches(place: Place) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as several:
        found = list(several.map(lambda _: place.ensure(), range(4)))
    assert set(found) == {place.cache / "lib"}
    assert len(place.asked.read_text().splitlines()) == 1


def test_a_download_that_is_not_on_the_list_is_refused_and_not_kept(place: Place) -> None:
    (place.given / "b-2.jar").write_bytes(b"forged")
    with pytest.raises(NotPermitted, match=r"b-2\.jar is not the file .*\(~/\.m2/repository\)"):
        place.ensure()
    assert not (place.cache / "lib").exists()
    (place.given / "b-2.jar").write_bytes(CONTENT["b-2.jar"])
    assert place.ensure() == place.cache / "lib"


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda lib: (lib / "a-1.jar").write_bytes(b"?"), r"a-1\.jar is not the file"),
        (lambda lib: (lib / "a-1.jar").unlink(), r"a-1\.jar is missing"),
        (lambda lib: (lib / "c.jar").write_bytes(b"?"), r"c\.jar is among .* not in jars\.sha256"),
    ],
    ids=["changed", "removed", "added"],
)
def test_a_harmed_cache_names_the_jar_and_the_folder_to_remove(
    place: Place, harm: Harm, said: str
) -> None:
    harm(place.ensure())
    with pytest.raises(NotPermitted, match=f"{said}.*remove {place.cache} and start again"):
        place.ensure()


def test_a_fetch_that_was_cut_off_is_done_again(place: Place) -> None:
    aside = place.cache / "lib.new"
    aside.mkdir(parents=True)
    (aside / "half.jar").write_bytes(b"?")
    assert {jar.name for jar in place.ensure().glob("*.jar")} == set(CONTENT)


def test_what_maven_says_is_told_when_it_can_not_fetch(place: Place) -> None:
    place.maven("#!/bin/sh\necho '[ERROR] Unknown host repo.example'\nexit 1\n")
    with pytest.raises(Unavailable, match=r"could not fetch Kafka: .*Unknown host repo.example"):
        place.ensure()


def test_without_maven_the_debian_packages_are_named(place: Place, tmp_path: Path) -> None:
    place.env["PATH"] = str(tmp_path / "empty")
    with pytest.raises(NotPermitted, match=r"mvn .* openjdk-17-jre-headless maven$"):
        place.ensure()


def test_a_cache_that_can_not_be_made_names_the_variable(place: Place) -> None:
    place.cache.write_text("a file where the folder should be")
    with pytest.raises(NotPermitted, match="set XDG_CACHE_HOME"):
        place.ensure()


def test_the_cache_lies_outside_the_checkout_below_the_users_cache() -> None:
    version = jars.kafka_version()
    assert jars.cache_folder({"XDG_CACHE_HOME": "/c"}) == Path(f"/c/farside/kafka-{version}")
    assert jars.cache_folder({"HOME": "/h"}) == Path(f"/h/.cache/farside/kafka-{version}")


def test_the_committed_list_names_the_version_that_is_set() -> None:
    names = jars.wanted()
    assert f"kafka-clients-{jars.kafka_version()}.jar" in names
    assert {len(digest) for digest in names.values()} == {64}
