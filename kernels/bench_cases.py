"""What the bench measures: inputs of the sizes that servers see, and the bytes that each kernel cannot avoid.

Images are more than a GPU's caches hold. The small cases of the other kernels fit, and run from there, as they do
behind an engine: their share of the memory's rate says less than their microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from kernels.classify import prepare_classify
from kernels.detect import Detections, DetectLimits, DetectScratch, prepare_detect
from kernels.embed import prepare_embed
from kernels.layernorm import LayerNormWeights, prepare_layernorm
from kernels.pad import prepare_pad
from kernels.peaks import FMA_FLOPS, Gemm, prepare_copy, prepare_fma, prepare_gemm
from kernels.preprocess import (
    Normalisation,
    Placement,
    SourceImage,
    describe_images,
    image_entry,
    prepare_preprocess,
)
from kernels.reference import taps
from kernels.session import DeviceSession
from kernels.specs import PixelFormat
from service.cards import BoxLayout
from service.runtime.cuda.calls import PreparedCall
from service.tensors import DType

IMAGENET = Normalisation((0.0171, 0.0175, 0.0174), (-2.118, -2.036, -1.804), is_bgr=False, pad_value=114)

BATCH = 32
FULL_HD = (1080, 1920)
SECTOR_BYTES = 32
"""What device memory is read by."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to measure.

    Attributes:
        name: kernel and sizes.
        calls: one run of it.
        nbytes: that must at least be read and written.
        flops: floating-point operations, where they and not the bytes are the limit.
        rival: what others are asked to do instead: a key of `rivals.RIVALS`, and its sizes.
    """

    name: str
    calls: Sequence[PreparedCall]
    nbytes: int
    flops: int = 0
    rival: tuple[str, tuple[int, ...]] = ("", ())


class Peaks:
    """The best rates seen so far, by what limits them."""

    def __init__(self) -> None:
        self._bytes_per_us = 0.0
        self._flops_per_us: dict[str, float] = {}

    def note(self, case: Case, elapsed_us: float) -> None:
        """Remembers what the device's own kernels reach."""
        kind = case.name.split()[0]
        if kind == "copy":
            self._bytes_per_us = max(self._bytes_per_us, case.nbytes / elapsed_us)
        elif case.flops:
            self._flops_per_us[kind] = max(self._flops_per_us.get(kind, 0.0), case.flops / elapsed_us)

    def share(self, case: Case, elapsed_us: float) -> float:
        """The part of the roofline that a case reaches."""
        if case.flops:
            return case.flops / elapsed_us / self._flops_per_us[case.name.split()[0]]
        return case.nbytes / elapsed_us / self._bytes_per_us


def sampled(scaled: int, offset: int, side: int, extent: int) -> npt.NDArray[np.int64]:
    """Rows or columns of an image that have a weight in what a canvas of `side` shows of it, ascending."""
    first, weight = taps(scaled, extent)
    visible = slice(max(0, -offset), max(0, min(scaled, side - offset)))
    used = np.concatenate([first[visible], first[visible][weight[visible] > 0] + 1])
    rows: npt.NDArray[np.int64] = np.unique(np.clip(used, 0, extent - 1))
    return rows


