from __future__ import annotations

import dataclasses
import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from loadtest import soak
from loadtest.clock import Clock, SystemClock
from loadtest.connection import Endpoint
from loadtest.figures import Tally
from loadtest.generators import OnWindow, ThisProcess
from loadtest.limits import Observation
from loadtest.memory import MemoryGrowth
from loadtest.records import Window
from loadtest.scenario import Step
from loadtest.session import Session, StepJob
from loadtest.soak import Soak, SoakPlan, misses
from tests.loadtest.tiny_server import TinyServer, inference_server

app = typer.Typer()
app.command()(soak.main)
STAND_IN = shlex.join([sys.executable, "-m", "tests.loadtest.stand_in"])
STEP = Step(concurrency=2, duration_s=0.05, warm_up_s=0.0)
PLAN = SoakPlan(requests=1, seconds=0.1, warm_up_s=0.01, limit_s=60.0, interval_s=0.01)
FLAT = MemoryGrowth(7, 100.0, 100.5, 110, 0.005, True)


@pytest.mark.parametrize(
    ("answered", "elapsed_s", "is_over"),
    [
        (0, 0.0, False),
        (100, 59.0, False),
        (99, 61.0, False),
        (100, 60.0, True),
        (0, 300.0, True),
    ],
)
def test_a_soak_is_over_once_both_are_reached_or_at_the_limit(answered: int, elapsed_s: float, is_over: bool) -> None:
    assert SoakPlan(100, 60.0, 5.0, 300.0, 1.0).is_over(answered, elapsed_s) is is_over


def ended(endpoint_session: Session, answered: int = 1, errors: dict[str, int] | None = None) -> Soak:
    return Soak(endpoint_session, ThisProcess(), 1, PLAN, answered=answered, errors=Counter(errors or {}))


@pytest.mark.parametrize(
    ("growth", "answered", "errors", "said"),
    [
        ([FLAT], 1, {}, []),
        ([FLAT, dataclasses.replace(FLAT, growth=0.01)], 1, {}, ["process 7 grew by 1.00%, bound 1.00%"]),
        ([dataclasses.replace(FLAT, is_whole=False)], 1, {}, ["process 7 was not there all the time"]),
        ([FLAT], 1, {"http 503": 3}, ["3 requests failed: http 503"]),
        ([FLAT], 0, {}, ["0 of 1 requests were answered within 60 s"]),
    ],
)
def test_misses(growth: Sequence[MemoryGrowth], answered: int, errors: dict[str, int], said: list[str]) -> None:
    assert misses(ended(Session(endpoint=Endpoint("h", 1), model="m"), answered, errors), growth, 0.01) == said


async def test_requests_are_answered_and_memory_is_sampled_until_it_is_over() -> None:
    async with TinyServer(inference_server) as server, SystemClock() as clock:
        one = Soak(Session(endpoint=server.endpoint, model="m"), ThisProcess(), os.getpid(), PLAN)
        await one.run(clock, STEP)
    assert PLAN.is_over(one.answered, one.seconds)
    assert sum(one.errors.values()) == 0
    assert len(one.answers_per_s) == len(one.server_cores) >= 1
    assert all(os.getpid() in sample.by_process for sample in one.samples)
    times = [sample.at_s for sample in one.samples]
    assert times == sorted(times)


class Refusals:
    """A generator to which a third of all is refused; ten answers in each piece of the load."""

    async def run(self, clock: Clock, session: Session, job: StepJob, watch: OnWindow) -> tuple[Tally, Observation]:
        window = Window(clock.now_ns(), 0, 2_000_000, 0)
        durations = np.ones(5, dtype=np.int64)
        tally = Tally(
            measured_ns=window.measured_ns,
            due=15,
            latencies=durations,
            services=durations,
            lags=durations,
            arrived=10,
            arrived_rows=10,
            failures={"http 503": durations},
            examples={},
            stages={},
        )
        return tally, await watch(window, [os.getpid()])


async def test_failures_are_counted() -> None:
    plan = dataclasses.replace(PLAN, warm_up_s=0.0, requests=30, seconds=0.0)
    async with TinyServer(inference_server) as server, SystemClock() as clock:
        one = Soak(Session(endpoint=server.endpoint, model="m"), Refusals(), os.getpid(), plan)
        await one.run(clock, STEP)
    assert (one.answered, one.errors, one.answers_per_s) == (30, {"http 503": 15}, [5000.0] * 3)
    assert misses(one, [FLAT], 0.01) == ["15 requests failed: http 503"]


@pytest.mark.e2e
def test_a_short_soak_of_a_stand_in(tmp_path: Path) -> None:
    path = tmp_path / "soak.json"
    options = ["--serve", str(tmp_path), "--serve-command", STAND_IN, "--frontends", "2", "--json", str(path)]
    times = ["--requests", "1", "--duration", "0.2", "--warm-up", "0.1", "--interval", "0.02", "--bound", "1"]
    result = CliRunner().invoke(app, ["cnn", *options, *times])
    assert result.exit_code == 0, result.output
    document = json.loads(path.read_bytes())
    report = document["report"]
    assert report["frontends"] == 2
    assert report["answered"] >= 1
    (growth,) = report["growth"]
    assert report["names"][str(growth["pid"])] == "tests.loadtest.stand_in"
    assert growth["first_bytes"] > 1 << 20
    assert document["samples"]
    assert "tests.loadtest.stand_in" in result.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--serve-command", "no-such-program"], "cannot be started"),
        (["--rows", "none"], "positive integers"),
    ],
)
def test_mistakes_exit_with_2(options: list[str], said: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["m", "--serve", str(tmp_path), *options])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
