"""What a server builds its missing plans with."""

from __future__ import annotations

import importlib.util
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engines.events import LogLine, OnEvent
from engines.plan_builder import PlanBuilder, accuracy_text
from engines.report import AccuracyReport, BucketAccuracy, BuildReport
from engines.request import BuildOptions, BuildRequest
from engines.serialise import BuildCancelled
from service.cards import ModelCard
from service.errors import BuilderMissing
from service.repository.layout import VersionFolder, find
from tests.doubles import onnx_models
from tests.doubles.running_server import add_model

WAIT_S = 10
CARD = ModelCard(name="m")


@pytest.fixture
def version(tmp_path: Path) -> VersionFolder:
    add_model(tmp_path, "m", onnx_models.make_identity)
    return find(tmp_path, "m").version()


class HeldBuild:
    """Builds as `engines.job.run_build` does, once it is let."""

    def __init__(self, *, held: bool = False) -> None:
        self.requests: list[BuildRequest] = []
        self.running = 0
        self.most_running = 0
        self.begun = threading.Semaphore(0)
        self.permits = threading.Semaphore(0 if held else 100)

    def __call__(self, request: BuildRequest, on_event: OnEvent, is_cut_off: threading.Event) -> BuildReport:
        self.requests.append(request)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.begun.release()
        on_event(LogLine("warning", "weights were narrowed"))
        assert self.permits.acquire(timeout=WAIT_S)
        self.running -= 1
        bucket = BucketAccuracy(bucket="4", profile=0, output="y", cosine=0.9995, largest_difference=0.1)
        return BuildReport(
            plan_path=request.plan_path,
            plan_bytes=5_000_000,
            build_s=84.0,
            precision="fp16 (weakly typed)",
            profiles=(),
            layer_count=None,
            layer_precisions={},
            scratch_bytes=(),
            accuracy=AccuracyReport(min_cosine=0.9, buckets=(bucket,)),
        )


def test_a_plan_is_built_as_the_card_says_and_told_in_the_log(
    version: VersionFolder, caplog: pytest.LogCaptureFixture
) -> None:
    build = HeldBuild()
    with caplog.at_level(logging.INFO):
        plan = PlanBuilder(build)(CARD, version, threading.Event())
    assert plan == version.path / "model.plan"
    assert build.requests == [
        BuildRequest(model_folder=version.path.parent, version="1", plan_path=plan, options=BuildOptions())
    ]
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    begin = "building the plan of model 'm': "
    assert said == [
        ("INFO", f"{begin}there is none yet in {version.path}; this takes minutes"),
        ("WARNING", f"{begin}weights were narrowed"),
        (
            "INFO",
            f"{begin}done in 1 min 24 s: 5.0 MB, agrees with ONNX Runtime by 0.999500 or better (worst in bucket 4)",
        ),
    ]


def test_one_plan_is_built_at_a_time(version: VersionFolder) -> None:
    build = HeldBuild(held=True)
    builder = PlanBuilder(build)
    with ThreadPoolExecutor(3) as threads:
        plans = [threads.submit(builder, CARD, version, threading.Event()) for _ in range(3)]
        for _ in plans:
            assert build.begun.acquire(timeout=WAIT_S)
            build.permits.release()
        assert {plan.result(WAIT_S) for plan in plans} == {version.path / "model.plan"}
    assert build.most_running == 1


def test_whoever_waits_for_its_turn_can_be_cut_off(version: VersionFolder) -> None:
    build = HeldBuild(held=True)
    builder = PlanBuilder(build)
    is_cut_off = threading.Event()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(builder, CARD, version, threading.Event())
        assert build.begun.acquire(timeout=WAIT_S)
        second = threads.submit(builder, CARD, version, is_cut_off)
        is_cut_off.set()
        assert isinstance(second.exception(WAIT_S), BuildCancelled)
        build.permits.release()
        first.result(WAIT_S)
    assert len(build.requests) == 1


def test_a_build_that_fails_leaves_its_turn_to_the_next(version: VersionFolder) -> None:
    def fail(*_: object) -> BuildReport:
        raise ZeroDivisionError

    builder = PlanBuilder(fail)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            builder(CARD, version, threading.Event())


def test_a_package_that_is_missing_is_told_before_the_build(
    version: VersionFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        BuilderMissing, match=r"needs the package onnx, which is not installed; pip install -e '.\[build"
    ):
        PlanBuilder(HeldBuild())(CARD, version, threading.Event())


def test_accuracy_in_words() -> None:
    bucket = BucketAccuracy(bucket="4", profile=0, output="y", cosine=0.5, largest_difference=0.1)
    partly = AccuracyReport(min_cosine=0.1, buckets=(bucket,), skipped="bucket 8: no")
    assert accuracy_text(AccuracyReport(min_cosine=0.1, skipped="none here")) == "accuracy not checked (none here)"
    assert accuracy_text(partly).endswith("by 0.500000 or better (worst in bucket 4); not all compared: bucket 8: no")
