from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engines.build import build_plan
from engines.events import LogLine, PhaseStarted
from engines.report import AccuracyReport, BucketAccuracy
from engines.serialise import BuildCancelled
from service.errors import CardError, DeviceError, ModelLoadFailed, ModelNotFound, ServiceError
from service.runtime.trt.manifest import manifest_path
from tests.doubles.build_bench import BuildBench, build_bench
from tests.doubles.build_cases import BuildCases
from tests.doubles.fake_tensorrt_builder import Config, Profile
from tests.doubles.onnx_models import make_cnn, make_identity, make_sequence

FULL = ("8.6", "10.0", "10", "11")
ONNX_ONLY = {"model.onnx"}


@pytest.fixture(params=FULL)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> BuildBench:
    return build_bench(tmp_path, request.param)


@pytest.fixture
def ten(tmp_path: Path) -> BuildBench:
    return build_bench(tmp_path, "10")


class TestBuild(BuildCases):
    """The cases of the real GPU."""


def make_custom(path: Path) -> Path:
    """A model with an operator that nobody knows."""
    node = helper.make_node("Mystery", ["x"], ["y"], name="heart", domain="acme")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ("batch", 4)) for name in "xy")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    onnx.save(helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets), path)
    return path


def make_reshaped(path: Path) -> Path:
    """`x: FP32[4], size: INT64[2] -> y`: a shape that comes as a value."""
    node = helper.make_node("Reshape", ["x", "size"], ["y"])
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, (4,)),
        helper.make_tensor_value_info("size", TensorProto.INT64, (2,)),
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (None, None))
    graph = helper.make_graph([node], "g", inputs, [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def make_half(path: Path) -> Path:
    """A model that carries FP16 inside, with FP32 at its ends."""
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=TensorProto.FLOAT16),
        helper.make_node("Add", ["half", "one"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["y"], to=TensorProto.FLOAT),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ("batch", 4)) for name in "xy")
    weights = [numpy_helper.from_array(np.float16([1]), "one")]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_model_that_carries_fp16_builds_everywhere(bench: BuildBench) -> None:
    make_half(bench.onnx_path)
    bench.card('[precision]\nmode = "fp16"\n[build]\nweak_typing = false\n')
    typing = "weakly" if bench.flavour.version.startswith("8") else "strongly"
    assert bench.build().precision == f"fp16 ({typing} typed)"
    assert bench.open().spec.inputs[0].dtype.value == "FP32"


def test_8_6_says_what_becomes_of_int64(tmp_path: Path) -> None:
    for generation, warned in (("8.6", True), ("10", False)):
        bench = build_bench(tmp_path / generation, generation)
        make_sequence(bench.onnx_path)
        bench.card("[buckets]\nsequence = [8]\n")
        bench.build()
        assert any("input_ids, attention_mask become INT32" in line for line in bench.lines) == warned


def test_accuracy_goes_into_report_and_manifest(ten: BuildBench) -> None:
    make_cnn(ten.onnx_path)
    bucket = BucketAccuracy(bucket="8", profile=0, output="logits", cosine=0.99999, largest_difference=0.001)
    accuracy = AccuracyReport(min_cosine=0.999, buckets=(bucket,))
    assert ten.build(check=lambda _: accuracy).accuracy == accuracy
    content = json.loads(manifest_path(ten.plan_path).read_text(encoding="utf-8"))
    assert content["accuracy"]["buckets"][0]["cosine"] == 0.99999


def test_the_version_and_the_place_are_the_requests(ten: BuildBench) -> None:
    make_cnn(ten.folder / "1" / "model.onnx")
    make_identity(ten.folder / "2" / "model.onnx")
    request = ten.request()
    for version, tensor in (("1", "image"), ("", "x")):
        built = type(request)(
            model_folder=ten.folder, version=version, plan_path=ten.folder / (version or "2") / "m.plan"
        )
        report = build_plan(built, flavour=ten.flavour, cuda=ten.cuda, on_event=ten.events.append)
        assert set(report.profiles[0]) == {tensor}
        assert report.plan_path.exists()


def test_ranges_of_values_on_the_host_come_from_the_card(ten: BuildBench) -> None:
    make_reshaped(ten.onnx_path)
    ten.card("[[profile]]\nsize = { min = [1, 1], opt = [2, 2], max = [4, 4] }\n")
    with suppress(ModelLoadFailed):  # whether such a plan can be served is the runtime's word
        ten.build()
    (config,) = ten.world.building.configs
    assert config.profiles[0].values == {"size": ((1, 1), (2, 2), (4, 4))}


def test_a_stale_cache_is_given_up_in_mid_build(ten: BuildBench, tmp_path: Path) -> None:
    """As 8.6.0 does with every cache that it wrote itself."""
    make_cnn(ten.onnx_path)
    ten.build(timing_cache=tmp_path / "cache")
    (cache,) = (tmp_path / "cache").iterdir()
    assert cache.name.startswith("fake-gpu-sm9.0-tensorrt10.13.3.9-cuda13.0")
    ten.world.building.refuses_own_cache = True
    ten.build(timing_cache=tmp_path / "cache")
    assert any("TensorRT refuses its timing cache" in line for line in ten.lines)
    assert [len(config.profiles) for config in ten.world.building.configs] == [2, 2, 2]


def test_a_build_that_fails_with_a_cache_for_another_reason_is_not_repeated(ten: BuildBench, tmp_path: Path) -> None:
    make_cnn(ten.onnx_path)
    ten.build(timing_cache=tmp_path)
    ten.world.building.error = "out of memory"
    with pytest.raises(ModelLoadFailed, match="out of memory"):
        ten.build(timing_cache=tmp_path)
    assert len(ten.world.building.configs) == 2


