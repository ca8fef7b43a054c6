"""Launches the kernels of `detect`: a YOLO head's output becomes a fixed number of boxes per image."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import partial

from kernels.launch import DeviceTensor, Kernels, pointers, require_tensor
from kernels.specs import Geometry, ceil_div
from service.cards import BoxLayout
from service.errors import DeviceError
from service.runtime.cuda.calls import PreparedCall
from service.runtime.cuda.stream import Stream
from service.tensors import DType

CANDIDATES = 1024
"""Candidates of one image that are compared with each other, the best first; as in `csrc/detect.cu`."""

MAX_ANCHORS = 1 << 20
MAX_CLASSES = 4096
"""What fits a candidate's key; as in `csrc/detect.cuh`."""

_DECODE_BLOCK = (256, 1, 1)
_SELECT_BLOCK = (CANDIDATES, 1, 1)


class HeadArgument(ctypes.Structure):
    """`struct Head` of `csrc/detect.cu`."""

    _fields_ = (("anchors", ctypes.c_int), ("classes", ctypes.c_int))


class DetectionsArgument(ctypes.Structure):
    """`struct Detections` of `csrc/detect.cu`."""

    _fields_ = (
        ("counts", ctypes.c_void_p),
        ("boxes", ctypes.c_void_p),
        ("scores", ctypes.c_void_p),
        ("classes", ctypes.c_void_p),
        ("limit", ctypes.c_int),
    )


@dataclass(frozen=True, slots=True)
class DetectScratch:
    """What one batch leaves between the two kernels.

    Attributes:
        keys: UINT64[N, A] device.
        counts: INT32[N, 2] device.
    """

    keys: DeviceTensor
    counts: DeviceTensor


@dataclass(frozen=True, slots=True)
class Detections:
    """Where the boxes go, best first; entries beyond an image's count are zeros, with class -1.

    Attributes:
        counts: INT32[N, 2] device: the image's boxes, and its anchors whose score or box is not a number.
        boxes: FP32[N, M, 4] device: left, top, right, bottom in pixels of the model's input.
        scores: FP32[N, M] device.
        classes: INT32[N, M] device.
    """

    counts: DeviceTensor
    boxes: DeviceTensor
    scores: DeviceTensor
    classes: DeviceTensor


@dataclass(frozen=True, slots=True)
class DetectLimits:
    """Attributes: layout: of the predictions, not `AUTO`; score_threshold, iou_threshold: 0 to 1."""

    layout: BoxLayout
    score_threshold: float
    iou_threshold: float


def prepare_detect(
    kernels: Kernels,
    predictions: DeviceTensor,
    scratch: DetectScratch,
    detections: Detections,
    limits: DetectLimits,
    *,
    stream: Stream,
) -> tuple[PreparedCall, ...]:
    """The calls, in this order, that decode a batch and drop what a better box of its class overlaps.

    A candidate's class is its best one, its score that class's (times the objectness in YOLOv5, and anchors whose
    objectness is below the threshold are not looked at further). Of the candidates that reach the threshold the best
    1024 are compared, of equal scores the lower anchor first.

    Args:
        kernels: hold the source `detect`.
        predictions: FP16 or FP32 device: [N, A, 5 + C] (YOLOv5) or [N, 4 + C, A] (YOLOv8, v11).
        scratch: for N images of A anchors.
        detections: for N images of M boxes, M at most 1024; overwritten.
        limits: layout and thresholds.
        stream: what orders them.

    Raises:
        DeviceError: an argument is not as said.
    """
    head = _head(kernels, predictions, limits)
    size = predictions.shape[0]
    _require_places(kernels, size, head.anchors, scratch, detections)
    out = DetectionsArgument(
        detections.counts.address,
        detections.boxes.address,
        detections.scores.address,
        detections.classes.address,
        detections.scores.shape[1],
    )
    names = f"{limits.layout.value}_{predictions.dtype.value.lower()}"
    lists = pointers(predictions, scratch.keys, scratch.counts)
    clear = partial(kernels.cuda.api.cudaMemsetAsync, scratch.counts.address, 0, scratch.counts.nbytes, stream.native)
    decode = Geometry((ceil_div(head.anchors, _DECODE_BLOCK[0]), size, 1), _DECODE_BLOCK)
    select = Geometry((size, 1, 1), _SELECT_BLOCK)
    decoded = [*lists, head, ctypes.c_float(limits.score_threshold)]
    selected = [*lists, out, head, ctypes.c_float(limits.iou_threshold)]
    return (
        PreparedCall("cudaMemsetAsync", clear),
        kernels.prepare(f"detect_decode_{names}", decode, decoded, stream=stream),
        kernels.prepare(f"detect_select_{names}", select, selected, stream=stream),
    )


def _head(kernels: Kernels, predictions: DeviceTensor, limits: DetectLimits) -> HeadArgument:
    require_tensor("predictions", predictions, (DType.FP16, DType.FP32), (None, None, None), kernels=kernels)
    if limits.layout not in (BoxLayout.YOLOV5, BoxLayout.YOLOV8):
        raise DeviceError(f"layout '{limits.layout.value}' was given; say which it is, yolov5 or yolov8")
    _, first, second = predictions.shape
    anchors, classes = (second, first - 4) if limits.layout is BoxLayout.YOLOV8 else (first, second - 5)
    if not (1 <= anchors <= MAX_ANCHORS and 1 <= classes <= MAX_CLASSES):
        raise DeviceError(
            f"predictions {list(predictions.shape)} hold {anchors} anchors of {classes} classes as "
            f"{limits.layout.value}; 1 to {MAX_ANCHORS} of 1 to {MAX_CLASSES} are allowed"
        )
    return HeadArgument(anchors, classes)


def _require_places(kernels: Kernels, size: int, anchors: int, scratch: DetectScratch, detections: Detections) -> None:
    require_tensor("scratch.keys", scratch.keys, (DType.UINT64,), (size, anchors), kernels=kernels)
    require_tensor("scratch.counts", scratch.counts, (DType.INT32,), (size, 2), kernels=kernels)
    require_tensor("scores", detections.scores, (DType.FP32,), (size, None), kernels=kernels)
    limit = min(detections.scores.shape[1], CANDIDATES)
    require_tensor("scores", detections.scores, (DType.FP32,), (size, limit), kernels=kernels)
    require_tensor("boxes", detections.boxes, (DType.FP32,), (size, limit, 4), kernels=kernels)
    require_tensor("classes", detections.classes, (DType.INT32,), (size, limit), kernels=kernels)
    require_tensor("counts", detections.counts, (DType.INT32,), (size, 2), kernels=kernels)
