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
        ("send_timeout_s", "86400", 86400.0),
        ("max_connections", "1", 1),
        ("overload_status", "429", 429),
        ("overload_status", "503", 503),
        ("drain_timeout_s", "0", 0.0),
        ("exit_on_error", "false", False),
        ("repository_control_enabled", "0", False),
        ("metrics_enabled", "no", False),
        ("triton_metrics_enabled", "FALSE", False),
        ("gpu_metrics_enabled", "false", False),
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
        ("host", "", "got '', an address is needed, such as 127.0.0.1, or 0.0.0.0 for every interface"),
        ("host", " ", "an address is needed"),
        ("models", "resnet50", "got 'resnet50', a list is written as JSON, such as [\"resnet50\"]"),
        ("models", "[1]", "got 1, input should be a valid string"),
        ("models", '{"a": 1}', 'a list is written as JSON, such as ["resnet50"]'),
        ("cpu_threads", "100000", "input should be less than or equal to 1024"),
        ("body_timeout_s", "1e300", "input should be less than or equal to 86400"),
        ("send_timeout_s", "86401", "input should be less than or equal to 86400"),
        ("send_timeout_s", "0", "input should be greater than 0"),
        ("drain_timeout_s", "1e300", "input should be less than or equal to 86400"),
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


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("INFERLANE_PROT", "INFERLANE_PROT is no setting; did you mean INFERLANE_PORT?"),
        ("INFERLANE_MAX_BODY_BYTE", "did you mean INFERLANE_MAX_BODY_BYTES?"),
        ("INFERLANE_APIKEY", "did you mean INFERLANE_API_KEY?"),
        ("INFERLANE_ADMIN_KEY", "did you mean INFERLANE_ADMIN_API_KEY?"),
        ("inferlane_prot", "inferlane_prot is no setting; did you mean INFERLANE_PORT?"),
        ("INFERLANE_XYZZY", "INFERLANE_XYZZY is no setting; there are INFERLANE_REPOSITORY, INFERLANE_HOST"),
        ("INFERLANE_", "INFERLANE_ is no setting; "),
        ("INFERLANE_SERVICE_HOSTS", "INFERLANE_SERVICE_HOSTS is no setting"),
        ("INFERLANE_PORT_HTTP", "INFERLANE_PORT_HTTP is no setting; did you mean INFERLANE_PORT?"),
        ("INFERLANE_HTTP_PORT", "INFERLANE_HTTP_PORT is no setting; did you mean INFERLANE_PORT?"),
    ],
)
def test_a_variable_that_is_no_setting_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, says: str) -> None:
    """A key that is misspelt would leave the server open."""
    monkeypatch.setenv(name, "1")
    with pytest.raises(SettingsInvalid) as caught:
        load_settings()
    assert says in caught.value.message


def test_every_unknown_variable_is_named_at_once_and_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERLANE_APIKEY", SECRET)
    monkeypatch.setenv("INFERLANE_HOTS", "x")
    with pytest.raises(SettingsInvalid, match=r"INFERLANE_APIKEY is no setting;.*; INFERLANE_HOTS is no") as caught:
        load_settings()
    assert SECRET not in caught.value.message


def test_variables_of_other_programs_are_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERLANES_PORT", "x")
    monkeypatch.setenv("MY_INFERLANE_PORT", "x")
    assert load_settings().port == 8000


SERVICE_VARIABLES = {
    "SERVICE_HOST": "10.0.0.1",
    "SERVICE_PORT": "80",
    "SERVICE_PORT_HTTP": "80",
    "PORT": "tcp://10.0.0.1:80",
    "PORT_80_TCP": "tcp://10.0.0.1:80",
    "PORT_80_TCP_PROTO": "tcp",
    "PORT_80_TCP_PORT": "80",
    "PORT_80_TCP_ADDR": "10.0.0.1",
    "PORT_53_UDP": "udp://10.0.0.1:53",
}


@pytest.mark.parametrize("service", ["INFERLANE", "INFERLANE_METRICS", "INFERLANE_GPU_2"])
def test_what_an_orchestrator_says_of_a_service_is_passed_over(monkeypatch: pytest.MonkeyPatch, service: str) -> None:
    """Of services named inferlane, inferlane-metrics, ..."""
    for name, text in SERVICE_VARIABLES.items():
        monkeypatch.setenv(f"{service}_{name}", text)
    assert load_settings().port == 8000
    assert load_settings(port=9000).port == 9000


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


def test_threads_that_are_not_given_are_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.settings.default_threads", lambda: 7)
    assert load_settings().resolved_cpu_threads == 7
    assert load_settings(cpu_threads=3).resolved_cpu_threads == 3
