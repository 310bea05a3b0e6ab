"""Whatever stands in the kernel's files, a collector answers or says plainly that it can't."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from collectors import cgroup, memory, process
from collectors.base import Closing, Collector
from runtime.errors import Unavailable
from tests.unit.collectors.machine import MIB, NOW, Machine

FILES = [
    "/proc/meminfo",
    "/proc/vmstat",
    "/proc/pressure/memory",
    "/proc/self/mountinfo",
    "/proc/7/stat",
    "/proc/7/statm",
    "/proc/7/status",
    "/proc/7/limits",
    "/proc/7/cgroup",
    "/sys/fs/cgroup/pod/memory.current",
    "/sys/fs/cgroup/pod/memory.stat",
    "/sys/fs/cgroup/pod/memory.max",
    "/sys/fs/cgroup/pod/memory.events",
    "/sys/fs/cgroup/pod/memory.pressure",
    "/sys/fs/cgroup/pod/cgroup.events",
]
HARD = [
    b"-1",
    b"9" * 400,
    b"1e400",
    b"nan",
    b"max",
    b"0::",
    b"\xff\xfe",
    b"\x00",
    b"a b kB\n",
    b":",
]
BYTES = st.one_of(
    st.binary(max_size=80), st.lists(st.sampled_from(HARD), max_size=6).map(b" ".join)
)


@contextmanager
def machine() -> Iterator[Machine]:
    with tempfile.TemporaryDirectory() as folder:
        made = Machine(Path(folder)).v2()
        made.v2_group("/pod", 64 * MIB)
        made.process(7, 64 * MIB, group="/pod")
        yield made


@given(st.dictionaries(st.sampled_from(FILES), st.tuples(BYTES, st.booleans()), max_size=5))
def test_no_bytes_in_any_file_stop_a_collector(strange: dict[str, tuple[bytes, bool]]) -> None:
    with machine() as made:
        for path, (content, instead) in strange.items():
            file = made.root / path.lstrip("/")
            before = file.read_bytes() if file.exists() and not instead else b""
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(before + content)
        look_with(memory.build(memory.Settings(), made.tree))
        look_with(cgroup.build(cgroup.Settings(), made.tree))
        look_with(process.build(process.Settings(), made.tree))


def look_with(collector: Collector) -> None:
    for after_s in (0.0, 60.0):
        try:
            samples = collector.collect(NOW.plus(after_s)).samples
        except Unavailable:
            continue
        assert all(isinstance(float(sample.value), float) for sample in samples)
    assert all(isinstance(sentence, str) for sentence in collector.cannot_see())
    if isinstance(collector, Closing):
        collector.close()
