import tomllib
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import Misconfigured
from runtime.settings import Secret, Table, plugin_settings, read, written


class Http(msgspec.Struct, frozen=True, kw_only=True):
    address: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 9464
    token: Secret | None = None


class Farside(msgspec.Struct, frozen=True, kw_only=True):
    node: str | None = None
    state_dir: Path = Path("/var/lib/farside")
    level: Literal["debug", "info", "warning"] = "info"


class Detect(msgspec.Struct, frozen=True, kw_only=True):
    forget_s: Annotated[float, msgspec.Meta(gt=0)] = 600.0
    widths_s: tuple[int, ...] = (2, 4)
    learn: bool = True

    def __post_init__(self) -> None:
        if self.widths_s and max(self.widths_s) > self.forget_s:
            raise ValueError("widths_s must stay below forget_s: shorten a width")


class Act(msgspec.Struct, frozen=True, kw_only=True):
    actions: tuple[Literal["freeze", "notify"], ...]


Name = Annotated[str, msgspec.Meta(pattern="^[a-z]+$", description="a name in small letters")]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    farside: Farside = Farside()
    http: Http = Http()
    detect: Detect = Detect()
    notify: dict[str, Table] = {}
    act: dict[str, dict[str, Act]] = {}
    faults: dict[Literal["leak", "hang"], dict[Name, Act]] = {}
    racks: Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=3)] = ("a",)


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    retries: int = 3
    key: Secret = Secret("")


def given_file(folder: Path, text: str, **environ: str) -> Settings:
    file = folder / "farside.toml"
    file.write_text(text)
    return read(file, Settings, environ)


def complaint(folder: Path, text: str, **environ: str) -> str:
    with pytest.raises(Misconfigured) as caught:
        given_file(folder, text, **environ)
    return str(caught.value).replace(str(folder), "DIR")


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    settings = given_file(tmp_path, "\ufeff[http]\r\nport = 7\r\n")
    assert settings.http.port == 7


def test_a_value_of_the_environment_is_named_where_keys_contradict_each_other(
    tmp_path: Path,
) -> None:
    sentence = complaint(tmp_path, "", FARSIDE__DETECT__WIDTHS_S="[700]")
    assert sentence == (
        "FARSIDE__DETECT__WIDTHS_S (environment): detect widths_s must stay below forget_s: "
        "shorten a width"
    )


def test_without_a_file_and_variables_the_defaults_hold() -> None:
    assert read(None, Settings, {"HOME": "/"}) == Settings()


