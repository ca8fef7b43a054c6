"""What the launchers refuse, one argument wrong at a time, and that they take the right ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels.classify import prepare_classify
from kernels.detect import Detections, DetectLimits, DetectScratch, prepare_detect
from kernels.embed import prepare_embed
from kernels.layernorm import LayerNormWeights, prepare_layernorm
from kernels.pad import prepare_pad
from kernels.peaks import Gemm, ProblemArgument, prepare_copy, prepare_fma, prepare_gemm
from kernels.specs import SOURCES
from kernels.tensor_map import TensorMap
from service.cards import BoxLayout
from service.errors import DeviceError
from service.runtime.cuda.calls import PreparedCall, run_calls
from service.runtime.cuda.memory import DeviceBuffer
from service.tensors import DType
from tests.kernels.kernel_bench import ADDRESS, KernelBench, tensor

F16, F32, I32, I64, U64 = DType.FP16, DType.FP32, DType.INT32, DType.INT64, DType.UINT64


@pytest.fixture
def bench(tmp_path: Path):
    bench = KernelBench(tmp_path, list(SOURCES))
    yield bench
    bench.close()


def classify(bench: KernelBench, **changed: Any) -> PreparedCall:
    given = {"scores": tensor(F16, 2, 10), "best": tensor(F32, 2, 5), "indices": tensor(I32, 2, 5), **changed}
    return prepare_classify(bench.kernels, **given, stream=bench.stream)


def embed(bench: KernelBench, **changed: Any) -> PreparedCall:
    given = {"hidden": tensor(F16, 2, 7, 9), "mask": tensor(I32, 2, 7), "vectors": tensor(F32, 2, 9), **changed}
    return prepare_embed(bench.kernels, **given, is_normalized=True, stream=bench.stream)


def pad(bench: KernelBench, **changed: Any) -> PreparedCall:
    given = {
        "tokens": tensor(I64, 100),
        "starts": tensor(I32, 4),
        "batch": (tensor(I64, 3, 130), tensor(I64, 3, 130)),
        "pad_token": 0,
        **changed,
    }
    return prepare_pad(bench.kernels, **given, stream=bench.stream)


def layernorm(bench: KernelBench, **changed: Any) -> PreparedCall:
    rows, weight = tensor(F16, 4, 64), tensor(F16, 64)
    gamma, beta = changed.pop("gamma", weight), changed.pop("beta", weight)
    given = {"rows": rows, "residual": rows, "normalised": rows, **changed}
    return prepare_layernorm(bench.kernels, **given, weights=LayerNormWeights(gamma, beta, 1e-5), stream=bench.stream)


def detect(bench: KernelBench, **changed: Any) -> tuple[PreparedCall, ...]:
    given = {
        "predictions": tensor(F16, 2, 300, 8),
        "keys": tensor(U64, 2, 300),
        "found": tensor(I32, 2, 2),
        "counts": tensor(I32, 2, 2),
        "boxes": tensor(F32, 2, 50, 4),
        "scores": tensor(F32, 2, 50),
        "classes": tensor(I32, 2, 50),
        "layout": BoxLayout.YOLOV5,
        **changed,
    }
    return prepare_detect(
        bench.kernels,
        given["predictions"],
        DetectScratch(given["keys"], given["found"]),
        Detections(given["counts"], given["boxes"], given["scores"], given["classes"]),
        DetectLimits(given["layout"], 0.25, 0.45),
        stream=bench.stream,
    )


@pytest.mark.parametrize(
    ("prepare", "changed", "entry", "grid", "block"),
    [
        (classify, {}, "classify_fp16", (2, 1, 1), (256, 1, 1)),
        (classify, {"scores": tensor(F32, 2, 10)}, "classify_fp32", (2, 1, 1), (256, 1, 1)),
        (embed, {}, "embed_fp16", (2, 1, 1), (32, 16, 1)),
        (embed, {"hidden": tensor(F32, 2, 7, 9)}, "embed_fp32", (2, 1, 1), (32, 16, 1)),
        (pad, {}, "pad_int64", (2, 3, 1), (128, 1, 1)),
        (layernorm, {}, "layernorm_fp16", (4, 1, 1), (256, 1, 1)),
    ],
)
def test_launches(bench: KernelBench, prepare: Callable[..., PreparedCall], changed, entry, grid, block) -> None:
    launch = prepare(bench, **changed)
    run_calls(bench.cuda, [launch])
    assert bench.driver.launches == [(entry, grid, block, 0, bench.stream.handle)]


def test_detect_clears_its_counts_first(bench: KernelBench) -> None:
    with DeviceBuffer(bench.cuda, 16) as buffer:
        found = tensor(I32, 2, 2, offset=buffer.address - tensor(I32).address)
        calls = detect(bench, found=found)
        assert [call.name for call in calls] == [
            "cudaMemsetAsync",
            "cuLaunchKernel detect_decode_yolov5_fp16",
            "cuLaunchKernel detect_select_yolov5_fp16",
        ]
        run_calls(bench.cuda, calls)
        assert not bench.cuda.api.device_view(buffer.address, 16).any()
    assert [launch[1:3] for launch in bench.driver.launches] == [((2, 2, 1), (256, 1, 1)), ((2, 1, 1), (1024, 1, 1))]


@pytest.mark.parametrize(
    ("prepare", "changed", "message"),
    [
        (classify, {"scores": tensor(I32, 2, 10)}, "'scores' is"),
        (classify, {"best": tensor(F16, 2, 5)}, "'best' is"),
        (classify, {"best": tensor(F32, 2, 11), "indices": tensor(I32, 2, 11)}, "'best' is"),
        (classify, {"indices": tensor(I32, 2, 4)}, "'indices' is"),
        (embed, {"hidden": tensor(F16, 2, 9)}, "'hidden' is"),
        (embed, {"mask": tensor(I64, 2, 7)}, "'mask' is"),
        (embed, {"vectors": tensor(F32, 2, 8)}, "'vectors' is"),
        (pad, {"tokens": tensor(F32, 100)}, "'tokens' is"),
        (pad, {"tokens": tensor(I32, 100)}, "'ids' is"),
        (pad, {"starts": tensor(I32, 3)}, "'starts' is"),
        (pad, {"batch": (tensor(I64, 3, 130), tensor(I64, 3, 129))}, "'mask' is"),
        (pad, {"pad_token": 1 << 31}, "must fit 32 bits"),
        (layernorm, {"residual": tensor(F32, 4, 64)}, "'residual' is"),
        (layernorm, {"normalised": tensor(F16, 3, 64)}, "'normalised' is"),
        (layernorm, {"gamma": tensor(F16, 63)}, "'gamma' is"),
        (layernorm, {"beta": tensor(F16, 63)}, "'beta' is"),
        (layernorm, {"beta": tensor(F16, 64, offset=8)}, "multiples of 16"),
        (detect, {"predictions": tensor(F16, 2, 300, 5)}, "300 anchors of 0 classes"),
        (detect, {"predictions": tensor(F16, 2, 3000, 5000)}, "of 4995 classes"),
        (detect, {"layout": BoxLayout.AUTO}, "layout 'auto' was given"),
        (detect, {"layout": BoxLayout.YOLOV8}, "'scratch.keys' is"),
        (detect, {"found": tensor(I32, 2, 1)}, "'scratch.counts' is"),
        (detect, {"counts": tensor(I32, 2)}, "'counts' is"),
        (detect, {"boxes": tensor(F32, 2, 49, 4)}, "'boxes' is"),
        (detect, {"classes": tensor(I32, 2, 49)}, "'classes' is"),
        (detect, {"scores": tensor(F32, 2, 1025)}, "'scores' is"),
    ],
)
def test_arguments_are_checked(bench: KernelBench, prepare: Callable[..., Any], changed, message: str) -> None:
    prepare(bench)
    with pytest.raises(DeviceError, match=message):
        prepare(bench, **changed)


def copy(bench: KernelBench, **changed: Any) -> PreparedCall:
    given = {"source": tensor(DType.UINT8, 16400), "target": tensor(DType.UINT8, 16400), **changed}
    return prepare_copy(bench.kernels, **given, stream=bench.stream)


def fma(bench: KernelBench, **changed: Any) -> PreparedCall:
    return prepare_fma(bench.kernels, **{"out": tensor(F32, 512), "iterations": 3, **changed}, stream=bench.stream)


def gemm(bench: KernelBench, **changed: Any) -> PreparedCall:
    given = {
        "left": tensor(F16, 256, 64),
        "right": tensor(F16, 512, 64),
        "out": tensor(F16, 256, 512),
        "how": Gemm.TILED,
        **changed,
    }
    return prepare_gemm(bench.kernels, **given, stream=bench.stream)


@pytest.mark.parametrize(
    ("prepare", "changed", "launch"),
    [
        (copy, {}, ("peak_copy", (2, 1, 1), (256, 1, 1), 0)),
        (fma, {}, ("peak_fma", (2, 1, 1), (256, 1, 1), 0)),
        (gemm, {}, ("gemm_tiled", (4, 1, 1), (256, 1, 1), 98304)),
        (gemm, {"how": Gemm.NAIVE}, ("gemm_naive", (16, 16, 1), (128, 1, 1), 0)),
        (gemm, {"how": Gemm.WGMMA}, ("gemm_wgmma", (4, 1, 1), (288, 1, 1), 197632)),
    ],
)
def test_peaks(bench: KernelBench, prepare: Callable[..., PreparedCall], changed, launch) -> None:
    run_calls(bench.cuda, [prepare(bench, **changed)])
    assert bench.driver.launches == [(*launch, bench.stream.handle)]


@pytest.mark.parametrize(
    ("prepare", "changed", "message"),
    [
        (copy, {"target": tensor(DType.UINT8, 16384)}, "'target' is"),
        (copy, {"target": tensor(DType.UINT8, 16400, offset=8)}, "multiples of 16"),
        (copy, {"source": tensor(DType.UINT8, 8), "target": tensor(DType.UINT8, 8)}, "multiples of 16"),
        (fma, {"out": tensor(F32, 100)}, "whole blocks of 256"),
        (fma, {"iterations": 0}, "whole blocks of 256"),
        (gemm, {"right": tensor(F16, 512, 65)}, "'right' is"),
        (gemm, {"out": tensor(F16, 512, 256)}, "'out' is"),
        (gemm, {"left": tensor(F16, 64, 64), "out": tensor(F16, 64, 512)}, r"multiples of \(128, 256, 32\)"),
        (gemm, {"left": tensor(F16, 64, 64), "out": tensor(F16, 64, 512), "how": Gemm.WGMMA}, r"\(128, 256, 64\)"),
        (gemm, {"left": tensor(F16, 256, 64, offset=2)}, "must be multiples"),
    ],
)
def test_peaks_check_their_arguments(bench: KernelBench, prepare: Callable[..., Any], changed, message: str) -> None:
    prepare(bench)
    with pytest.raises(DeviceError, match=message):
        prepare(bench, **changed)


def test_wgmma_knows_its_matrices(bench: KernelBench) -> None:
    launch = gemm(bench, how=Gemm.WGMMA)
    run_calls(bench.cuda, [launch])
    left, right = (bench.driver.argument(index, TensorMap).words for index in (0, 1))
    assert left[:6] == [ADDRESS, 64, 256, 128, 64, 128]
    assert right[:6] == [ADDRESS, 64, 512, 128, 64, 128]
    problem = bench.driver.argument(3, ProblemArgument)
    assert (problem.rows, problem.columns, problem.depth) == (256, 512, 64)


def test_wgmma_is_for_hopper_alone(bench: KernelBench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert Gemm.best_on(bench.kernels) is Gemm.WGMMA
    monkeypatch.setattr(bench.cuda, "compute_capability", lambda device: (10, 0))
    with bench.load(tmp_path, list(SOURCES)) as kernels:
        assert Gemm.best_on(kernels) is Gemm.TILED
        operands = tensor(F16, 256, 64), tensor(F16, 256, 64), tensor(F16, 256, 256)
        with pytest.raises(DeviceError, match=r"compute capability 9\.0 alone"):
            prepare_gemm(kernels, *operands, how=Gemm.WGMMA, stream=bench.stream)


def test_a_refused_tensor_map_is_told(bench: KernelBench) -> None:
    bench.driver.refuses = "cuTensorMapEncodeTiled"
    with pytest.raises(DeviceError, match="in cuTensorMapEncodeTiled of 256 x 64"):
        gemm(bench, how=Gemm.WGMMA)


@pytest.mark.parametrize(("dtype", "width"), [(F16, 60), (F32, 62), (F16, 8200)])
def test_layernorm_takes_whole_packs_up_to_its_limit(bench: KernelBench, dtype: DType, width: int) -> None:
    rows, weight = tensor(dtype, 4, width), tensor(dtype, width)
    changed = {"rows": rows, "residual": rows, "normalised": rows, "gamma": weight, "beta": weight}
    with pytest.raises(DeviceError, match="takes up to 8192"):
        layernorm(bench, **changed)
