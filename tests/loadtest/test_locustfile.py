from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.loadtest.tiny_server import Handler, Reply, Request, in_thread, inference_server, reply

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.e2e


LOCUST_FAILED = 2
RUN_TIMES_S = (3, 20)
"""The second on a machine so busy that the first ends before the users have begun."""

Rows = list[dict[str, str]]


def every_user_has_begun(rows: Rows) -> bool:
    return requests(rows) >= 4


def locust(
    handler: Handler, tmp_path: Path, *options: str, is_enough: Callable[[Rows], bool] = every_user_has_begun
) -> tuple[subprocess.CompletedProcess[str], Rows, int]:
    """Locust in a process of its own: it replaces sockets and threads by gevent's as soon as it is imported.

    Returns the process, its statistics, and for how many seconds it ran.
    """
    for run_time_s in RUN_TIMES_S:
        result, rows = locust_for(run_time_s, handler, tmp_path, *options)
        if result.returncode == LOCUST_FAILED or is_enough(rows):
            break
    return result, rows, run_time_s


def requests(rows: Rows) -> int:
    return int(rows[-1]["Request Count"])


def locust_for(
    run_time_s: int, handler: Handler, tmp_path: Path, *options: str
) -> tuple[subprocess.CompletedProcess[str], Rows]:
    pytest.importorskip("geventhttpclient")
    with in_thread(handler) as url:
        arguments = [
            "--headless",
            "-u",
            "4",
            "-r",
            "4",
            "-t",
            f"{run_time_s}s",
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
    names = {f"{wire} rows={count}" for wire in ("binary", "json") for count in (1, 3)} | {"Aggregated"}
    result, rows, _ = locust(
        inference_server, tmp_path, "--model", "m", "--rows", "1,3", is_enough=lambda rows: len(rows) >= len(names)
    )
    assert result.returncode == 0, result.stderr
    counts = {row["Name"]: (int(row["Request Count"]), int(row["Failure Count"])) for row in rows}
    assert set(counts) == names
    assert all(requests > 0 and failures == 0 for requests, failures in counts.values())


def test_throughput_per_user_is_kept(tmp_path: Path) -> None:
    result, rows, run_time_s = locust(inference_server, tmp_path, "--model", "m", "--throughput-per-user", "5")
    assert result.returncode == 0, result.stderr
    assert 4 <= requests(rows) <= 4 * (5 * run_time_s + 1)  # four users, 5/s each, the first at once


def test_answers_without_the_outputs_fail(tmp_path: Path) -> None:
    async def empty(request: Request) -> Reply:
        return await inference_server(request) if request.method == "GET" else reply(200, b'{"outputs": []}')

    result, rows, _ = locust(empty, tmp_path, "--model", "m", "--throughput-per-user", "5")
    assert result.returncode == 1
    assert int(rows[-1]["Failure Count"]) == requests(rows) > 0
    assert "are missing" in (tmp_path / "out_failures.csv").read_text()


def test_an_unknown_model_ends_the_run(tmp_path: Path) -> None:
    async def nothing(request: Request) -> Reply:
        return reply(404, b"{}")

    result, rows, _ = locust(nothing, tmp_path, "--model", "nope")
    assert result.returncode == 2
    assert "model 'nope'" in result.stderr + result.stdout
    assert requests(rows) == 0
