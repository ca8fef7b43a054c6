"""What came of a command: for people, for scripts, for the shell."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from engines.outcomes import Outcome, State, exit_status, show, to_dicts
from engines.report import AccuracyReport, BucketAccuracy, BuildReport

ACCURACY = AccuracyReport(
    min_cosine=0.999,
    buckets=(
        BucketAccuracy(bucket="8x128", profile=1, output="logits", cosine=0.99951, largest_difference=0.0123),
        BucketAccuracy(bucket="1x16", profile=0, output="a[0]", cosine=1.0, largest_difference=0.0),
    ),
)
REPORT = BuildReport(
    plan_path=Path("models/bert/1/model.plan"),
    plan_bytes=223_400_000,
    build_s=84.2,
    precision="fp16 (weakly typed)",
    profiles=(),
    layer_count=120,
    layer_precisions={"FP16": 100, "FP32": 20},
    scratch_bytes=(1_000_000, 25_000_000),
    accuracy=ACCURACY,
)


def shown(outcome: Outcome) -> str:
    console = Console(file=io.StringIO(), width=80)
    with console.capture() as capture:
        show(outcome, console)
    return capture.get()


def test_a_plan_has_its_figures_and_a_row_for_each_bucket() -> None:
    text = shown(Outcome("bert", State.BUILT, report=REPORT))
    assert "bert: models/bert/1/model.plan built in 1 min 24 s: 223.4 MB, fp16 (weakly typed), layers 120" in text
    assert "scratch 1.0 MB, 25.0 MB" in text
    rows = [line.replace("│", " ").split() for line in text.splitlines()]
    assert ["8x128", "1", "0.999510", "0.0123", "logits"] in rows
    assert ["1x16", "0", "1.000000", "0", "a[0]"] in rows


@pytest.mark.parametrize(
    ("report", "said", "not_said"),
    [
        (replace(REPORT, accuracy=None, layer_count=None), "fp16 (weakly typed), scratch", "layers"),
        (
            replace(REPORT, accuracy=AccuracyReport(min_cosine=0.9, skipped="no [runtime]")),
            "accuracy not checked: no [runtime]",
            "bucket",
        ),
        (replace(REPORT, scratch_bytes=()), "scratch 0.0 MB", "1.0 MB"),
    ],
)
def test_what_is_not_known_is_left_out(report: BuildReport, said: str, not_said: str) -> None:
    text = shown(Outcome("bert", State.BUILT, report=report))
    assert said in text
    assert not_said not in text


def test_without_a_plan_the_reason_stands_in_its_place() -> None:
    assert shown(Outcome("bert", State.FAILED, "no [buckets]")) == "bert: failed: no [buckets]\n"


def test_json_holds_all_of_it() -> None:
    outcomes = [Outcome("bert", State.BUILT, report=REPORT), Outcome("flat", State.IN_PLACE, "it fits")]
    first, second = json.loads(json.dumps(to_dicts(outcomes)))
    assert (first["model"], first["state"]) == ("bert", "built")
    assert BuildReport.from_content(first["report"]) == REPORT
    assert second == {"model": "flat", "state": "in place", "reason": "it fits", "report": None}


@pytest.mark.parametrize(
    ("states", "status"),
    [
        ([], 0),
        ([State.BUILT, State.IN_PLACE, State.PASSED_OVER], 0),
        ([State.FAILED, State.BUILT], 1),
        ([State.FAILED, State.CANCELLED], 130),
    ],
)
def test_exit_statuses(states: list[State], status: int) -> None:
    assert exit_status(Outcome("m", state) for state in states) == status
