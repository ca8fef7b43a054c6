"""The environment becomes settings, or an error that names variable, value and what is allowed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from service.errors import SettingsInvalid
from service.settings import PREFIX, Settings, load_settings

SECRET = "open sesame"


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.upper().startswith(PREFIX):
            monkeypatch.delenv(name)


def test_every_setting_has_a_default_and_a_description() -> None:
    settings = load_settings()
    assert settings.port == 8000
    assert settings.models is None
    assert settings.host == "127.0.0.1"
    assert all(field.description for field in Settings.model_fields.values())


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("repository", "/srv/models", Path("/srv/models")),
        ("host", "::1", "::1"),
        ("port", "0", 0),
        ("port", "65535", 65535),
        ("models", '["resnet50", "ocr"]', ("resnet50", "ocr")),
        ("models", "[]", ()),
        ("cpu_threads", "3", 3),
        ("max_body_bytes", "1024", 1024),
        ("max_in_flight_bytes", "1048576", 1 << 20),
        ("max_image_pixels", "1", 1),
        ("body_timeout_s", "0.5", 0.5),
        ("max_connections", "1", 1),
        ("overload_status", "429", 429),
        ("overload_status", "503", 503),
        ("drain_timeout_s", "0", 0.0),
        ("exit_on_error", "false", False),
        ("repository_control_enabled", "0", False),
        ("metrics_enabled", "no", False),
        ("triton_metrics_enabled", "FALSE", False),
        ("server_timing_enabled", "true", True),
        ("log_level", "debug", "debug"),
    ],
)
def test_a_variable_becomes_a_value(monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object) -> None:
    monkeypatch.setenv(PREFIX + name.upper(), text)
    assert getattr(load_settings(), name) == value


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("port", "http", "got 'http', input should be a valid integer"),
        ("port", "65536", "got '65536', input should be less than or equal to 65535"),
        ("port", "-1", "input should be greater than or equal to 0"),
        ("port", "", "got ''"),
        ("port", "tcp://10.0.0.1:8000", "got 'tcp://10.0.0.1:8000'"),
        ("models", "resnet50", "got 'resnet50', a list is written as JSON, such as [\"resnet50\"]"),
        ("models", "[1]", "got 1, input should be a valid string"),
        ("models", '{"a": 1}', 'a list is written as JSON, such as ["resnet50"]'),
        ("cpu_threads", "0", "input should be greater than or equal to 1"),
        ("max_body_bytes", "1023", "input should be greater than or equal to 1024"),
        ("max_body_bytes", "64MB", "got '64MB'"),
        ("max_in_flight_bytes", "1", "input should be greater than or equal to 1048576"),
        ("max_image_pixels", "0", "input should be greater than or equal to 1"),
        ("body_timeout_s", "0", "input should be greater than 0"),
        ("body_timeout_s", "inf", "input should be a finite number"),
        ("body_timeout_s", "nan", "input should be a finite number"),
        ("max_connections", "0", "input should be greater than or equal to 1"),
        ("drain_timeout_s", "-1", "input should be greater than or equal to 0"),
        ("drain_timeout_s", "Infinity", "input should be a finite number"),
        ("overload_status", "500", "input should be 503 or 429"),
        ("overload_status", "busy", "got 'busy', input should be 503 or 429"),
        ("overload_status", "\u00b2", "input should be 503 or 429"),
        ("exit_on_error", "perhaps", "got 'perhaps', input should be a valid boolean"),
        ("log_level", "loud", "input should be 'debug', 'info', 'warning' or 'error'"),
    ],
)
def test_a_bad_variable_is_named_with_its_value(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, says: str
) -> None:
    monkeypatch.setenv(PREFIX + name.upper(), text)
    with pytest.raises(SettingsInvalid) as caught:
        load_settings()
    assert caught.value.message.startswith(f"{PREFIX}{name.upper()}: got ")
    assert says in caught.value.message


def test_every_bad_variable_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERLANE_PORT", "x")
    monkeypatch.setenv("INFERLANE_CPU_THREADS", "-2")
    with pytest.raises(SettingsInvalid, match=r"INFERLANE_PORT: got 'x'.*; INFERLANE_CPU_THREADS: got '-2'"):
        load_settings()


def test_options_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERLANE_PORT", "1")
    monkeypatch.setenv("INFERLANE_HOST", "0.0.0.0")
    settings = load_settings(port=2)
    assert (settings.port, settings.host) == (2, "0.0.0.0")


def test_a_bad_option_is_named_as_its_variable() -> None:
    with pytest.raises(SettingsInvalid, match="INFERLANE_PORT: got 70000, input should be less than or equal to 65535"):
        load_settings(port=70000)
    with pytest.raises(SettingsInvalid, match="INFERLANE_PROT: got 1"):
        load_settings(prot=1)


def test_secrets_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERLANE_API_KEY", SECRET)
    monkeypatch.setenv("INFERLANE_ADMIN_API_KEY", SECRET)
    settings = load_settings()
    assert settings.api_key is not None
    assert settings.api_key.get_secret_value() == SECRET
    shown = (repr(settings), str(settings), settings.model_dump_json(), repr(settings.model_dump()))
    assert not any(SECRET in text for text in shown)
    monkeypatch.setenv("INFERLANE_PORT", "x")
    with pytest.raises(SettingsInvalid) as caught:
        load_settings()
    assert SECRET not in repr(caught.value)
    assert caught.value.__cause__ is None


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load_settings().port = 1  # type: ignore[misc]
