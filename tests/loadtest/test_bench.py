from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from loadtest import bench
from loadtest.figures import summarise
from loadtest.loops import StepRun
from loadtest.records import Failure
from loadtest.report import StepReport
from loadtest.scenario import Step
from tests.loadtest.test_figures import WINDOW, record
from tests.loadtest.tiny_server import Reply, Request, in_thread, inference_server, reply

app = typer.Typer()
app.command()(bench.main)
SHORT = ("--duration", "0.1", "--warm-up", "0.02")


@pytest.fixture
def url() -> Iterator[str]:
    with in_thread(inference_server) as url:
        yield url


def test_a_closed_loop_writes_its_figures(url: str, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    arguments = ["m", "--url", url, "--concurrency", "2", "--rows", "1,2", "--json", str(path), "--duration", "0.5"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "closed c=2" in result.output
    document = json.loads(path.read_bytes())
    assert (document["model"], document["url"]) == ("m", url)
    assert document["generator"]["cores"] >= 1
    step = document["steps"][0]
    assert step["step"]["rows"] == [1, 2]
    assert step["summary"]["latency"]["p50_ms"] > 0
    assert step["summary"]["stages_ms"] == {"queue": 0.5, "compute": 2.0}


def test_an_open_loop_on_json(url: str, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    arguments = [
        "m",
        "--url",
        url,
        "--rate",
        "100",
        "--arrivals",
        "constant",
        "--wire",
        "json",
        "--objective-ms",
        "1000",
    ]
    result = CliRunner().invoke(app, [*arguments, "--json", str(path), *SHORT])
    assert result.exit_code == 0, result.output
    summary = json.loads(path.read_bytes())["steps"][0]["summary"]
    assert summary["requests"] == summary["succeeded"] == 10
    assert summary["goodput_per_s"] == 100.0


def test_a_scenario(url: str, tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text("[[step]]\nlabel = 'one'\nconcurrency = 1\n[[step]]\nlabel = 'two'\ncapacity_fraction = 0.1\n")
    result = CliRunner().invoke(app, ["m", "--url", url, "--scenario", str(path), *SHORT])
    assert result.exit_code == 0, result.output
    assert "one" in result.output
    assert "two" in result.output


def test_a_sweep_writes_every_combination_and_what_limited_it(url: str, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    loads = ["--concurrency", "1", "--concurrency", "2", "--rate", "50", "--rows", "1", "--rows", "2,3"]
    options = ["--processes", "2", "--server-pid", str(os.getpid()), "--json", str(path)]
    result = CliRunner().invoke(app, ["m", "--url", url, *loads, *options, *SHORT])
    assert result.exit_code == 0, result.output
    document = json.loads(path.read_bytes())
    assert document["generator"]["processes"] == 2
    steps = document["steps"]
    assert [step["step"]["label"] for step in steps] == [
        f"{load} rows={rows}" for rows in ("1", "2,3") for load in ("closed c=1", "closed c=2", "poisson 50/s")
    ]
    assert [len(step["seen"]["clients"]) for step in steps] == [1, 2, 2] * 2
    assert all(os.getpid() in [load["pid"] for load in step["seen"]["servers"]] for step in steps)
    assert all(step["verdict"]["evidence"] for step in steps)
    assert "limited by" in result.output


STAND_IN = shlex.join([sys.executable, "-m", "tests.loadtest.stand_in"])


@pytest.mark.e2e
def test_servers_are_started_with_each_number_of_front_ends(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    options = ["--serve", str(tmp_path), "--serve-command", STAND_IN, "--frontends", "0", "--frontends", "2"]
    result = CliRunner().invoke(app, ["cnn", *options, "--json", str(path), *SHORT])
    assert result.exit_code == 0, result.output
    steps = json.loads(path.read_bytes())["steps"]
    assert [step["frontends"] for step in steps] == [0, 2]
    assert [step["seen"]["servers"][0]["name"] for step in steps] == ["tests.loadtest.stand_in"] * 2
    for title in ("N=0 closed c=1", "N=2 closed c=1"):
        assert title in result.output


def test_what_was_measured_before_a_failure_is_written(url: str, tmp_path: Path) -> None:
    path, scenario = tmp_path / "out.json", tmp_path / "scenario.toml"
    scenario.write_text("[[step]]\nconcurrency = 1\n[[step]]\nconcurrency = 1\ndims = { none = [1] }\n")
    result = CliRunner().invoke(app, ["m", "--url", url, "--scenario", str(scenario), "--json", str(path), *SHORT])
    assert result.exit_code == 2
    assert "none" in result.output
    assert len(json.loads(path.read_bytes())["steps"]) == 1


def test_failed_requests_are_told_by_the_exit_status() -> None:
    seen = 0

    async def tired(request: Request) -> Reply:
        nonlocal seen
        seen += request.method == "POST"
        return await inference_server(request) if seen < 10 else reply(503, b'{"error": "queue full"}')

    with in_thread(tired) as url:
        result = CliRunner().invoke(app, ["m", "--url", url, "--duration", "0.2", "--warm-up", "0"])
    assert result.exit_code == 1
    assert "http 503" in result.output
    assert "queue full" in result.output


def test_a_failure_that_says_no_more_than_its_label_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    records = [record(200, 300, Failure.UNANSWERED, status=0), record(200, 210, Failure.STATUS, status=503)]
    examples = {"unanswered at the end": "unanswered at the end", "http 503": "queue full"}
    summary = summarise(StepRun(WINDOW, records, examples))
    bench._print("m", [StepReport(Step(concurrency=1), None, summary)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["closed c=1: 1 x http 503: queue full", "closed c=1: 1 x unanswered at the end"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--url", "nowhere"], "expected http"),
        (["--rows", "x"], "positive integers"),
        (["--dim", "width"], "NAME=SIZES"),
        (["--scenario", "missing.toml", "--rate", "1"], "loads of its own"),
        (["--scenario", "missing.toml", "--rows", "1", "--rows", "2"], "all sweeps out"),
        (["--frontends", "1"], "give --serve REPOSITORY"),
        (["--serve", "models", "--server-pid", "1"], "leave --server-pid out"),
        (["--serve", "models", "--serve-command", "no-such-program"], "cannot be started"),
        (["--scenario", "missing.toml"], "missing.toml"),
        (["--header", "secret-without-colon"], "'Name: value'"),
        (["--header", "X: a\r\nY: b"], "'Name: value'"),
    ],
)
def test_mistakes_exit_with_2_and_say_what_to_give(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["m", *arguments])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert "secret" not in result.output
