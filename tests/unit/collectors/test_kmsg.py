"""Records of /dev/kmsg from bytes: whatever comes, in whatever pieces."""

from hypothesis import example, given
from hypothesis import strategies as st

from collectors.kernel_faults import Recogniser
from collectors.kmsg import LINE_BYTES_MAX, Parser, Record
from runtime.clock import Instant


def test_a_record_is_read_and_the_lines_of_its_device_are_passed_over() -> None:
    parser = Parser()
    found = parser.feed(
        b"30,160,424069,-;pci_root PNP0A03:00: bus\n SUBSYSTEM=acpi\n DEVICE=+acpi:1\n"
    )
    assert found == [Record(3, 6, 160, 424069, "pci_root PNP0A03:00: bus")]


def test_what_the_kernel_escaped_is_turned_back() -> None:
    (found,) = Parser().feed(rb"4,1,2,-;/a\x5cx2db \xc3\xa9 one\x0atwo" + b"\n")
    assert found.text == "/a\\x2db é one\ntwo"


def test_fields_that_newer_kernels_add_are_passed_over() -> None:
    (found,) = Parser().feed(b"6,1,2,-,caller=T77,new=1;text; more\n")
    assert found.text == "text; more"


def test_what_is_no_record_is_counted() -> None:
    parser = Parser()
    found = parser.feed(
        b"\nhello\n1,2;short\n1,x,3,-;letters\n,,,;empty\n" + b"9" * 99 + b",1,1;n\n"
    )
    assert (found, parser.malformed) == ([], 5)


def test_of_a_line_without_end_the_rest_is_cut_and_the_next_is_read() -> None:
    parser = Parser()
    found = parser.feed(b"6,1,1,-;" + b"a" * LINE_BYTES_MAX)
    for _ in range(100):
        found += parser.feed(b"b" * LINE_BYTES_MAX)
    found += parser.feed(b"end\n6,2,2,-;next\n")
    assert [(one.sequence, len(one.text), one.text[-1]) for one in found] == [
        (1, LINE_BYTES_MAX - len(b"6,1,1,-;"), "a"),
        (2, 4, "t"),
    ]


PIECES = st.lists(
    st.one_of(
        st.binary(max_size=60),
        st.sampled_from(
            [
                b"6,1,2,-;text\n",
                b"3,2,9,-;NVRM: Xid (PCI:0000:44:00): 79, x\n",
                b"3,3,9,-;oom-kill:constraint=,task_memcg=,task=,pid=,uid=\n",
                b"3,4,9,-;Memory cgroup out of memory: Killed process 1 (\n",
                b"3,5,9,-;INFO: task :1 blocked for more than 9 seconds\n",
                b" KEY=value\n",
                b"\n",
            ]
        ),
    ),
    max_size=12,
)


@given(PIECES)
@example([b"6,1,1,-;" + b"(" * 9000 + b"\n", b"6,2,2,-;after\n"])
@example([b"6,1,1,-;\\x\\xg\\x0\n"])
def test_no_bytes_stop_the_reader(pieces: list[bytes]) -> None:
    parser, reader = Parser(), Recogniser()
    for piece in pieces:
        for one in parser.feed(piece):
            line = reader.take(one, Instant(0))
            assert line is None or all(text.isprintable() for text in line.fields.values())


@given(PIECES, st.data())
def test_how_the_bytes_are_cut_changes_nothing(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    at = data.draw(st.integers(0, len(whole)))
    one, two = Parser(), Parser()
    cut = [*two.feed(whole[:at]), *two.feed(whole[at:])]
    assert (one.feed(whole), one.malformed) == (cut, two.malformed)
