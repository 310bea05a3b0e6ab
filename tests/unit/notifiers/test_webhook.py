"""What a webhook says, letter by letter, whom it tells, and which settings it refuses."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from bus.messages import Contribution, Exhaustion, Incident, Message
from notifiers.base import Context, Notice, notice_of
from notifiers.webhook import Settings, Webhook, build, retry_after_s
from runtime.clock import Instant, ManualClock
from runtime.errors import Misconfigured
from runtime.settings import Table, plugin_settings
from tests.unit.notifiers.notices import SCOPE, START, incident, refusal
from tests.unit.notifiers.receiver import KEY, SECRET

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "webhooks"
URL = "https://hooks.example/farside"
NOW = START.plus(2.6)

OPENED = Incident(
    id="4f1d2c3b5a69",
    scope=SCOPE,
    state="open",
    severity="critical",
    opened=START,
    updated=START.plus(1),
    evidence=(
        Contribution(signal="anon_bytes", nats=21.5, value=3.2e6, text='grows 3.1 MiB/s "ever on"'),
    ),
    sentence="container /jobs/7 on n1 leaks memory — the limit in 40 s",
    fault="memory_leak",
    exhaustion=Exhaustion(time=START.plus(40), low=START.plus(35), high=START.plus(50)),
)
CASES: dict[str, Message] = {
    "incident-opened": OPENED,
    "incident-closed": incident("closed", after_s=60),
    "action-refused": refusal("budget: 3 acts at once and 6 an hour are spent", after_s=1),
}


def notice(message: Message) -> Notice:
    made = notice_of(message)
    assert made is not None
    return made


def webhook(**settings: object) -> Webhook:
    given: dict[str, Any] = {"secret": SECRET, "url": URL, **settings}
    return build(Settings(**given), Context(ManualClock(START), "alpha"))


@pytest.mark.parametrize("name", CASES)
def test_a_request_is_the_golden_one(name: str) -> None:
    headers, body = webhook().post(notice(CASES[name]), NOW)
    said = "".join(f"{key}: {value}\n" for key, value in headers.items())
    assert said == (GOLDEN / f"{name}.headers").read_text("utf-8")
    assert body == (GOLDEN / f"{name}.json").read_bytes()


@pytest.mark.parametrize("name", CASES)
def test_what_it_says_of_an_incident_is_what_the_published_schema_describes(name: str) -> None:
    body = json.loads((GOLDEN / f"{name}.json").read_bytes())
    schemas = ROOT / "docs" / "reference" / "schemas"
    schema = json.loads((schemas / f"{body['data']['type']}.json").read_text("utf-8"))
    jsonschema.validate(body["data"], schema)


def told(*messages: Message, **settings: object) -> list[str]:
    """Return the states that a webhook with these settings wants of the messages."""
    telling = webhook(**settings)
    return [one.word for one in map(notice, messages) if telling.wants(one)]


def test_by_default_every_incident_is_told_and_no_refusal() -> None:
    assert told(incident("open", severity="info"), incident("closed"), refusal()) == [
        "open", "closed",
    ]  # fmt: skip


def test_severities_states_and_refusals_say_what_is_told() -> None:
    messages = (
        incident("open", severity="critical"),
        incident("open", severity="warning"),
        incident("acting", severity="critical"),
        refusal(),
    )
    assert told(*messages, severities=("critical",), states=("open",)) == ["open"]
    assert told(*messages, severities=(), refusals=True) == ["refused"]


def test_the_same_notice_has_the_same_id_and_every_other_another() -> None:
    messages = (
        incident(),
        incident(after_s=9),
        incident("acting"),
        incident(name="i2"),
        refusal(),
    )
    ids = [notice(message).id for message in messages]
    assert notice(incident()).id == ids[0]
    assert len(set(ids)) == len(messages)


@pytest.mark.parametrize(
    ("text", "patience_s"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("Mon, 30 Nov 2026 12:01:00 GMT", 57.0),
        ("Mon, 30 Nov 2026 11:00:00 GMT", 0.0),
        ("", 1.0),
        ("soon", 1.0),
        ("-5", 1.0),
        ("1" * 400, 1.0),
        ("Mon, 30 Nov 99999 12:01:00 GMT", 1.0),
    ],
)
def test_patience_is_asked_for_in_seconds_or_until_a_moment(text: str, patience_s: float) -> None:
    assert retry_after_s(text, Instant.parse("2026-11-30T12:00:03Z")) == patience_s


def configured(folder: Path, **table: object) -> Webhook:
    """Build one as the configuration file would."""
    if not (folder / "key").exists():
        (folder / "key").write_text(KEY + "\n")
    values = {"url": URL, "secret_file": "key", **table}
    settings = plugin_settings(Table(values, "notify.webhook", folder / "farside.toml"), Settings)
    return build(settings, Context(ManualClock(START), "alpha"))


def test_a_section_of_url_and_secret_file_is_enough(tmp_path: Path) -> None:
    assert configured(tmp_path).cannot() == []


def test_a_url_without_tls_is_said_to_be_open(tmp_path: Path) -> None:
    (sentence,) = configured(tmp_path, url="http://hooks.example:81/x?token=1").cannot()
    assert sentence.startswith("the webhook at http://hooks.example:81 is not encrypted")


def test_a_url_that_is_secret_stands_in_a_file_and_is_told_by_its_host(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("http://hooks.example/T0/B1/t0k3n\n")
    (sentence,) = configured(tmp_path, url="", private_url_file="url").cannot()
    assert "t0k3n" not in sentence


WRONG_KEYS = {
    "no prefix": KEY.removeprefix("whsec_"),
    "no base64": "whsec_" + "ä" * 40,
    "too short": "whsec_" + "YWJj",
    "too long": "whsec_" + "YWJj" * 22,
    "another kind": KEY.replace("whsec_", "whsk_"),
    "words before it": "secret=" + KEY,
}


@pytest.mark.parametrize("key", WRONG_KEYS.values(), ids=WRONG_KEYS)
def test_what_is_no_key_is_refused_with_the_remedy_and_not_shown(key: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(key + "\n")
    with pytest.raises(Misconfigured) as caught:
        configured(tmp_path)
    assert "notify.webhook secret_file must hold whsec_" in str(caught.value)
    assert "base64" in str(caught.value)
    assert key not in str(caught.value)


WRONG_TABLES: dict[str, tuple[dict[str, object], str]] = {
    "no url": ({"url": ""}, "set url"),
    "no web": ({"url": "ftp://a/"}, "must begin with https://"),
    "no host": ({"url": "https:///path"}, "name a host"),
    "no url at all": ({"url": "https://a:b:c/"}, "is no URL"),
    "password": ({"url": "https://me:w0rd@a/"}, "put them into a header"),
    "no time": ({"timeout_s": 0}, "timeout_s"),
    "long time": ({"timeout_s": 60}, "timeout_s"),
    "severity": ({"severities": ["grave"]}, "severities"),
    "authority": ({"ca_file": "/nowhere/ca.pem"}, "ca_file"),
    "header of ours": ({"headers": {"Webhook-Id": {"value_file": "key"}}}, "Webhook-Id"),
    "header in two": ({"headers": {"A B": {"value_file": "key"}}}, "A B"),
    "header in plain": ({"headers": {"A": {"value": "x"}}}, "value_file"),
    "header of two lines": ({"headers": {"A": {"value_file": "lines"}}}, "one line"),
    "unknown": ({"uri": URL}, "did you mean"),
}


@pytest.mark.parametrize(("table", "says"), WRONG_TABLES.values(), ids=WRONG_TABLES)
def test_a_mistake_in_the_section_is_named(
    table: dict[str, object], says: str, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_text("a\r\nb: c\n")
    with pytest.raises(Misconfigured) as caught:
        configured(tmp_path, **table)
    assert says in str(caught.value)
    assert "w0rd" not in str(caught.value)
