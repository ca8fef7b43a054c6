"""Task `classify` on the device: a softmax and the likeliest classes instead of all scores."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.classify import prepare_classify
from kernels.launch import DeviceTensor, Kernels
from service.models import ModelSpec
from service.pipeline.classify import class_count
from service.runtime.cuda.calls import PreparedCall
from service.runtime.cuda.stream import Stream
from service.runtime.trt.media.form import DeviceTask, MediaPlaces, NotOnDevice
from service.runtime.trt.media.images import image_task
from service.runtime.trt.profiles import BucketShapes
from service.tensors import BATCH_DIM, DType, TensorSpec

MAX_RANKED = 16
"""Classes of an image that are answered from here; a request for more gets all scores and ranks them on the host."""


@dataclass(frozen=True, slots=True)
class ClassifyBack:
    """The kernel `classify`. Its results are `scores: FP32[rows, K]`, descending, and `classes: INT32[rows, K]`."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Of the kernel."""
        return ("classify",)

    def scratch_bytes(self, shapes: BucketShapes) -> int:
        """None."""
        return 0

    def calls(
        self, kernels: Kernels, shapes: BucketShapes, places: MediaPlaces, *, stream: Stream
    ) -> tuple[PreparedCall, ...]:
        """One launch; dimensions of 1 after the classes are left out."""
        output = places.outputs[0]
        scores = DeviceTensor(output.address, output.dtype, output.shape[:2], output.device)
        return (prepare_classify(kernels, scores, places.results[0], places.results[1], stream=stream),)


def classify_task(spec: ModelSpec) -> DeviceTask:
    """The task `classify` of a model.

    Raises:
        ModelLoadFailed: the model is no image classifier.
        NotOnDevice: the kernels do not fit it.
    """
    classes, dtype = class_count(spec), spec.outputs[0].dtype
    if not isinstance(classes, int):
        raise NotOnDevice(f"the number of classes is the dynamic dimension '{classes}'; export it as a number")
    if dtype not in (DType.FP32, DType.FP16):
        raise NotOnDevice(f"the scores are {dtype.value}, the kernel reads FP32 and FP16; export the model with those")
    ranked = min(classes, MAX_RANKED)
    outputs = (
        TensorSpec("scores", DType.FP32, (BATCH_DIM, ranked)),
        TensorSpec("classes", DType.INT32, (BATCH_DIM, ranked)),
    )
    return image_task(spec, outputs, ClassifyBack())
