"""The accuracy check of a build, on the fake TensorRT and the real ONNX Runtime."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from engines.events import Event, LogLine, PhaseFinished, PhaseStarted, PhaseStep
from engines.report import AccuracyReport
from engines.request import BuildOptions, BuildRequest
from engines.verify import PHASE, accuracy_check, refusal
from service.buckets import Bucket
from service.cards import ModelCard, PrecisionCard
from service.errors import ModelLoadFailed
from service.runtime.cuda.device import Cuda
from service.runtime.golden import Agreement
from service.runtime.trt.flavour import describe
from tests.doubles import onnx_models
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_tensorrt import fake_tensorrt
from tests.doubles.fake_tensorrt_model import FakeModel, plan_of
from tests.doubles.fake_tensorrt_world import VERSIONS
from tests.doubles.running_server import add_model
from tests.doubles.trt_models import DOUBLE, RESHAPE, WIDTH

BUCKETS = 4
"""Of `DOUBLE`: 1, 2, 4 and 8 rows."""


@pytest.fixture
def api() -> Iterator[FakeCuda]:
    api = FakeCuda(device_count=2)
    yield api
    assert api.violations == []
    assert api.live_objects() == {}


def make_onnx(path: Path) -> Path:
    return onnx_models.make_identity(path, dims=("batch", WIDTH))


@dataclass
class Check:
    """Checks a plan of `model` against the ONNX model that `make` makes."""

    api: FakeCuda
    folder: Path
    model: FakeModel
    card: str = ""
    device: int | None = None
    make: Callable[[Path], Path] = make_onnx
    failing_enqueues: int = 0
    events: list[Event] = field(default_factory=list)

    def run(self) -> AccuracyReport:
        add_model(self.folder, "m", self.make, self.card)
        plan = self.folder / "m" / "1" / ".model.plan.1.tmp"
        plan.write_bytes(plan_of(self.model, VERSIONS["10"]))
        request = BuildRequest(
            model_folder=self.folder / "m", version="", plan_path=plan, options=BuildOptions(device=self.device)
        )
        module = fake_tensorrt(self.api)
        module.world.faults.enqueues = self.failing_enqueues
        flavour, cuda = describe("tensorrt", module), Cuda(self.api)
        check = accuracy_check(request, flavour=flavour, cuda=cuda, cpu_threads=1, on_event=self.events.append)
        return check(plan)


IDENTITY = replace(DOUBLE, program="identity")


@pytest.fixture(autouse=True)
def _identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules["tests.doubles.fake_tensorrt_model"].PROGRAMS, "identity", lambda x: (x.copy(),))


def test_every_bucket_is_compared(api: FakeCuda, tmp_path: Path) -> None:
    check = Check(api, tmp_path, IDENTITY)
    report = check.run()
    assert [bucket.bucket for bucket in report.buckets] == ["8", "4", "2", "1"]
    assert {(bucket.profile, bucket.output, bucket.cosine) for bucket in report.buckets} == {(0, "y", 1.0)}
    assert (report.min_cosine, report.skipped) == (0.999, "")
    assert check.events == [
        PhaseStarted(PHASE, None, BUCKETS),
        *(PhaseStep(PHASE, step) for step in range(BUCKETS)),
        PhaseFinished(PHASE),
    ]


def test_an_input_whose_values_the_profile_fixes_is_given_to_onnx_runtime_too(api: FakeCuda, tmp_path: Path) -> None:
    report = Check(api, tmp_path, RESHAPE, make=onnx_models.make_reshape).run()
    assert [(bucket.bucket, bucket.cosine) for bucket in report.buckets] == [("1", 1.0)]
    assert report.skipped == ""


def test_a_plan_that_answers_something_else_is_refused_with_its_figures(api: FakeCuda, tmp_path: Path) -> None:
    said = (
        r"model 'm': the plan is not accurate enough: output 'y' agrees with the reference by 0\.800000 in bucket 8 "
        r".* min_cosine in \[precision\] is 0\.999; .* and 1 more bucket.*mode = \"bf16\" has the range of FP32"
    )
    with pytest.raises(ModelLoadFailed, match=said):
        Check(api, tmp_path, DOUBLE, card='[precision]\nmode = "fp16"\n').run()


def test_the_card_says_what_is_accurate_enough(api: FakeCuda, tmp_path: Path) -> None:
    report = Check(api, tmp_path, DOUBLE, card="[precision]\nmin_cosine = 0.79\n").run()
    assert report.min_cosine == 0.79
    assert [round(bucket.cosine, 6) for bucket in report.buckets] == [0.8] * BUCKETS
    assert all(0 < bucket.largest_difference <= 2 for bucket in report.buckets)


def test_without_onnx_runtime_the_check_is_not_made_and_that_is_said(
    api: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    check = Check(api, tmp_path, DOUBLE)
    report = check.run()
    assert report.buckets == ()
    assert "needs ONNX Runtime, which cannot be imported" in report.skipped
    assert check.events == [LogLine("warning", f"the plan's accuracy was not checked: {report.skipped}")]


def test_shapes_that_onnx_runtime_cannot_run_are_not_compared_and_that_is_said(api: FakeCuda, tmp_path: Path) -> None:
    check = Check(api, tmp_path, IDENTITY, make=make_two_rows)
    report = check.run()
    assert report.buckets == ()
    assert report.skipped.startswith("bucket 1: ONNX Runtime cannot run model.onnx as the reference")
    assert check.events[-1] == LogLine("warning", f"the plan's accuracy was not checked: {report.skipped}")


def make_two_rows(path: Path) -> Path:
    """`x: FP32[batch, WIDTH] -> y`, which runs on two rows alone."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ("batch", WIDTH)) for name in ("x", "y"))
    weights = [numpy_helper.from_array(np.array([2, WIDTH], np.int64), "shape")]
    graph = helper.make_graph([helper.make_node("Reshape", ["x", "shape"], ["y"])], "two", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_the_plan_is_checked_on_the_device_that_it_was_built_for(api: FakeCuda, tmp_path: Path) -> None:
    seen: set[int] = set()
    set_device = api.cudaSetDevice

    def watched(device: int) -> object:
        seen.add(device)
        return set_device(device)

    api.cudaSetDevice = watched  # type: ignore[method-assign, assignment]
    Check(api, tmp_path, IDENTITY, device=1).run()
    assert seen == {1}


def test_a_bucket_that_does_not_run_is_named(api: FakeCuda, tmp_path: Path) -> None:
    check = Check(api, tmp_path, IDENTITY, failing_enqueues=1)
    with pytest.raises(ModelLoadFailed, match="the plan does not run in bucket 8: "):
        check.run()
    assert check.events[-1] == PhaseFinished(PHASE)


@given(st.lists(st.one_of(st.floats(-1, 1), st.just(float("nan"))), min_size=1, max_size=12))
def test_the_worst_buckets_are_told_first(cosines: list[float]) -> None:
    card = ModelCard(name="m", precision=PrecisionCard(min_cosine=0.9))
    agreements = [Agreement(Bucket(index + 1), "y", cosine, 1.0) for index, cosine in enumerate(cosines)]
    bad = [each for each in agreements if not each.cosine >= 0.9]
    said = refusal(card, agreements)
    if not bad:
        assert said is None
        return
    assert said is not None
    worst = min(bad, key=lambda each: each.cosine if each.cosine == each.cosine else float("-inf"))
    assert worst.problem(0.9) in said
    assert (f"and {len(bad) - 3} more buckets" in said) is (len(bad) > 3)
