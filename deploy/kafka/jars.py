"""What a broker is made of: fetched once with Maven, kept outside the checkout, judged by a list.

`python -m deploy.kafka.jars --write` makes the list anew, for whoever sets another version in
pom.xml. Errors: `NotPermitted` where something is absent or is not what the list says, with the
remedy; `Unavailable` where Maven could not fetch.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from deploy.kafka.jvm import absent
from runtime.errors import NotPermitted, Unavailable
from runtime.process import run

HERE = Path(__file__).parent
POM = HERE / "pom.xml"
LIST = HERE / "jars.sha256"
FETCH_S = 900.0  # 54 MB and Maven's own plugins, over a slow line
_READ_BYTES = 1 << 20


def kafka_version() -> str:
    """Return the version that pom.xml sets."""
    found = re.search(r"<kafka\.version>([^<]+)<", POM.read_text("utf-8"))
    if found is None:
        raise ValueError(f"{POM} sets no kafka.version")
    return found[1]


def cache_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Return where this version's jars are kept: below $XDG_CACHE_HOME, else ~/.cache."""
    base = env.get("XDG_CACHE_HOME") or str(Path(env.get("HOME") or "~").expanduser() / ".cache")
    return Path(base) / "farside" / f"kafka-{kafka_version()}"


def wanted(path: Path = LIST) -> dict[str, str]:
    """Return the list: SHA-256 by the jar's name (the form of sha256sum)."""
    pairs = (line.split() for line in path.read_text("utf-8").splitlines() if line.strip())
    return {name: digest for digest, name in pairs}


def digest_of(path: Path) -> str:
    """Return a file's SHA-256."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            found.update(block)
    return found.hexdigest()


def judge(folder: Path, names: Mapping[str, str], remedy: str) -> None:
    """Compare every jar of a folder with the list; `NotPermitted` names the first that differs."""
    there = {path.name: path for path in folder.glob("*.jar")}
    for name in sorted(names.keys() | there.keys()):
        if name not in there:
            raise NotPermitted(f"{name} is missing among Kafka's jars: {remedy}")
        if name not in names:
            raise NotPermitted(f"{name} is among Kafka's jars and not in {LIST.name}: {remedy}")
        found = digest_of(there[name])
        if found != names[name]:
            raise NotPermitted(
                f"{name} is not the file that {LIST.name} names (SHA-256 {found[:12]}…, "
                f"not {names[name][:12]}…): {remedy}"
            )


def ensure(
    folder: Path | None = None,
    env: Mapping[str, str] = os.environ,
    names: Mapping[str, str] | None = None,
) -> Path:
    """Return the folder with the judged jars; the first call on a machine fetches them.

    Of several at once one fetches and the others wait for it.
    """
    folder = folder or cache_folder(env)
    names = names or wanted()
    library = folder / "lib"
    with locked(folder):
        if library.is_dir():
            judge(library, names, f"remove {folder} and start again, and they are fetched anew")
        else:
            _fetch(library, names, env)
    return library


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the only one at work on a folder, among all processes of this machine."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise NotPermitted(
            f"{folder} can't be written ({reason}): set XDG_CACHE_HOME to a folder of yours"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _fetch(library: Path, names: Mapping[str, str], env: Mapping[str, str]) -> None:
    """Fetch beside the final place, judge, move: what is at the final place is whole."""
    aside = library.with_name("lib.new")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        _maven(aside, env)
        if names:
            judge(aside, names, "remove it from Maven's own repository (~/.m2/repository) and "
                                "start again; what is given instead may be forged")  # fmt: skip
        aside.rename(library)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _maven(target: Path, env: Mapping[str, str]) -> None:
    program = shutil.which("mvn", path=env.get("PATH"))
    if program is None:
        raise absent("mvn (Maven)")
    sys.stderr.write(f"farside: fetching Kafka {kafka_version()} (once; 54 MB) …\n")
    fetched = run(
        [program, "-q", "-B", "-C", "-f", str(POM), "dependency:copy-dependencies",
         f"-DoutputDirectory={target}"],
        FETCH_S,
        env=env,
    )  # fmt: skip
    if fetched.code != 0:
        said = [line for line in (fetched.out + fetched.err).splitlines() if "ERROR" in line]
        raise Unavailable(f"Maven could not fetch Kafka: {' '.join(said[:2])[:600]}")


def main(arguments: list[str]) -> int:
    """Make the list anew from what Maven fetches."""
    if arguments != ["--write"]:
        sys.stderr.write("usage: python -m deploy.kafka.jars --write\n")
        return 2
    folder = cache_folder()
    with locked(folder):
        shutil.rmtree(folder / "lib", ignore_errors=True)
        _fetch(folder / "lib", {}, os.environ)
        lines = [
            f"{digest_of(jar)}  {jar.name}\n" for jar in sorted((folder / "lib").glob("*.jar"))
        ]
        LIST.write_text("".join(lines), "utf-8")
    sys.stdout.write(f"{LIST}: {len(lines)} jars\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
