from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from loadtest import overload
from loadtest.loops import StepRun
from loadtest.overload import load_figures
from loadtest.records import Failure, RequestRecord, Window
from tests.loadtest.tiny_server import Reply, Request, in_thread, reply

app = typer.Typer()
app.command()(overload.main)

MS = 1_000_000


def record(due_ms: int, took_ms: int, status: int = 200) -> RequestRecord:
    failure = None if status == 200 else Failure.STATUS
    start_ns, end_ns = due_ms * MS, (due_ms + took_ms) * MS
    return RequestRecord(start_ns, start_ns, end_ns, end_ns, status, failure, rows=1)


def figures(*records: RequestRecord, seconds: float = 1.0) -> overload.LoadFigures:
    return load_figures(StepRun(Window(0, 0, 1000 * MS, 1000 * MS), list(records), {}), seconds)


def test_refusals_are_no_answers_and_have_latencies_of_their_own() -> None:
    found = figures(*(record(index * 100, 50) for index in range(5)), *(record(0, 3, 503) for _ in range(15)))
    assert (found.offered_per_s, found.answers_per_s) == (20, 5)
    assert (found.answered_p99_ms, found.refused_p99_ms) == (50, 3)
    assert found.statuses == {200: 5, 503: 15}


def test_answers_that_come_after_the_load_take_their_time_as_well() -> None:
    assert figures(record(0, 50), record(900, 1100)).answers_per_s == 1


def test_without_answers_there_is_no_latency() -> None:
    found = figures(record(0, 5, 503))
    assert (found.answers_per_s, found.answered_p99_ms, found.refused_p99_ms) == (0, None, 5)


@pytest.fixture
def media(tmp_path: Path) -> Path:
    path = tmp_path / "page.png"
    path.write_bytes(b"a page")
    return path


class Choosy:
    """A server that answers every third request."""

    def __init__(self) -> None:
        self.numbers: Iterator[int] = itertools.count()
        self.wrong: list[Request] = []

    async def __call__(self, request: Request) -> Reply:
        if (request.method, request.path, request.body) != ("POST", "/v2/models/ocr/predict", b"a page"):
            self.wrong.append(request)
        return reply(503, b"too much") if next(self.numbers) % 3 else reply(200, b"{}")


def run(url: str, media: Path) -> tuple[int, str, str]:
    options = ["--url", url, "--factor", "0.5", "--seconds", "0.2"]
    result = CliRunner().invoke(app, ["ocr", str(media), *options])
    return result.exit_code, result.stdout, result.stderr


def test_both_loads_are_run_and_told(media: Path) -> None:
    server = Choosy()
    with in_thread(server) as url:
        code, out, _ = run(url, media)
    assert (code, server.wrong) == (0, [])
    outcome = json.loads(out)
    for load in (outcome["capacity"], outcome["overload"]):
        answered, refused = load["statuses"]["200"], load["statuses"]["503"]
        assert refused == pytest.approx(2 * answered, abs=12)
        assert load["example"] == {"http 503": "too much"}
    share = outcome["overload"]["answers_per_s"] / outcome["capacity"]["answers_per_s"]
    assert outcome["goodput_share"] == pytest.approx(share)


def test_a_server_that_answers_nothing_has_no_capacity(media: Path) -> None:
    async def refuse(request: Request) -> Reply:
        return reply(503, b"never")

    with in_thread(refuse) as url:
        code, _, error = run(url, media)
    assert code == 2
    assert "not one request was answered with 200" in error
    assert "never" in error
