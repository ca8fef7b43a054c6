"""TensorRT-RTX builds every demo model by our own builder, on a machine without a GPU.

TensorRT-RTX has the builder API of TensorRT 11: strongly typed networks, progress monitors, optimization profiles, no
flags for lower precisions. So the part of `engines` that TensorRT 8.6, the only one on our GPU machine, cannot show
runs here. What it does not show: TensorRT-RTX chooses kernels when it runs, so builds take seconds, its timing caches
hold nothing, and its plans run on no other TensorRT. Reading a cache or loading a plan takes a GPU; what needs the
engine is left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper, save

from engines.demo.catalog import MODELS
from service.plan_report.examine import examine
from service.runtime.trt.plan import TENSORRT_RTX
from tests.doubles.demo_server import ROOT, demo_repository
from tests.doubles.onnx_models import make_fp16, make_identity
from tests.doubles.plugin_models import make_residual_layernorm
from tests.nets.packages import kept, pip
from tests.service.plan_report.test_examine import LAPTOP

__all__ = ["demo_repository"]

VERSION = "1.7.1.116"
PACKAGE = f"tensorrt-rtx-cu13=={VERSION}"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def rtx() -> Path:
    """The folder that TensorRT-RTX is installed in; about 95 MB are downloaded once."""

    def install(folder: Path) -> None:
        pip(["install", "--target", str(folder)], PACKAGE, timeout_s=500)

    return kept(PACKAGE.replace("==", "-"), install)


def build(rtx: Path, model_folder: Path, plan: Path, *options: str) -> dict[str, Any]:
    """What `rtx_child` says of a build."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.nets.rtx_child", str(model_folder), str(plan), *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(rtx), str(ROOT)))}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout)
    assert outcome["version"] == VERSION
    return outcome


def model_of(folder: Path, card: str) -> Path:
    """A model's folder with its card; where its ONNX goes exists."""
    (folder / "1").mkdir(parents=True)
    (folder / "model.toml").write_text(card, encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", [model.name for model in MODELS])
def test_every_demo_model_is_built(rtx: Path, demo_repository: Path, tmp_path: Path, name: str) -> None:
    plan = tmp_path / "model.plan"
    outcome = build(rtx, demo_repository / name, plan)
    assert outcome["error"] == ""
    assert outcome["is_strongly_typed"] is True
    assert [line for line in outcome["lines"] if "timing cache" in line] == []
    facts = examine(plan, LAPTOP)
    assert (facts.product, facts.version) == (TENSORRT_RTX, VERSION)
    assert_progress_is_whole(outcome)


def assert_progress_is_whole(outcome: dict[str, Any]) -> None:
    """Every phase that was started under a known parent was finished, and steps were told."""
    started = [phase["phase"] for phase in outcome["started"]]
    assert Counter(started) == Counter(outcome["finished"])
    assert {phase["parent"] for phase in outcome["started"]} <= {None, *started}
    assert outcome["steps"] > len(started)


def test_a_build_is_cancelled_from_inside(rtx: Path, demo_repository: Path, tmp_path: Path) -> None:
    plan = tmp_path / "model.plan"
    outcome = build(rtx, demo_repository / "ocr-rec", plan, "cancel")
    assert outcome.get("is_cancelled") is True
    assert "Optimizing graph" not in {phase["phase"] for phase in outcome["started"]}
    assert not plan.exists()


def test_a_timing_cache_that_is_refused_stops_no_build(rtx: Path, demo_repository: Path, tmp_path: Path) -> None:
    """It is written at the first build; to read it at the second, TensorRT would need a GPU, and says so."""
    plan = tmp_path / "model.plan"
    first, second = (build(rtx, demo_repository / "orientation", plan) for _ in range(2))
    assert plan.with_suffix(".timing-cache").stat().st_size > 0
    assert first["error"] == second["error"] == ""
    told = [[line for line in outcome["lines"] if "timing cache" in line] for outcome in (first, second)]
    assert told[0] == []
    assert told[1] != []


def test_several_profiles(rtx: Path, tmp_path: Path) -> None:
    card = "[dims]\nx = ['batch', 'width']\ny = ['batch', 'width']\n[buckets]\nbatch = [1, 64]\nwidth = [8, 512]\n"
    model = model_of(tmp_path / "m", card)
    make_identity(model / "1" / "model.onnx", dims=("batch", "width"))
    outcome = build(rtx, model, tmp_path / "model.plan")
    assert outcome["error"] == ""
    assert len(outcome["profiles"]) == 4
    assert (tmp_path / "model.plan").stat().st_size > 0


def test_a_precision_that_the_model_carries(rtx: Path, tmp_path: Path) -> None:
    model = model_of(tmp_path / "m", "[precision]\nmode = 'fp16'\n[buckets]\nbatch = [1, 2]\n")
    make_fp16(model / "1" / "model.onnx")
    assert build(rtx, model, tmp_path / "model.plan")["error"] == ""


def test_a_precision_that_it_does_not_carry(rtx: Path, tmp_path: Path) -> None:
    model = model_of(tmp_path / "m", "[precision]\nmode = 'fp16'\n[buckets]\nbatch = [1, 2]\n")
    make_identity(model / "1" / "model.onnx")
    error = build(rtx, model, tmp_path / "model.plan")["error"]
    assert "python -m modelopt.onnx.autocast" in error
    assert "--low_precision_type fp16" in error


def test_the_parser_s_words_name_the_node(rtx: Path, tmp_path: Path) -> None:
    model = model_of(tmp_path / "m", "[buckets]\nbatch = [1, 2]\n")
    node = helper.make_node("Unheard", ["x"], ["y"], name="the_node", domain="our.own")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("our.own", 1)]
    save(
        helper.make_model(helper.make_graph([node], "g", values[:1], values[1:]), opset_imports=opsets, ir_version=8),
        str(model / "1" / "model.onnx"),
    )
    error = build(rtx, model, tmp_path / "model.plan")["error"]
    assert "node 'the_node' (Unheard)" in error
    assert "backend = 'onnxruntime'" in error


def test_it_takes_no_python_plugins(rtx: Path, tmp_path: Path) -> None:
    """Its package has `tensorrt_rtx.plugin`, which wants a part of its bindings that they do not bring."""
    model = model_of(tmp_path / "m", "[buckets]\nbatch = [1, 2]\n")
    make_residual_layernorm(model / "1" / "model.onnx")
    error = build(rtx, model, tmp_path / "model.plan")["error"]
    assert "inferlane.residual_layernorm, which tensorrt_rtx 1.7.1.116 cannot take" in error
    assert "tensorrt_rtx.plugin does not import (No module named 'tensorrt_rtx_bindings.plugin')" in error
    assert "Add and LayerNormalization" in error


def test_what_a_machine_without_a_gpu_says_of_such_a_plan(rtx: Path, demo_repository: Path, tmp_path: Path) -> None:
    plan = tmp_path / "model.plan"
    build(rtx, demo_repository / "orientation", plan)
    command = [sys.executable, "-m", "service.cli", "inspect", str(plan), "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(rtx), str(ROOT))), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    checks = {check["subject"]: check["is_passed"] for check in content["checks"]}
    assert checks == {"manifest": None, "TensorRT": True, "GPU": None, "engine": None}
    assert content["is_runnable"] is None
