from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from tests.loadtest.tiny_server import Handler, Reply, Request, in_thread, inference_server, reply

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.e2e


def locust(
    handler: Handler, tmp_path: Path, *options: str
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, str]]]:
    """Locust in a process of its own: it replaces sockets and threads by gevent's as soon as it is imported."""
    pytest.importorskip("geventhttpclient")
    with in_thread(handler) as url:
        arguments = [
            "--headless",
            "-u",
            "4",
            "-r",
            "4",
            "-t",
            "3s",
            "--host",
            url,
            "--csv",
            str(tmp_path / "out"),
            *options,
        ]
        result = subprocess.run(
            [sys.executable, "-m", "locust", "-f", "loadtest/locustfile.py", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    with (tmp_path / "out_stats.csv").open(newline="") as file:
        return result, list(csv.DictReader(file))


def test_both_kinds_of_user_mix_rows(tmp_path: Path) -> None:
    result, rows = locust(inference_server, tmp_path, "--model", "m", "--rows", "1,3")
    assert result.returncode == 0, result.stderr
    counts = {row["Name"]: (int(row["Request Count"]), int(row["Failure Count"])) for row in rows}
    assert set(counts) == {f"{wire} rows={count}" for wire in ("binary", "json") for count in (1, 3)} | {"Aggregated"}
    assert all(requests > 0 and failures == 0 for requests, failures in counts.values())


def test_throughput_per_user_is_kept(tmp_path: Path) -> None:
    result, rows = locust(inference_server, tmp_path, "--model", "m", "--throughput-per-user", "5")
    assert result.returncode == 0, result.stderr
    assert 4 <= int(rows[-1]["Request Count"]) <= 64  # four users, at most three seconds, 5/s each, the first at once


def test_answers_without_the_outputs_fail(tmp_path: Path) -> None:
    async def empty(request: Request) -> Reply:
        return await inference_server(request) if request.method == "GET" else reply(200, b'{"outputs": []}')

    result, rows = locust(empty, tmp_path, "--model", "m", "--throughput-per-user", "5")
    assert result.returncode == 1
    assert int(rows[-1]["Failure Count"]) == int(rows[-1]["Request Count"]) > 0
    assert "are missing" in (tmp_path / "out_failures.csv").read_text()


def test_an_unknown_model_ends_the_run(tmp_path: Path) -> None:
    async def nothing(request: Request) -> Reply:
        return reply(404, b"{}")

    result, rows = locust(nothing, tmp_path, "--model", "nope")
    assert result.returncode == 2
    assert "model 'nope'" in result.stderr + result.stdout
    assert int(rows[-1]["Request Count"]) == 0
