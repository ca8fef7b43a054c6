from __future__ import annotations

import json
from pathlib import Path

import pytest

from engines.events import Done, Event, Failed, LogLine, PhaseFinished, PhaseStarted, PhaseStep, from_line, to_line
from engines.report import AccuracyReport, BucketAccuracy, BuildReport
from service.cards import ShapeRange

ACCURACY = AccuracyReport(
    min_cosine=0.999,
    buckets=(BucketAccuracy(bucket="8x16", profile=1, output="y", cosine=0.9999, largest_difference=0.01),),
    skipped="8 of 9 buckets: the time was up",
)


def report(accuracy: AccuracyReport | None) -> BuildReport:
    return BuildReport(
        plan_path=Path("/models/m/model.plan"),
        plan_bytes=1234,
        build_s=5.5,
        precision="fp16 (weakly typed)",
        profiles=({"x": ShapeRange((1, 3), (4, 3), (8, 3))},),
        layer_count=None if accuracy is None else 12,
        layer_precisions={"FP16": 12},
        scratch_bytes=(2048,),
        accuracy=accuracy,
    )


@pytest.mark.parametrize(
    "event",
    [
        PhaseStarted("tactics", "build", 12),
        PhaseStarted("build", None, 0),
        PhaseStep("tactics", 3),
        PhaseFinished("tactics"),
        LogLine("warning", "two\nlines, and 'quotes\"'"),
        Failed("the model cannot be built"),
        Failed("the build was cancelled", is_cancelled=True),
        Done(report(ACCURACY)),
        Done(report(None)),
    ],
)
def test_an_event_comes_through_a_line_as_it_was(event: Event) -> None:
    line = to_line(event)
    assert "\n" not in line
    assert json.loads(line)["event"] == type(event).__name__
    assert from_line(line) == event


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[TRT] a library speaks",
        "{}",
        '{"event": "Danced"}',
        '{"event": "PhaseStep"}',
        '{"event": "Done", "report": {}}',
        '{"event": "Done"}',
        "[1]",
        "[" * 100_000,
    ],
)
def test_what_is_no_event_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="this is no event of a build"):
        from_line(line)
