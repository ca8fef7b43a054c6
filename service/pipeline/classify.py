"""Task `classify`: images in, the likeliest classes with their scores out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from service.buckets import Form
from service.errors import ExecutionFailed, ModelLoadFailed
from service.models import ModelSpec
from service.pipeline.frames import RawImage
from service.pipeline.images import ImageLoader, LoadedImages, create_image_loader
from service.pipeline.needs import SCORE_DTYPES, dtypes_text, tensors_text
from service.pipeline.options import bounded_whole, check_names
from service.pipeline.steps import Call, Outputs, Step, Steps
from service.tensors import HostArray, TensorSpec

DEFAULT_TOP_K = 5
MAX_TOP_K = 1_000_000
"""More than a model has classes; what is beyond those means all."""

QUICK_ROWS = 8
"""Rows up to which ranking all scores of an image costs less than handing it over to a thread."""

QUICK_PREDICTIONS = 256
"""Classes of all images together, up to which so does saying what they are."""

Ranking: TypeAlias = tuple[npt.NDArray[np.intp], npt.NDArray[np.float32]]
"""Classes of one image, the likeliest first, and their probabilities."""

_SUM_TOLERANCE = 1e-3  # rounding to FP16 moves the sum by half of this at most


@dataclass(frozen=True, slots=True, eq=False)
class ClassifyTask:
    """`/predict` of a classifier. Immutable, so all threads share it.

    Attributes:
        spec: the model.
        images: decodes, and preprocesses what the model's device does not.
    """

    spec: ModelSpec
    images: ImageLoader

    def check_options(self, options: Mapping[str, str]) -> None:
        """Accepts `top_k`, a whole number from 1 to `MAX_TOP_K`.

        Raises:
            InvalidInput: another option, or another value.
        """
        check_names(options, "classify", ("top_k",))
        _top_k(options)

    def steps(self, body: bytes, content_type: str, options: Mapping[str, str]) -> Steps:
        """The images of a body as rows of a batch, then their classes; see `ImageLoader.load`."""
        return self._steps(lambda as_media: self.images.load(body, content_type, as_media=as_media), options)

    def frame_steps(self, frame: RawImage, options: Mapping[str, str]) -> Steps:
        """The same of a frame as the one row."""
        return self._steps(lambda as_media: self.images.load_frame(frame, as_media=as_media), options)

    def _steps(self, load: Callable[[bool], LoadedImages], options: Mapping[str, str]) -> Steps:
        top_k = _top_k(options)
        media = load(self._is_ranked_by_kernel(top_k))
        outputs = yield Step(media.calls, is_rest_quick=_is_quick(media.calls, top_k))
        ranked = media.in_order(map(partial(self._ranked, top_k), media.calls, outputs))
        return {
            "model_name": self.spec.name,
            "model_version": self.spec.version,
            "results": [{"predictions": self._predictions(*each)} for each in ranked],
        }

    def _is_ranked_by_kernel(self, top_k: int) -> bool:
        """Whether the form of media answers so many classes, or all that there are."""
        if self.spec.media is None:
            return False
        ranked = self.spec.media.outputs[0].dims[1]
        return ranked == class_count(self.spec) or (isinstance(ranked, int) and top_k <= ranked)

    def _ranked(self, top_k: int, call: Call, outputs: Outputs) -> list[Ranking]:
        """Per row of a call its `top_k` likeliest classes, and their probabilities.

        Raises:
            ExecutionFailed: the model's scores are not numbers.
        """
        if call.form is Form.MEDIA:
            scores, classes = outputs[0].astype(np.float32)[:, :top_k], outputs[1].astype(np.intp)[:, :top_k]
            self._require_numbers(scores)
            return list(zip(classes, scores, strict=True))
        probabilities = to_probabilities(outputs[0].reshape(call.rows, -1))
        self._require_numbers(probabilities)
        orders = [likeliest(row, top_k) for row in probabilities]
        return [(order, row[order]) for order, row in zip(orders, probabilities, strict=True)]

    def _require_numbers(self, scores: npt.NDArray[np.float32]) -> None:
        if not np.isfinite(scores).all():
            raise ExecutionFailed(
                f"model '{self.spec.name}' answered with scores that are not numbers (NaN or infinite); "
                "check its precision and [preprocess] in its card"
            )

    def _predictions(self, classes: npt.NDArray[np.intp], scores: npt.NDArray[np.float32]) -> list[dict[str, object]]:
        labels = self.spec.card.labels
        return [
            {"label": labels[index] if labels else str(index), "index": index, "score": score}
            for index, score in zip(classes.tolist(), scores.tolist(), strict=True)
        ]


def _is_quick(calls: Sequence[Call], top_k: int) -> bool:
    """Whether what is left to do with the outputs of calls takes so little that the event loop may do it."""
    ranked_rows = sum(call.rows for call in calls if call.form is Form.TENSORS)
    return ranked_rows <= QUICK_ROWS and sum(call.rows for call in calls) * top_k <= QUICK_PREDICTIONS


def likeliest(row: npt.NDArray[np.float32], top_k: int) -> npt.NDArray[np.intp]:
    """Indices of the `top_k` highest values, descending; of equal values the lower index comes first."""
    rank = min(top_k, len(row))
    threshold = np.partition(row, -rank)[-rank]
    candidates = np.flatnonzero(row >= threshold)  # few, so that only they need sorting
    return candidates[np.argsort(-row[candidates], kind="stable")[:rank]]


def to_probabilities(scores: HostArray) -> npt.NDArray[np.float32]:
    """Scores as probabilities: rows that are a distribution stay as they are, the others go through softmax.

    A row is a distribution where no value is negative and their sum is 1 within 0.001; logits practically never are.

    Args:
        scores: FP16, FP32 or FP64 [rows, classes].

    Returns:
        probabilities: FP32 [rows, classes]; not finite where the scores of a row are not numbers.
    """
    values = scores.astype(np.float32)
    with np.errstate(all="ignore"):
        is_distribution = (values.min(axis=1) >= 0) & (np.abs(values.sum(axis=1) - 1) <= _SUM_TOLERANCE)
        if is_distribution.all():
            return values
        exponentials = np.exp(values - values.max(axis=1, keepdims=True))
        softmax = exponentials / exponentials.sum(axis=1, keepdims=True)
    return np.where(is_distribution[:, np.newaxis], values, softmax)


def create_classify_task(spec: ModelSpec, *, max_image_pixels: int) -> ClassifyTask:
    """The task for a model, after checking that the model is an image classifier.

    Raises:
        ModelLoadFailed: the inputs, outputs, preprocessing or labels do not fit.
    """
    classes = class_count(spec)
    labels = spec.card.labels
    if labels and isinstance(classes, int) and len(labels) != classes:
        raise ModelLoadFailed(
            f"model '{spec.name}': the label file has {len(labels)} labels, the model has {classes} classes; "
            "write one label a line, in the order of the classes"
        )
    return ClassifyTask(spec, create_image_loader(spec, max_pixels=max_image_pixels))


def class_count(spec: ModelSpec) -> int | str:
    """The number of classes, or the name of that dimension where it is dynamic.

    Raises:
        ModelLoadFailed: the model has not one output of scores.
    """
    if len(spec.outputs) == 1 and _is_scores(spec.outputs[0]):
        return spec.outputs[0].dims[1]
    found = tensors_text(spec.outputs)
    raise ModelLoadFailed(
        f"model '{spec.name}': task 'classify' needs exactly one output, of "
        f"{dtypes_text(SCORE_DTYPES)} and shape [batch, classes], two classes or more; "
        f'the model has {found}. task = "tensor" serves any model'
    )


def _is_scores(tensor: TensorSpec) -> bool:
    return (
        tensor.dtype in SCORE_DTYPES
        and len(tensor.dims) >= 2
        and tensor.dims[1] not in (0, 1)
        and all(dim == 1 for dim in tensor.dims[2:])
    )


def _top_k(options: Mapping[str, str]) -> int:
    return bounded_whole(options, "top_k", DEFAULT_TOP_K, 1, MAX_TOP_K)