def touched_bytes(image: SourceImage, placement: Placement, canvas: tuple[int, int]) -> int:
    """Bytes of the sectors of a packed image that a resize of what the canvas shows has a weight for."""
    rows = sampled(placement.height, placement.top, canvas[0], image.height)
    columns = sampled(placement.width, placement.left, canvas[1], image.width)
    sectors = np.unique(np.concatenate([columns * 3, columns * 3 + 2]) // SECTOR_BYTES)
    return len(rows) * len(sectors) * SECTOR_BYTES


def letterboxed(height: int, width: int, side: int) -> Placement:
    """The largest centred size of the aspect ratio within a square."""
    scaled_height, scaled_width = round(height * side / max(height, width)), round(width * side / max(height, width))
    return Placement((side - scaled_height) // 2, (side - scaled_width) // 2, scaled_height, scaled_width)


def cropped(height: int, width: int, side: int) -> Placement:
    """The shorter side at 8/7 of the canvas, the middle shown."""
    shorter = side * 8 // 7
    scaled_height, scaled_width = height * shorter // min(height, width), width * shorter // min(height, width)
    return Placement((side - scaled_height) // 2, (side - scaled_width) // 2, scaled_height, scaled_width)


def preprocess(
    session: DeviceSession,
    name: str,
    sizes: Sequence[tuple[int, int]],
    side: int,
    place: Callable[[int, int, int], Placement],
) -> Case:
    """A batch of packed RGB images onto square FP16 canvases."""
    entries, nbytes = [], 0
    for height, width in sizes:
        memory = session.upload(_noise(height, width, 3))
        image = SourceImage(memory.address, height, width, width * 3)
        placement = place(height, width, side)
        entries.append(image_entry(image, placement))
        nbytes += touched_bytes(image, placement, (side, side))
    rows = session.empty(DType.FP16, len(sizes), 3, side, side)
    descriptors = session.upload(describe_images(entries))
    call = prepare_preprocess(session.kernels, descriptors, rows, IMAGENET, stream=session.stream)
    is_uniform = len(set(sizes)) == 1
    rival = (f"preprocess-{place.__name__}", (len(sizes), *sizes[0], side)) if is_uniform else ("", ())
    return Case(f"preprocess {name}", [call], nbytes + rows.nbytes, rival=rival)


def preprocess_nv12(session: DeviceSession, size: int, height: int, width: int, side: int) -> Case:
    """Video frames onto square FP16 canvases; whole rows of luma and chroma count, where one is sampled."""
    placement = letterboxed(height, width, side)
    rows_read = sampled(placement.height, placement.top, side, height)
    frame_bytes = (len(rows_read) + len(np.unique(rows_read // 2))) * width
    entries = []
    for _ in range(size):
        memory = session.upload(_noise(height * 3 // 2, width, 1))
        image = SourceImage(memory.address, height, width, width, PixelFormat.NV12, memory.address + height * width)
        entries.append(image_entry(image, placement))
    rows = session.empty(DType.FP16, size, 3, side, side)
    descriptors = session.upload(describe_images(entries))
    call = prepare_preprocess(session.kernels, descriptors, rows, IMAGENET, stream=session.stream)
    name = f"preprocess {size} x {height} x {width} NV12, letterbox {side}"
    return Case(name, [call], size * frame_bytes + rows.nbytes)


def classify(session: DeviceSession, size: int, classes: int) -> Case:
    """Top 5 of FP16 logits."""
    scores = session.upload(_normal(size, classes))
    best, indices = session.empty(DType.FP32, size, 5), session.empty(DType.INT32, size, 5)
    call = prepare_classify(session.kernels, scores, best, indices, stream=session.stream)
    nbytes = scores.nbytes + best.nbytes + indices.nbytes
    return Case(f"classify {size} x {classes}, top 5", [call], nbytes, rival=("classify", (size, classes)))


def embed(session: DeviceSession, size: int, tokens: int, width: int) -> Case:
    """Mean and length 1 of FP16 token vectors, none masked."""
    hidden, mask = session.upload(_normal(size, tokens, width)), session.upload(np.ones((size, tokens), np.int32))
    vectors = session.empty(DType.FP32, size, width)
    call = prepare_embed(session.kernels, hidden, mask, vectors, is_normalized=True, stream=session.stream)
    nbytes = hidden.nbytes + mask.nbytes + vectors.nbytes
    return Case(f"embed {size} x {tokens} x {width}", [call], nbytes, rival=("embed", (size, tokens, width)))


def pad(session: DeviceSession, size: int, width: int) -> Case:
    """Token rows of INT64, half full on average."""
    lengths = np.random.default_rng(0).integers(1, width + 1, size)
    starts = session.upload(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    tokens = session.upload(np.arange(lengths.sum(), dtype=np.int64))
    batch = session.empty(DType.INT64, size, width), session.empty(DType.INT64, size, width)
    call = prepare_pad(session.kernels, tokens, starts, batch, pad_token=0, stream=session.stream)
    return Case(f"pad {size} x {width}", [call], tokens.nbytes + 2 * batch[0].nbytes)


def layernorm(session: DeviceSession, rows: int, width: int) -> Case:
    """FP16 rows and residuals."""
    places = [session.upload(_normal(rows, width)) for _ in range(2)]
    weights = LayerNormWeights(session.upload(_normal(width)), session.upload(_normal(width)), 1e-5)
    out = session.empty(DType.FP16, rows, width)
    call = prepare_layernorm(session.kernels, places[0], places[1], weights, out, stream=session.stream)
    return Case(f"layernorm {rows} x {width}", [call], 3 * out.nbytes, rival=("layernorm", (rows, width)))


def detect(session: DeviceSession, layout: BoxLayout, size: int, anchors: int) -> Case:
    """FP16 heads of 80 classes, one anchor in a hundred above the threshold."""
    rng = np.random.default_rng(0)
    scores = rng.random((size, anchors, 80), np.float32) * np.float32(0.2)
    scores[rng.random((size, anchors)) < 0.01] += np.float32(0.5)
    boxes = rng.random((size, anchors, 4), np.float32) * np.array([640, 640, 90, 90], np.float32)
    columns = [boxes, scores] if layout is BoxLayout.YOLOV8 else [boxes, scores[..., :1] * 0 + 1, scores]
    rows = np.concatenate(columns, axis=2).astype(np.float16)
    predictions = session.upload(np.ascontiguousarray(rows.transpose(0, 2, 1)) if layout is BoxLayout.YOLOV8 else rows)
    scratch = DetectScratch(session.empty(DType.UINT64, size, anchors), session.empty(DType.INT32, size, 2))
    out = Detections(
        session.empty(DType.INT32, size, 2),
        session.empty(DType.FP32, size, 300, 4),
        session.empty(DType.FP32, size, 300),
        session.empty(DType.INT32, size, 300),
    )
    limits = DetectLimits(layout, 0.25, 0.45)
    calls = prepare_detect(session.kernels, predictions, scratch, out, limits, stream=session.stream)
    rival = ("detect", (size, anchors)) if layout is BoxLayout.YOLOV8 else ("", ())
    return Case(f"detect {layout.value} {size} x {anchors}", calls, predictions.nbytes, rival=rival)


def copy(session: DeviceSession, nbytes: int) -> Case:
    """Device to device; read and written bytes count."""
    source, target = session.empty(DType.UINT8, nbytes), session.empty(DType.UINT8, nbytes)
    call = prepare_copy(session.kernels, source, target, stream=session.stream)
    return Case(f"copy {nbytes >> 20} MiB", [call], 2 * nbytes, rival=("copy", (nbytes,)))


def fma(session: DeviceSession, threads: int, iterations: int) -> Case:
    """Enough threads for any device, long enough that their start does not count."""
    call = prepare_fma(session.kernels, session.empty(DType.FP32, threads), iterations, stream=session.stream)
    return Case("fma FP32", [call], 4 * threads, flops=threads * iterations * FMA_FLOPS)


def gemm(session: DeviceSession, side: int, *, how: Gemm | None) -> Case:
    """Square FP16 matrices of random values: zeros would run faster. None takes the best kernel, against its rival."""
    left, right = session.upload(_normal(side, side)), session.upload(_normal(side, side))
    out = session.empty(DType.FP16, side, side)
    chosen = how or Gemm.best_on(session.kernels)
    call = prepare_gemm(session.kernels, left, right, out, how=chosen, stream=session.stream)
    name = f"gemm FP16 {side}, {chosen.name.lower()}"
    return Case(name, [call], 3 * out.nbytes, flops=2 * side**3, rival=("", ()) if how else ("gemm", (side,)))


def _noise(*shape: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def _normal(*shape: int) -> npt.NDArray[np.float16]:
    values: npt.NDArray[np.float16] = np.random.default_rng(0).standard_normal(shape, np.float32).astype(np.float16)
    return values


_FULL_HD_BATCH = (FULL_HD,) * BATCH
_MIXED = tuple((240 + 97 * i % 1900, 320 + 211 * i % 2200) for i in range(BATCH))

CASES: dict[str, tuple[Callable[[DeviceSession], Case], ...]] = {
    "peaks": (
        partial(copy, nbytes=1 << 30),
        partial(fma, threads=1 << 20, iterations=4096),
        partial(gemm, side=8192, how=None),
        partial(gemm, side=8192, how=Gemm.TILED),
        partial(gemm, side=4096, how=Gemm.NAIVE),
    ),
    "preprocess": (
        partial(preprocess, name="32 x 1080p, letterbox 640", sizes=_FULL_HD_BATCH, side=640, place=letterboxed),
        partial(preprocess, name="128 x 1080p, crop 224", sizes=_FULL_HD_BATCH * 4, side=224, place=cropped),
        partial(preprocess, name="32 mixed sizes, letterbox 640", sizes=_MIXED, side=640, place=letterboxed),
        partial(preprocess_nv12, size=BATCH, height=1080, width=1920, side=640),
    ),
    "classify": (partial(classify, size=128, classes=1000), partial(classify, size=32, classes=21841)),
    "embed": (partial(embed, size=8, tokens=128, width=768), partial(embed, size=256, tokens=512, width=768)),
    "pad": (partial(pad, size=128, width=512),),
    "detect": (
        partial(detect, layout=BoxLayout.YOLOV8, size=32, anchors=8400),
        partial(detect, layout=BoxLayout.YOLOV5, size=32, anchors=25200),
    ),
    "layernorm": (partial(layernorm, rows=1024, width=768), partial(layernorm, rows=65536, width=1024)),
}
"""By kernel; `peaks` first, because the others are shares of them."""
