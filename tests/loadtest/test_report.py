from __future__ import annotations

import io
import json

from rich.console import Console

from loadtest.figures import summarise
from loadtest.limits import Limiter, Observation, Verdict
from loadtest.loops import StepRun
from loadtest.records import Failure
from loadtest.report import CpuFigures, StepReport, limits_table, report_json, stages_table, steps_table
from loadtest.scenario import Step
from loadtest.usage import ProcessLoad
from tests.loadtest.test_figures import WINDOW, record


def reports() -> list[StepReport]:
    run = StepRun(
        WINDOW, [record(200, 212, server_timing=b"queue;dur=1.5"), record(200, 900, Failure.TIMEOUT, status=0)]
    )
    return [StepReport(Step(label="steady", rate=2.0), 2.0, summarise(run))]


SEEN = Observation(
    seconds=1.0,
    clients=(ProcessLoad(7, "loadtest.worker", 0.25),),
    servers=(ProcessLoad(8, "inferlane", 0.75), ProcessLoad(9, "engine", 0.5)),
    cores=2,
    busy_cores=1.5,
    lanes={"m/1": {"0": 0.5, "1": 0.25}},
)


def watched() -> StepReport:
    seen, cpu = SEEN, CpuFigures(1.25, 0.25)
    return StepReport(
        Step(concurrency=4), None, reports()[0].summary, 2, seen, cpu, Verdict(Limiter.LOAD, ("not busy",))
    )


def test_json_holds_everything() -> None:
    document = json.loads(report_json(reports(), {"model": "m"}))
    assert document["model"] == "m"
    step = document["steps"][0]
    assert step["step"]["arrivals"] == "poisson"
    assert step["summary"]["latency"]["p99_ms"] == 12.0
    assert step["summary"]["errors"]["timeout"]["count"] == 1
    assert step["summary"]["goodput_per_s"] is None


def test_tables_show_figures_and_errors() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(steps_table("m", reports()))
    stages = stages_table(reports())
    assert stages is not None
    console.print(stages)
    text = console.export_text()
    for cell in ("steady", "12.00", "timeout: 1", "queue", "1.50"):
        assert cell in text


def test_what_limited_a_step_stands_in_the_table_and_in_json() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    table = limits_table([*reports(), watched()])
    assert table is not None
    console.print(table)
    text = console.export_text()
    for cell in ("N=2 closed c=4", "1.250", "0.250", "0.75 0.50", "0.25", "38%", "load"):
        assert cell in text
    assert "steady" not in text
    step = json.loads(report_json([watched()], {}))["steps"][0]
    assert step["verdict"] == {"limiter": "load", "evidence": ["not busy"]}
    assert (step["frontends"], step["cpu"]["server_ms"], step["seen"]["servers"][1]["name"]) == (2, 1.25, "engine")


def test_where_nobody_watched_nothing_is_said_of_limits() -> None:
    assert limits_table(reports()) is None


def test_no_stages_no_table() -> None:
    assert stages_table([StepReport(Step(rate=1.0), 1.0, summarise(StepRun(WINDOW, [record(200, 210)])))]) is None
