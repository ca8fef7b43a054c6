"""What `/predict` makes of a model: the protocol of a task, and the tasks there are.

A new task is one module with a factory, one line in `_FACTORIES`, and its name among the values of the card's `task`.
One that is made of several models stands in `_COMPOSED_FACTORIES`, and `ModelCard.members` names its models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from service.errors import ModelLoadFailed
from service.models import ModelSpec
from service.pipeline.classify import create_classify_task
from service.pipeline.detect import create_detect_task
from service.pipeline.embed import create_embed_task
from service.pipeline.frames import RawImage
from service.pipeline.ocr import create_ocr_task
from service.pipeline.steps import Steps

__all__ = ["RAW_TENSOR_TASK", "FrameTask", "Task", "compose_task", "create_task"]

RAW_TENSOR_TASK = "tensor"
"""The task of a model that takes and gives raw tensors alone: it has no `/predict`."""


class Task(Protocol):
    """The media side of one loaded model version. Immutable: all threads share it."""

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks the query parameters, before any work is done. Runs on the event loop.

        Raises:
            InvalidInput: an unknown option or a bad value; the message names those allowed.
        """

    def steps(self, body: bytes, content_type: str, options: Mapping[str, str]) -> Steps:
        """Begins the work on one request; nothing is computed before the first step is asked for. See `Steps`.

        Args:
            body: the whole, already bounded, body.
            content_type: value of the request's header, empty if there was none.
            options: the query parameters, as `check_options` accepted them.
        """


@runtime_checkable
class FrameTask(Task, Protocol):
    """A task that takes images, and so frames of a stream as well. A task of other media lacks the method."""

    def frame_steps(self, frame: RawImage, options: Mapping[str, str]) -> Steps:
        """As `steps`, of an image that is decoded already; everything after the decoding is the same.

        Args:
            frame: the image; read until the steps have ended, never changed.
            options: as `check_options` accepted them.
        """


class _Factory(Protocol):
    def __call__(self, spec: ModelSpec, *, max_image_pixels: int) -> Task: ...


class _ComposedFactory(Protocol):
    def __call__(self, spec: ModelSpec, members: Mapping[str, ModelSpec], *, max_image_pixels: int) -> Task: ...


_FACTORIES: Mapping[str, _Factory] = {
    "classify": create_classify_task,
    "detect": create_detect_task,
    "embed": create_embed_task,
}
_COMPOSED_FACTORIES: Mapping[str, _ComposedFactory] = {"ocr": create_ocr_task}


def create_task(spec: ModelSpec, *, max_image_pixels: int) -> Task | None:
    """The task that a model's card names, or None for raw tensors. Called when the model is loaded.

    Args:
        spec: the model, held against its card.
        max_image_pixels: largest image, width times height.

    Raises:
        ModelLoadFailed: there is no such task, or the model does not fit it; the message says what is expected.
    """
    name = spec.card.task
    if name == RAW_TENSOR_TASK:
        return None
    if name in _COMPOSED_FACTORIES:
        raise ModelLoadFailed(
            f"model '{spec.name}': task '{name}' is composed of the models that its card names and takes no model "
            "of its own; take the model's files out of the folder, so that it holds the card alone"
        )
    factory = _FACTORIES.get(name)
    if factory is None:
        known = ", ".join(sorted([RAW_TENSOR_TASK, *_FACTORIES, *_COMPOSED_FACTORIES]))
        raise ModelLoadFailed(f"model '{spec.name}': unknown task '{name}'; the tasks are {known}")
    return factory(spec, max_image_pixels=max_image_pixels)


def compose_task(spec: ModelSpec, members: Mapping[str, ModelSpec], *, max_image_pixels: int) -> Task:
    """The task of a composed model. Called whenever one of its members was loaded: it is quick.

    Args:
        spec: the composed model's, which has no tensors.
        members: by the card's key.
        max_image_pixels: largest image, width times height.

    Raises:
        ModelLoadFailed: the members do not fit the task.
    """
    return _COMPOSED_FACTORIES[spec.card.task](spec, members, max_image_pixels=max_image_pixels)
