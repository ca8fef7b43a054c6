"""What others need for the bench's cases on the same machine: OpenCV on the CPU, PyTorch on the GPU.

PyTorch's versions are what one would write there: whole batches, no loop in Python, nothing compiled ahead.
"""

from __future__ import annotations

import importlib
import logging
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cv2
import numpy as np

from kernels.bench_cases import Case
from service.cards import ModelCard, PreprocessCard, Resize
from service.models import build_spec
from service.pipeline.preprocess import Preprocessor, create_preprocessor
from service.tensors import BATCH_DIM, DType, TensorSpec

_LOG = logging.getLogger(__name__)

ROUNDS = 5
REPEATS = 20

_RESIZES = {"preprocess-letterboxed": Resize.LETTERBOX, "preprocess-cropped": Resize.SHORTEST_SIDE_CROP}


def rivals_of(case: Case) -> dict[str, float]:
    """Microseconds by rival; those that are not installed, cannot run here or have nothing to compare are left out."""
    kind, sizes = case.rival
    times: dict[str, float] = {}
    if kind in _RESIZES:
        times |= opencv_us(_RESIZES[kind], sizes)
    torch = _torch()
    if torch is not None and kind in TORCH:
        try:
            times["PyTorch"] = _torch_us(torch, TORCH[kind](torch, *sizes))
        except (ImportError, RuntimeError) as error:
            _LOG.warning("PyTorch did not run %s: %s", kind, error)
    return times


def opencv_us(resize: Resize, sizes: tuple[int, ...]) -> dict[str, float]:
    """The server's own CPU path on the same batch: OpenCV's resize and a look-up, a thread per image."""
    size, height, width, side = sizes
    preprocessor = _preprocessor(resize, side)
    images = [np.random.default_rng(i).integers(0, 256, (height, width, 3), dtype=np.uint8) for i in range(size)]
    host_rows = preprocessor.target.allocate(size)
    threads_before = cv2.getNumThreads()
    cv2.setNumThreads(1)
    times = {}
    for threads in (1, 8):
        with ThreadPoolExecutor(threads) as pool:
            times[f"OpenCV x{threads}"] = _wall_us(lambda: [*pool.map(preprocessor.write, images, host_rows)])
    cv2.setNumThreads(threads_before)
    return times


def _preprocessor(resize: Resize, side: int) -> Preprocessor:
    card = ModelCard(
        name="rival",
        preprocess=PreprocessCard(
            resize=resize, shortest_side=side * 8 // 7, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)
        ),
    )
    images = TensorSpec("images", DType.FP16, (BATCH_DIM, 3, side, side))
    scores = TensorSpec("scores", DType.FP32, (BATCH_DIM, 2))
    spec = build_spec(card, version="1", platform="onnxruntime_onnx", inputs=(images,), outputs=(scores,))
    return create_preprocessor(spec)


def _wall_us(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(ROUNDS):
        began_ns = time.perf_counter_ns()
        work()
        times.append((time.perf_counter_ns() - began_ns) / 1e3)
    return statistics.median(times)


def _torch() -> Any:
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def _torch_us(torch: Any, work: Callable[[], object]) -> float:
    """Median over rounds, by CUDA events; its launches are PyTorch's own, not a graph's."""
    for _ in range(3):
        work()
    times = []
    for _ in range(ROUNDS):
        begun, done = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        for _ in range(REPEATS):
            work()
        done.record()
        done.synchronize()
        times.append(begun.elapsed_time(done) * 1e3 / REPEATS)
    median: float = statistics.median(times)
    return median


def _torch_preprocess(torch: Any, size: int, height: int, width: int, side: int) -> Callable[[], object]:
    """A letterbox of equal sizes, in FP16 from the start."""
    images = torch.randint(0, 256, (size, height, width, 3), dtype=torch.uint8, device="cuda")
    mean = torch.tensor([123.7, 116.3, 103.5], device="cuda", dtype=torch.half).view(1, 3, 1, 1)
    std = torch.tensor([58.4, 57.1, 57.4], device="cuda", dtype=torch.half).view(1, 3, 1, 1)
    scaled = side * height // width
    above = (side - scaled) // 2
    functional = torch.nn.functional

    def work() -> object:
        values = images.permute(0, 3, 1, 2).half()
        resized = functional.interpolate(values, size=(scaled, side), mode="bilinear", align_corners=False)
        canvas = functional.pad(resized, (0, 0, above, side - scaled - above), value=114.0)
        return (canvas - mean) / std

    return work


def _torch_classify(torch: Any, size: int, classes: int) -> Callable[[], object]:
    scores = torch.randn(size, classes, device="cuda", dtype=torch.half)
    return lambda: scores.float().softmax(dim=1).topk(5, dim=1)


def _torch_embed(torch: Any, size: int, tokens: int, width: int) -> Callable[[], object]:
    hidden = torch.randn(size, tokens, width, device="cuda", dtype=torch.half)
    mask = torch.ones(size, tokens, 1, device="cuda")

    def work() -> object:
        mean = (hidden.float() * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
        return torch.nn.functional.normalize(mean, dim=1)

    return work


def _torch_layernorm(torch: Any, rows: int, width: int) -> Callable[[], object]:
    x, residual = (torch.randn(rows, width, device="cuda", dtype=torch.half) for _ in range(2))
    gamma, beta = (torch.randn(width, device="cuda", dtype=torch.half) for _ in range(2))
    return lambda: torch.nn.functional.layer_norm(x + residual, (width,), gamma, beta, 1e-5)


def _torch_detect(torch: Any, size: int, anchors: int) -> Callable[[], object]:
    """YOLOv8's decode and threshold, and torchvision's batched suppression over image and class."""
    ops = importlib.import_module("torchvision.ops")
    scores = (
        torch.rand(size, 80, anchors, device="cuda") * 0.2 + (torch.rand(size, 1, anchors, device="cuda") < 0.01) * 0.5
    )
    boxes = torch.rand(size, 4, anchors, device="cuda") * 600 + 20

    def work() -> object:
        best, classes = scores.max(dim=1)
        images, kept = (best >= 0.25).nonzero(as_tuple=True)
        centres = boxes.transpose(1, 2)[images, kept]
        corners = torch.cat([centres[:, :2] - centres[:, 2:] / 2, centres[:, :2] + centres[:, 2:] / 2], dim=1)
        return ops.batched_nms(corners, best[images, kept], images * 80 + classes[images, kept], 0.45)

    return work


def _torch_copy(torch: Any, nbytes: int) -> Callable[[], object]:
    source, target = (torch.empty(nbytes, dtype=torch.uint8, device="cuda") for _ in range(2))
    return lambda: target.copy_(source)


def _torch_gemm(torch: Any, side: int) -> Callable[[], object]:
    left, right = (torch.randn(side, side, device="cuda", dtype=torch.half) for _ in range(2))
    return lambda: left @ right.T


TORCH: dict[str, Callable[..., Callable[[], object]]] = {
    "preprocess-letterboxed": _torch_preprocess,
    "classify": _torch_classify,
    "embed": _torch_embed,
    "layernorm": _torch_layernorm,
    "detect": _torch_detect,
    "copy": _torch_copy,
    "gemm": _torch_gemm,
}
"""By the rival's name in a case: takes PyTorch and the sizes, gives the work."""