def test_the_files_values_replace_the_defaults(tmp_path: Path) -> None:
    settings = given_file(
        tmp_path,
        """
        farside = { node = "n1", state_dir = "/srv/f" }
        http.port = 1
        [act.job.batch]
        actions = ["freeze"]
        """,
    )
    assert settings == Settings(
        farside=Farside(node="n1", state_dir=Path("/srv/f")),
        http=Http(port=1),
        act={"job": {"batch": Act(actions=("freeze",))}},
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[http]\nprot = 1",
            (
                "DIR/farside.toml: http.prot is no known key: did you mean http.port? "
                "(known here: address, port, token_file)"
            ),
        ),
        (
            "[htp]\nport = 1",
            (
                "DIR/farside.toml: htp is no known key: did you mean http? "
                "(known here: farside, http, detect, notify, act, faults, racks)"
            ),
        ),
        (
            '[http]\nport = "eighty"',
            "DIR/farside.toml: http.port must be a whole number from 0 to 65535, not 'eighty'",
        ),
        (
            "[http]\nport = 70000",
            "DIR/farside.toml: http.port must be a whole number from 0 to 65535, not 70000",
        ),
        (
            "[detect]\nforget_s = 0",
            "DIR/farside.toml: detect.forget_s must be a number above 0, not 0",
        ),
        (
            "[detect]\nforget_s = nan",
            "DIR/farside.toml: detect.forget_s must be a number above 0, not nan",
        ),
        (
            "[detect]\nlearn = 1",
            "DIR/farside.toml: detect.learn must be true or false, not 1",
        ),
        (
            "[detect]\nwidths_s = [2, true]",
            (
                "DIR/farside.toml: detect.widths_s must be a list, each entry a whole number, "
                "not true (entry 2)"
            ),
        ),
        (
            '[farside]\nlevel = "warn"',
            (
                "DIR/farside.toml: farside.level must be one of 'debug', 'info', 'warning', "
                "not 'warn'; did you mean 'warning'?"
            ),
        ),
        (
            "[detect]\nwidths_s = [700]",
            "DIR/farside.toml: detect widths_s must stay below forget_s: shorten a width",
        ),
        (
            "[act.job.batch]",
            (
                "DIR/farside.toml: act.job.batch.actions is missing: "
                "set it to a list, each entry one of 'freeze', 'notify'"
            ),
        ),
        ("http = 5", "DIR/farside.toml: http must be a section ([…]), not a value"),
        (
            "act.job = 5",
            "DIR/farside.toml: act.job must be a section ([…]), not 5",
        ),
        ("notify.mail = 5", "DIR/farside.toml: notify.mail must be a section ([…]), not a value"),
        (
            '[http]\ntoken = "hunter2"',
            (
                "DIR/farside.toml: http.token is a secret and not written here: "
                "put it into a file and set token_file"
            ),
        ),
        (
            '[http]\ntoken_file = "absent"',
            (
                "DIR/farside.toml: http.token_file names absent, which can't be read: "
                "no such file or directory"
            ),
        ),
        (
            "[faults.leek.a]",
            (
                "DIR/farside.toml: faults.leek is no known key: did you mean faults.leak? "
                "(known here: hang, leak)"
            ),
        ),
        (
            "[faults.leak.A1]",
            ("DIR/farside.toml: faults.leak.A1 is no name that fits: use a name in small letters"),
        ),
        (
            '[act."".x]',
            'DIR/farside.toml: act."" is no name: write one in letters',
        ),
        (
            '[notify."a\\u0007"]',
            'DIR/farside.toml: notify."a\\u0007" is no name: write one in letters',
        ),
        (
            "racks = []",
            (
                "DIR/farside.toml: racks must be a list of 1 to 3 entries, each entry a name in "
                "small letters, not an empty list"
            ),
        ),
        (
            "racks = ['a', 'B']",
            (
                "DIR/farside.toml: racks must be a list of 1 to 3 entries, each entry a name in "
                "small letters, not 'B' (entry 2)"
            ),
        ),
        ("racks = ['b', 'a', 'b']", "DIR/farside.toml: racks names 'b' twice: leave one out"),
        (
            "[act.job.batch]\nactions = ['notify', 'freez']",
            (
                "DIR/farside.toml: act.job.batch.actions must be a list, each entry one of "
                "'freeze', 'notify', not 'freez' (entry 2); did you mean 'freeze'?"
            ),
        ),
        (
            '[farside]\nnode = "a\\nb"',
            "DIR/farside.toml: farside.node has a control character in 'a\\nb': leave it out",
        ),
        ("[farside]\nnode = inf", "DIR/farside.toml: farside.node must be text, not inf"),
        (
            "[http]\nport = 99999999999999999999",
            (
                "DIR/farside.toml: http.port must be a whole number from 0 to 65535, "
                "not an integer of 67 bits"
            ),
        ),
        (
            "[detect]\nforget_s = 99999999999999999999",
            (
                "DIR/farside.toml: detect.forget_s must be a number above 0, "
                "not an integer of 67 bits"
            ),
        ),
        (
            "a = " + "[" * 5000 + "]" * 5000,
            "DIR/farside.toml: its lists or tables lie too deep in each other",
        ),
        (
            "#" * (5 << 20),
            "DIR/farside.toml is longer than 4 MiB: name a configuration",
        ),
        ("[http", "DIR/farside.toml is no TOML: Expected ']' at the end of a table declaration"),
    ],
)
def test_a_mistake_is_one_sentence_with_file_key_and_remedy(
    tmp_path: Path, text: str, expected: str
) -> None:
    assert complaint(tmp_path, text).partition(" (at ")[0] == expected


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"farside.toml: there is no such file$"):
        read(tmp_path / "farside.toml", Settings, {})


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "farside.toml").write_bytes(b"a = \xff")
    with pytest.raises(Misconfigured, match="is no text in UTF-8"):
        read(tmp_path / "farside.toml", Settings, {})


