"""Task `detect` on the device: candidates are decoded and overlapping ones dropped, by the card's thresholds."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.detect import CANDIDATES, MAX_ANCHORS, MAX_CLASSES, Detections, DetectLimits, DetectScratch, prepare_detect
from kernels.launch import Kernels
from service.cards import BoxLayout
from service.models import ModelSpec
from service.pipeline.detect import box_layout
from service.runtime.cuda.calls import PreparedCall
from service.runtime.cuda.stream import Stream
from service.runtime.trt.media.form import DeviceTask, MediaPlaces, NotOnDevice, aligned, laid_out
from service.runtime.trt.media.images import image_task
from service.runtime.trt.profiles import BucketShapes, Shape
from service.tensors import BATCH_DIM, DType, TensorSpec


@dataclass(frozen=True, slots=True)
class DetectBack:
    """The kernels of `detect`.

    Its results are `counts: INT32[rows, 2]`, of boxes and of candidates that are not numbers; `boxes`: FP32[rows, M,
    4], left, top, right and bottom on the canvas; `scores`: FP32[rows, M], descending; `classes`: INT32[rows, M].

    Attributes:
        limits: layout, and the card's thresholds, which are constants of the graph.
    """

    limits: DetectLimits

    @property
    def sources(self) -> tuple[str, ...]:
        """Of the kernels."""
        return ("detect",)

    def scratch_bytes(self, shapes: BucketShapes) -> int:
        """A key for each candidate, and two counters for each image."""
        rows, anchors = _extents(shapes.outputs[0], self.limits.layout)
        return aligned(rows * anchors * DType.UINT64.itemsize) + aligned(rows * 2 * DType.INT32.itemsize)

    def calls(
        self, kernels: Kernels, shapes: BucketShapes, places: MediaPlaces, *, stream: Stream
    ) -> tuple[PreparedCall, ...]:
        """A fill and two launches."""
        rows, anchors = _extents(shapes.outputs[0], self.limits.layout)
        keys, end = laid_out(places.scratch, DType.UINT64, (rows, anchors), device=kernels.device)
        found, _ = laid_out(end, DType.INT32, (rows, 2), device=kernels.device)
        counts, boxes, scores, classes = places.results
        detections = Detections(counts, boxes, scores, classes)
        return prepare_detect(
            kernels, places.outputs[0], DetectScratch(keys, found), detections, self.limits, stream=stream
        )


def detect_task(spec: ModelSpec) -> DeviceTask:
    """The task `detect` of a model.

    Raises:
        ModelLoadFailed: the model is no detector whose boxes can be read.
        NotOnDevice: the kernels do not fit it.
    """
    card = spec.card.detect
    layout, classes = box_layout(spec)
    tensor = spec.outputs[0]
    if tensor.dtype not in (DType.FP32, DType.FP16):
        raise NotOnDevice(f"the boxes are {tensor.dtype.value}, the kernels read FP32 and FP16; export them as those")
    candidates = tensor.dims[2 if layout is BoxLayout.YOLOV8 else 1]
    if classes > MAX_CLASSES or (isinstance(candidates, int) and candidates > MAX_ANCHORS):
        raise NotOnDevice(
            f"the model has {candidates} candidates of {classes} classes, the kernels take at most {MAX_ANCHORS} of "
            f"{MAX_CLASSES}"
        )
    boxes = min(card.max_detections, CANDIDATES)
    outputs = (
        TensorSpec("counts", DType.INT32, (BATCH_DIM, 2)),
        TensorSpec("boxes", DType.FP32, (BATCH_DIM, boxes, 4)),
        TensorSpec("scores", DType.FP32, (BATCH_DIM, boxes)),
        TensorSpec("classes", DType.INT32, (BATCH_DIM, boxes)),
    )
    return image_task(spec, outputs, DetectBack(DetectLimits(layout, card.score_threshold, card.iou_threshold)))


def _extents(output: Shape, layout: BoxLayout) -> tuple[int, int]:
    """Images of the batch, and candidates of each."""
    return output[0], output[2 if layout is BoxLayout.YOLOV8 else 1]