def test_a_build_can_be_cancelled_at_every_step(ten: BuildBench) -> None:
    make_cnn(ten.onnx_path)
    asked: list[int] = []

    def never() -> bool:
        asked.append(0)
        return False

    ten.build(is_cancelled=never)
    ten.plan_path.unlink()
    manifest_path(ten.plan_path).unlink()
    for step in range(len(asked)):
        left = [step]

        def at_step(left: list[int] = left) -> bool:
            left[0] -= 1
            return left[0] < 0

        with pytest.raises(BuildCancelled, match="nothing was written"):
            ten.build(is_cancelled=at_step)
        assert ten.files() == ONNX_ONLY
    assert len(asked) > 6


def test_on_8_6_a_build_is_cancelled_between_phases(tmp_path: Path) -> None:
    bench = build_bench(tmp_path, "8.6")
    make_cnn(bench.onnx_path)
    started = bench.events

    def once_it_builds() -> bool:
        return any(isinstance(event, PhaseStarted) and event.phase == "build" for event in started)

    with pytest.raises(BuildCancelled):
        bench.build(is_cancelled=once_it_builds)
    assert bench.files() == ONNX_ONLY


def broken_builder(bench: BuildBench) -> None:
    bench.world.building.builder_is_broken = True


def failing_build(bench: BuildBench) -> None:
    bench.world.building.error = "Error Code 2: OutOfMemory (no further information)"


def silent_parser(bench: BuildBench) -> None:
    bench.world.building.parser_is_silent = True


def unreadable_plan(bench: BuildBench) -> None:
    bench.world.faults.engine = "the plan is corrupt"


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (broken_builder, r"its builder does not start: .*`inferlane doctor` looks closer"),
        (failing_build, r"TensorRT .* cannot build the model: Error Code 2: OutOfMemory.*if memory is short"),
        (silent_parser, r"refuses model\.onnx without a reason"),
        (unreadable_plan, r"cannot load model\.plan: the plan is corrupt"),
        (lambda bench: make_custom(bench.onnx_path), r"node 'heart' \(Mystery\): No importer registered"),
        (lambda bench: bench.onnx_path.write_bytes(b"rubbish"), r"is no ONNX model"),
        (lambda bench: bench.card("[precision]\nmode = 'int8'\n"), r"modelopt\.onnx\.quantization .* int8"),
    ],
)
def test_a_build_that_fails_says_why_and_leaves_nothing(
    bench: BuildBench, prepare: Callable[[BuildBench], object], words: str
) -> None:
    make_cnn(bench.onnx_path)
    prepare(bench)
    before = bench.files()
    with pytest.raises(ModelLoadFailed, match=words):
        bench.build()
    assert bench.files() == before


def test_errors_of_tensorrt_are_lines_too(ten: BuildBench) -> None:
    make_cnn(ten.onnx_path)
    failing_build(ten)
    with pytest.raises(ModelLoadFailed):
        ten.build()
    assert LogLine("error", ten.world.building.error) in ten.events


@pytest.mark.parametrize(
    ("prepare", "kind", "words"),
    [
        (lambda bench: None, ModelNotFound, "model 'model' is not in the repository"),
        (lambda bench: bench.card("[build]\nlevel = 3\n"), CardError, "build.level"),
        (lambda bench: bench.plan_path.write_bytes(b"plan"), ModelLoadFailed, "holds no model.onnx to build from"),
    ],
)
def test_without_a_model_nothing_is_built(
    ten: BuildBench, prepare: Callable[[BuildBench], object], kind: type[ServiceError], words: str
) -> None:
    prepare(ten)
    with pytest.raises(kind) as caught:
        ten.build()
    assert words in caught.value.message


def refused_with_words(self: object, *shapes: object) -> None:
    raise ValueError("Shape provided for min is inconsistent")


@pytest.mark.parametrize(
    ("double", "method", "fault", "words"),
    [
        (Profile, "set_shape", refused_with_words, "Shape provided for min is inconsistent"),
        (Config, "add_optimization_profile", lambda self, profile: -1, "it gave no reason"),
    ],
)
def test_a_profile_that_tensorrt_refuses_is_shown(
    ten: BuildBench, monkeypatch: pytest.MonkeyPatch, double: type, method: str, fault: object, words: str
) -> None:
    make_cnn(ten.onnx_path)
    monkeypatch.setattr(double, method, fault)
    with pytest.raises(ModelLoadFailed, match=rf"refuses an optimization profile .*1x3x64x64.*: {words}; correct"):
        ten.build()


def test_a_dimension_without_a_range_is_asked_for(ten: BuildBench) -> None:
    make_sequence(ten.onnx_path)
    with pytest.raises(CardError, match=r"\[buckets\] sequence = \[64, 128\]"):
        ten.build()
    assert ten.files() == ONNX_ONLY


def test_a_device_that_is_not_there_is_refused(ten: BuildBench) -> None:
    make_cnn(ten.onnx_path)
    with pytest.raises(DeviceError, match="cudaSetDevice"):
        ten.build(device=3)


def test_the_lean_runtime_says_what_to_do(tmp_path: Path) -> None:
    bench = build_bench(tmp_path, "11-lean")
    make_cnn(bench.onnx_path)
    with pytest.raises(ModelLoadFailed, match=r"runs plans but cannot build them; install .*or build the plan with"):
        bench.build()
    assert bench.files() == ONNX_ONLY
