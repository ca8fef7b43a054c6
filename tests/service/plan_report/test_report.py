"""The report for people and for scripts."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from service.cards import ShapeRange
from service.plan_report.facts import Check, EngineFacts, LayerRow, PlanFacts
from service.plan_report.report import render, to_json
from service.tensors import DType, TensorSpec

CONVOLUTION = LayerRow("conv + relu", "CaskConvolution", 0, "FP16", ("8x3x4x4",), ("8x6x2x2",), "sm90_gemm")
REFORMAT = LayerRow("reformat [profile 1]", "Reformat", 1, "FP32→FP16", ("8x3x4x4",), ("8x3x4x4",), "")
ENGINE = EngineFacts(
    inputs=(TensorSpec("x", DType.FP32, ("batch", 3, 4, 4)),),
    outputs=(TensorSpec("y", DType.FP16, ("batch", 6)),),
    profiles=({"x": ShapeRange((1, 3, 4, 4), (2, 3, 4, 4), (8, 3, 4, 4))},),
    scratch_bytes=(1_500_000,),
    layers=(CONVOLUTION, CONVOLUTION, REFORMAT),
    fixed_inputs={"shape": (8, 4)},
)
MANIFEST = {
    "format": 1,
    "plan": {"bytes": 5, "sha256": "00"},
    "built_on": {"gpu": "NVIDIA [H200]", "compute_capability": "9.0"},
    "precision": "fp16",
    "build_s": 12.5,
    "profiles": [{"x": {"min": [1, 3], "opt": [2, 3], "max": [8, 3]}}],
    "dims": {"x": ["batch", 3]},
    "options": {"level": None, "weak": True, "note": "", "flags": ["FP16"]},
    "accuracy": {"min_cosine": 0.9, "buckets": [{"bucket": "1", "cosine": 0.99}, {"bucket": "2", "cosine": 0.98}]},
    "unknown": None,
}
FACTS = PlanFacts(
    path="m.plan",
    plan_bytes=57_300_000,
    sha256="ab" * 32,
    product="TensorRT",
    version="10.13.3.9",
    manifest=MANIFEST,
    checks=(Check("manifest", True, "as built"), Check("GPU", None, "no driver [yet]"), Check("engine", False, "bad")),
    engine=ENGINE,
)


def shown(facts: PlanFacts, *, layers: bool = False) -> str:
    console = Console(width=160, record=True, file=None, force_terminal=False)
    with console.capture() as capture:
        console.print(render(facts, are_layers_wanted=layers))
    return capture.get()


@pytest.mark.parametrize(
    "line",
    [
        r"plan +m\.plan, 57\.3 MB",
        r"built by +TensorRT 10\.13\.3\.9",
        rf"SHA-256 +{'ab' * 32}",
        r"built on +gpu NVIDIA \[H200\], compute capability 9\.0",
        r"precision +fp16",
        r"fixed input +shape = \[8, 4\]",
        r"build s +12\.5",
        r"profiles +0: x 1x3 to 8x3, best at 2x3",
        r"dims +x \[batch, 3\]",
        r"options +weak yes, flags \[FP16\]",
        r"accuracy +min cosine 0\.9, buckets",
        r" +0: bucket 1, cosine 0\.99",
        r"manifest +yes +as built",
        r"GPU +not known +no driver \[yet\]",
        r"engine +no +bad",
        r"input +x FP32 \[batch, 3, 4, 4\]",
        r"output +y FP16 \[batch, 6\]",
        r"profile 0 +x 1x3x4x4 to 8x3x4x4, best at 2x3x4x4; scratch 1\.5 MB",
        r"layers +3 \(FP16 2, FP32→FP16 1\)",
    ],
)
def test_what_is_shown(line: str) -> None:

    assert re.search(f"^{line} *$", shown(FACTS), re.MULTILINE), shown(FACTS)


def test_layers_are_listed_when_asked_for() -> None:
    assert "sm90_gemm" not in shown(FACTS)
    text = shown(FACTS, layers=True)
    assert "conv + relu" in text
    assert "8x3x4x4 → 8x6x2x2" in text
    assert "sm90_gemm" in text
    assert "reformat [profile 1]" in text
    assert "names alone" not in text


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (None, "only an engine that was loaded lists them"),
        (replace(ENGINE, layers=None), "no inspector"),
        (replace(ENGINE, layers=(LayerRow("a", "", 0, "", (), (), ""),)), "names alone"),
    ],
)
def test_why_layers_are_missing(engine: EngineFacts | None, said: str) -> None:
    assert said in shown(replace(FACTS, engine=engine), layers=True)


def test_what_nobody_knows_is_not_shown() -> None:
    assert "unknown" not in shown(FACTS)
    assert "None" not in shown(FACTS)


@pytest.mark.parametrize(("nbytes", "text"), [(999_999, "999,999 bytes"), (1_234_567_890, "1,234.6 MB")])
def test_sizes(nbytes: int, text: str) -> None:
    assert f"m.plan, {text}" in shown(replace(FACTS, plan_bytes=nbytes))


def test_nothing_steers_the_terminal() -> None:
    layer = replace(CONVOLUTION, name="conv\x1b[2J", tactic="gemm\afp16")
    tensor = TensorSpec("x\x1b[31m", DType.FP32, (1,))
    engine = replace(ENGINE, layers=(layer,), inputs=(tensor,))
    checks = (Check("GPU", None, "\x9b2J"),)
    facts = replace(FACTS, manifest={"a\r": "b\x1b]0;c"}, engine=engine, checks=checks)
    text = shown(facts, layers=True)
    assert not any(character != "\n" and not character.isprintable() for character in text)
    assert "conv�[2J" in text
    assert "gemm�fp16" in text


def test_a_plan_alone() -> None:
    text = shown(replace(FACTS, manifest=None, engine=None))
    assert "precision" not in text
    assert "input" not in text


def test_json() -> None:
    content = json.loads(to_json(FACTS, are_layers_wanted=False))
    assert content["is_runnable"] is False
    assert content["manifest"] == MANIFEST
    assert content["checks"][1] == {"subject": "GPU", "is_passed": None, "words": "no driver [yet]"}
    engine = content["engine"]
    assert engine["inputs"] == [{"name": "x", "dtype": "FP32", "dims": ["batch", 3, 4, 4]}]
    assert engine["profiles"] == [{"x": {"min": [1, 3, 4, 4], "opt": [2, 3, 4, 4], "max": [8, 3, 4, 4]}}]
    assert (engine["layer_count"], engine["layer_precisions"]) == (3, {"FP16": 2, "FP32→FP16": 1})
    assert "layers" not in engine


def test_json_with_layers() -> None:
    layers = json.loads(to_json(FACTS, are_layers_wanted=True))["engine"]["layers"]
    assert layers[0]["tactic"] == "sm90_gemm"
    assert layers[0]["inputs"] == ["8x3x4x4"]


@pytest.mark.parametrize(("engine", "count"), [(replace(ENGINE, layers=None), None), (replace(ENGINE, layers=()), 0)])
def test_json_tells_no_layers_from_no_inspector(engine: EngineFacts, count: int | None) -> None:
    content = json.loads(to_json(replace(FACTS, engine=engine), are_layers_wanted=False))
    assert content["engine"]["layer_count"] == count


def test_json_without_an_engine() -> None:
    assert json.loads(to_json(replace(FACTS, engine=None), are_layers_wanted=True))["engine"] is None


@pytest.mark.parametrize("value", [{"min": 1, "opt": None, "max": {}}, {"min": [1], "opt": [2], "max": 3}, "\ud800"])
def test_a_strangers_manifest_is_shown_as_far_as_it_goes(value: object) -> None:
    facts = replace(FACTS, path="\udcff.plan", manifest={"profiles": [{"x": value}], "precision": "fp16"})
    assert "fp16" in shown(facts)
    content = json.loads(to_json(facts, are_layers_wanted=False))
    assert content["manifest"]["precision"] == "fp16"
    assert content["path"] == "?.plan"