def test_a_variable_overlays_the_file(tmp_path: Path) -> None:
    settings = given_file(
        tmp_path,
        "http.port = 1\n[act.Job.GPU]\nactions = []",
        FARSIDE__HTTP__PORT="2",
        FARSIDE__FARSIDE__NODE="0421",
        FARSIDE__DETECT__LEARN="false",
        FARSIDE__DETECT__WIDTHS_S="[8, 16]",
        FARSIDE__ACT__JOB__GPU__ACTIONS='["notify"]',
        FARSIDE_HOME="not ours",
    )
    assert settings.http.port == 2
    assert settings.farside.node == "0421"
    assert settings.detect == Detect(learn=False, widths_s=(8, 16))
    assert settings.act == {"Job": {"GPU": Act(actions=("notify",))}}


def test_a_digits_only_variable_is_text_where_text_is_wanted(tmp_path: Path) -> None:
    assert given_file(tmp_path, "", FARSIDE__FARSIDE__NODE="12").farside.node == "12"


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        (
            "FARSIDE__HTTP__PORT",
            "eighty",
            (
                "FARSIDE__HTTP__PORT (environment): http.port must be a whole number "
                "from 0 to 65535, not 'eighty'"
            ),
        ),
        (
            "FARSIDE__HTPP__PORT",
            "80",
            (
                "FARSIDE__HTPP__PORT (environment): htpp is no known key: did you mean http? "
                "(known here: farside, http, detect, notify, act, faults, racks)"
            ),
        ),
        (
            "FARSIDE__HTTP__PORT__X",
            "80",
            "FARSIDE__HTTP__PORT__X: port is no section of the file",
        ),
    ],
)
def test_a_mistake_in_a_variable_names_the_variable(
    tmp_path: Path, variable: str, value: str, expected: str
) -> None:
    assert complaint(tmp_path, "http.port = 1", **{variable: value}) == expected


def test_a_secret_comes_from_the_file_that_its_key_names(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hunter2\n")
    token = given_file(tmp_path, 'http.token_file = "token"').http.token
    assert token is not None
    assert token.reveal() == "hunter2"
    assert "hunter2" not in f"{token} {token!r} {[token]}"


def test_an_empty_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    assert "which is empty: put the secret into it" in complaint(
        tmp_path, 'http.token_file = "token"'
    )


def test_a_plug_ins_section_is_read_by_the_plug_in(tmp_path: Path) -> None:
    settings = given_file(
        tmp_path,
        '[notify.webhook]\nurl = "u"',
        FARSIDE__NOTIFY__WEBHOOK__RETRIES="7",
    )
    assert plugin_settings(settings.notify["webhook"], Webhook) == Webhook(url="u", retries=7)


def test_a_mistake_in_a_plug_ins_section_names_file_and_whole_key(tmp_path: Path) -> None:
    settings = given_file(tmp_path, "[notify.webhook]\nurll = 'u'")
    with pytest.raises(Misconfigured, match=r"farside.toml: notify.webhook.urll is no known key"):
        plugin_settings(settings.notify["webhook"], Webhook)


def test_what_is_written_out_reads_back_the_same(tmp_path: Path) -> None:
    settings = given_file(
        tmp_path,
        """
        [farside]
        node = 'a "b" \u00fc'
        [notify.webhook]
        url = "u"
        [act.job."my pool"]
        actions = ["freeze"]
        """,
    )
    text = written(settings)
    (tmp_path / "again.toml").write_text(text)
    again = read(tmp_path / "again.toml", Settings, {})
    assert written(again) == text
    assert (again.farside, again.act) == (settings.farside, settings.act)


def test_what_is_written_out_shows_plug_ins_defaults_and_no_secret(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hunter2")
    settings = given_file(tmp_path, '[notify.webhook]\nurl = "u"\nkey_file = "key"')
    webhook = plugin_settings(settings.notify["webhook"], Webhook)
    text = written(settings, {"notify.webhook": webhook})
    assert "hunter2" not in text
    assert tomllib.loads(text)["notify"]["webhook"] == {"url": "u", "retries": 3, "key": "***"}


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10**6) | st.text(max_size=5) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(["url", "retries", "key", "key_file", "x"]), json_like, max_size=4
    )
)
def test_no_value_whatever_gives_anything_but_settings_or_a_sentence(
    values: dict[str, object],
) -> None:
    try:
        outcome = repr(plugin_settings(Table(values, "notify.webhook"), Webhook))
    except Misconfigured as error:
        outcome = str(error)
    assert outcome.startswith(("Webhook(", "configuration: notify.webhook"))
