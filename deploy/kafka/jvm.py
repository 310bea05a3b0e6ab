"""How Java runs a broker and Kafka's tools: the program, its options, the argument lists."""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from runtime.errors import NotPermitted
from runtime.process import run

HERE = Path(__file__).parent
PACKAGES = HERE.parent / "debian-packages.txt"
JAVA_MIN = 17
# Small heaps and few threads: a test machine has two cores, and three of them run at once.
OPTIONS = ("-Xms128m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
           "-XX:-UsePerfData", "-Djava.awt.headless=true", "-Djava.net.preferIPv4Stack=true",
           f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}")  # fmt: skip


class Java(NamedTuple):
    """A Java that can run the broker: its program and its version as it tells it (17.0.15)."""

    program: str
    version: str


class Software(NamedTuple):
    """Java with Kafka's jars, and what the JVM is told besides OPTIONS."""

    java: Java
    library: Path
    options: tuple[str, ...] = ()

    def broker(self, server_properties: Path) -> list[str]:
        """Return the argument list of a broker.

        With util-linux's setpriv the kernel kills it when the thread that started it is gone: it
        can't outlive us, whatever ends us.
        """
        setpriv = shutil.which("setpriv")
        bound = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
        return [*bound, *self._java("kafka.Kafka"), str(server_properties)]

    def storage(self, *arguments: str) -> list[str]:
        """Return the argument list of the tool that prepares a broker's folder."""
        return [*self._java("kafka.tools.StorageTool"), *arguments]

    def _java(self, main: str) -> list[str]:
        return [self.java.program, *OPTIONS, *self.options, "-cp", f"{self.library}/*", main]


def find_java(env: Mapping[str, str] = os.environ) -> Java:
    """Return the Java of JAVA_HOME, else of the PATH; `NotPermitted` where none is new enough."""
    home = env.get("JAVA_HOME")
    places = [str(Path(home) / "bin")] if home else []
    places.append(env.get("PATH", ""))
    program = next((found for place in places if (found := shutil.which("java", path=place))), None)
    if program is None:
        raise absent("java")
    told = run([program, "-version"], 60.0, env=env).err
    version = re.search(r'version "((\d+)[^"]*)"', told)
    if version is None or int(version[2]) < JAVA_MIN:
        said = version[1] if version else told[:60].strip()
        raise NotPermitted(f"{program} is Java {said}, Kafka needs {JAVA_MIN} or newer; {remedy()}")
    return Java(program, version[1])


def absent(program: str) -> NotPermitted:
    """Return the error that says how to get what is missing."""
    return NotPermitted(f"{program} is missing, Kafka needs it; {remedy()}")


def remedy() -> str:
    """Return what brings Java and Maven."""
    return f"this brings it: apt-get install -y --no-install-recommends {' '.join(packages())}"


def packages(path: Path = PACKAGES) -> list[str]:
    """Return the Debian packages that the checkout names."""
    lines = (line.partition("#")[0].strip() for line in path.read_text("utf-8").splitlines())
    return [line for line in lines if line]
