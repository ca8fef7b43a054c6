from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from loadtest.clock import SystemClock
from loadtest.errors import LoadTestError
from loadtest.figures import Tally
from loadtest.generators import ThisProcess
from loadtest.limits import Observation
from loadtest.payloads import Wire
from loadtest.report import CpuFigures, StepReport
from loadtest.scenario import Step
from loadtest.session import Session
from loadtest.sweep import Axes, Bench, cpu_figures, steps_of
from loadtest.usage import ProcessLoad
from loadtest.watch import Watch
from tests.loadtest.tiny_server import TinyServer, inference_server

SHORT = Step(concurrency=2, duration_s=0.5, warm_up_s=0.02, grace_s=10.0)


@pytest.mark.parametrize(
    ("axes", "titles"),
    [
        (Axes(concurrencies=(1,)), ["closed c=1"]),
        (
            Axes(concurrencies=(1, 16), rates=(150.0,)),
            ["closed c=1", "closed c=16", "poisson 150/s"],
        ),
        (
            Axes(concurrencies=(4,), rows=((1,), (1, 32)), wires=(Wire.BINARY, Wire.JSON)),
            [
                "closed c=4 rows=1 binary",
                "closed c=4 rows=1,32 binary",
                "closed c=4 rows=1 json",
                "closed c=4 rows=1,32 json",
            ],
        ),
    ],
)
def test_a_sweep_is_every_combination(axes: Axes, titles: list[str]) -> None:
    steps = steps_of(axes, Step(duration_s=3, seed=5))
    assert [step.title for step in steps] == titles
    assert all((step.duration_s, step.seed) == (3, 5) for step in steps)
    assert {step.rows for step in steps} == set(axes.rows)
    assert {step.wire for step in steps} == set(axes.wires)


def test_a_sweep_without_sense_is_refused() -> None:
    with pytest.raises(LoadTestError, match="must be positive"):
        steps_of(Axes(concurrencies=(1,)), Step(duration_s=0))


async def run(steps: list[Step], before: list[StepReport] | None = None) -> list[StepReport]:
    reports = before if before is not None else []
    async with TinyServer(inference_server) as server, SystemClock() as clock:
        session = Session(endpoint=server.endpoint, model="m", objective_ms=1e6)
        await Bench(session, ThisProcess(), Watch(endpoint=server.endpoint), 2).run(clock, steps, reports)
    return reports


async def test_steps_run_one_after_the_other_on_both_wires() -> None:
    steps = [SHORT, dataclasses.replace(SHORT, wire=Wire.JSON, rows=(1, 3))]
    reports = await run(steps)
    assert [report.step for report in reports] == steps
    for report in reports:
        assert (report.rate, report.frontends) == (None, 2)
        assert report.summary.succeeded == report.summary.requests > 0
        assert report.summary.goodput_per_s is not None
        assert report.summary.stages_ms == {"queue": 0.5, "compute": 2.0}
        assert report.seen is not None
        assert len(report.seen.clients) == 1
        assert report.verdict is not None
    assert reports[1].summary.throughput_rows_per_s > reports[1].summary.throughput_per_s


async def test_a_rate_can_be_a_fraction_of_the_capacity_found() -> None:
    closed, opened = await run([SHORT, dataclasses.replace(SHORT, concurrency=None, capacity_fraction=0.25)])
    assert opened.rate == closed.summary.throughput_per_s * 0.25


async def test_a_fraction_of_nothing_is_refused_and_what_was_measured_before_stays() -> None:
    reports = await run([SHORT])
    with pytest.raises(LoadTestError, match="put a step with concurrency first"):
        await run([Step(capacity_fraction=0.5)], reports)
    assert len(reports) == 1


def tallied(arrived: int) -> Tally:
    none = np.zeros(0, dtype=np.int64)
    return Tally(
        measured_ns=2_000_000_000,
        due=arrived,
        latencies=none,
        services=none,
        lags=none,
        arrived=arrived,
        arrived_rows=arrived,
        failures={},
        examples={},
        stages={},
    )


@pytest.mark.parametrize(
    ("arrived", "server_cores", "figures"),
    [
        (2000, (0.5, 0.25), CpuFigures(0.75, 0.125)),
        (2000, (), CpuFigures(None, 0.125)),
        (0, (0.5,), CpuFigures(None, None)),
    ],
)
def test_cpu_time_per_answer(arrived: int, server_cores: tuple[float, ...], figures: CpuFigures) -> None:
    seen = Observation(
        seconds=2.5,  # the shares are of this time; answers are counted in the step's own
        clients=(ProcessLoad(1, "c", 0.125),),
        servers=tuple(ProcessLoad(2, "s", cores) for cores in server_cores),
        cores=2,
        busy_cores=None,
        lanes={},
    )
    assert cpu_figures(tallied(arrived), seen) == figures
