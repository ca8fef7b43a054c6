"""`inferlane diagnose`: what it asks, what it prints, how it ends."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from service import cli
from service.diagnosis.document import to_json
from service.diagnosis.report import diagnose
from service.errors import DiagnosisUnavailable
from tests.doubles import faults
from tests.doubles.snapshots import healthy


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, str], str | None]]:
    """Answers every question with an overloaded server, and keeps the questions."""
    questions: list[tuple[str, dict[str, str], str | None]] = []
    document = to_json(diagnose(faults.overload(), report_id="r1"))

    def fetch(url: str, query: dict[str, str], *, api_key: str | None = None) -> object:
        questions.append((url, query, api_key))
        return document

    monkeypatch.setattr("service.diagnosis_text.client.fetch", fetch)
    return questions


def test_a_bottleneck_is_shown_and_told_by_the_exit_status(asked) -> None:
    result = CliRunner().invoke(cli.app, ["diagnose"])
    assert result.exit_code == 1
    assert "overload" in result.stdout
    assert asked == [("http://127.0.0.1:8000", {}, None)]


def test_options_become_the_query_and_the_key_is_the_setting(asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERLANE_API_KEY", "secret")
    CliRunner().invoke(cli.app, ["diagnose", "http://h:1", "--model", "m", "--window", "30", "--since", "r0"])
    assert asked == [("http://h:1", {"model": "m", "window": "30.0", "since": "r0"}, "secret")]


def test_json_for_scripts(asked) -> None:
    result = CliRunner().invoke(cli.app, ["diagnose", "--json"])
    assert json.loads(result.stdout)["id"] == "r1"
    assert result.exit_code == 1


def test_all_shows_what_speaks_against_the_others(asked) -> None:
    short, long = (CliRunner().invoke(cli.app, ["diagnose", *options]).stdout for options in ([], ["--all"]))
    assert len(long) > len(short)


@pytest.mark.parametrize(("admin_key", "used"), [("ours", "ours"), (None, "theirs")])
def test_experiments_are_run_first_with_the_admin_key(
    asked, monkeypatch: pytest.MonkeyPatch, admin_key: str | None, used: str
) -> None:
    monkeypatch.setenv("INFERLANE_API_KEY", "theirs")
    if admin_key is not None:
        monkeypatch.setenv("INFERLANE_ADMIN_API_KEY", admin_key)
    ran: list[tuple[object, ...]] = []

    def run_probes(url: str, model: str | None, mode: str, *, api_key: str | None, show: object) -> None:
        assert not asked
        ran.append((url, model, mode, api_key))

    monkeypatch.setattr("service.diagnosis_text.probes.run_probes", run_probes)
    CliRunner().invoke(cli.app, ["diagnose", "http://h:1", "--model", "m", "--probe", "exclusive"])
    assert ran == [("http://h:1", "m", "exclusive", used)]
    assert [key for _, _, key in asked] == ["theirs"]


def test_a_healthy_server_ends_it_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    document = to_json(diagnose(healthy(), report_id="r1"))
    monkeypatch.setattr("service.diagnosis_text.client.fetch", lambda *args, **options: document)
    result = CliRunner().invoke(cli.app, ["diagnose"])
    assert (result.exit_code, "no bottleneck above" in result.stdout) == (0, True)


def test_a_server_that_cannot_be_asked_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    result = CliRunner().invoke(cli.app, ["diagnose", "127.0.0.1:8000"])
    assert isinstance(result.exception, DiagnosisUnavailable)
