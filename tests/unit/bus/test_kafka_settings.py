"""`[bus.kafka]`: what can't work is refused where it stands; secrets stay secret."""

from pathlib import Path
from typing import Any

import pytest

from bus.kafka import Settings
from runtime.errors import Misconfigured
from runtime.settings import Secret, Table, plugin_settings

GOOD = {"bootstrap": ["kafka-1:9092", "[::1]:9092"]}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "bus.kafka.bootstrap is missing"),
        ({"bootstrap": []}, "bootstrap is empty"),
        ({"bootstrap": ["kafka-1"]}, "'kafka-1' is no address of the form host:port"),
        ({"bootstrap": ["kafka-1:99999"]}, "is no address"),
        (GOOD | {"security": "sasl_ssl"}, "needs username and password_file"),
        (GOOD | {"securty": "ssl"}, "did you mean bus.kafka.security"),
        (GOOD | {"cert_file": "a.pem"}, "cert_file needs key_file"),
        (GOOD | {"compression": "lzma"}, "must be one of"),
        (GOOD | {"request_timeout_s": 0}, "must be a number"),
        (GOOD | {"password": "hunter2"}, "set password_file"),
    ],
)
def test_a_wrong_section_is_one_sentence_that_names_the_key(
    values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(Misconfigured) as told:
        plugin_settings(Table(values, "bus.kafka"), Settings)
    assert sentence in str(told.value)
    assert "hunter2" not in str(told.value)


def test_the_client_gets_the_password_and_nobody_who_prints_settings_does() -> None:
    settings = Settings(
        bootstrap=("kafka-1:9092",),
        security="sasl_ssl",
        username="farside",
        password=Secret("hunter2"),
    )
    assert "hunter2" in settings.client("test").values()
    assert "hunter2" not in repr(settings)


def test_a_file_of_tls_that_is_not_there_is_named(tmp_path: Path) -> None:
    settings = Settings(bootstrap=("kafka-1:9092",), security="ssl", ca_file=tmp_path / "ca.pem")
    with pytest.raises(Misconfigured, match=r"bus\.kafka\.ca_file: .*ca\.pem can't be read"):
        settings.client("test")
