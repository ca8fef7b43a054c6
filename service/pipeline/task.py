"""What `/predict` makes of a model: the protocol of a task, and the tasks there are.

A new task is one module with a factory, one line in `_FACTORIES`, and its name among the values of the card's `task`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from service.errors import ModelLoadFailed
from service.models import ModelSpec
from service.pipeline.classify import create_classify_task
from service.pipeline.media import PreparedMedia
from service.tensors import HostArray

__all__ = ["RAW_TENSOR_TASK", "PreparedMedia", "Task", "create_task"]

RAW_TENSOR_TASK = "tensor"
"""The task of a model that takes and gives raw tensors alone: it has no `/predict`."""


class Task(Protocol):
    """The media side of one loaded model version. Immutable: all threads share it."""

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks the query parameters, before any work is done. Runs on the event loop.

        Raises:
            InvalidInput: an unknown option or a bad value; the message names those allowed.
        """

    def prepare(self, body: bytes, content_type: str) -> PreparedMedia:
        """Makes the model's input of a body. Takes milliseconds: runs on a pool thread.

        Args:
            body: the whole, already bounded, body.
            content_type: value of the request's header, empty if there was none.

        Raises:
            InvalidInput: the body is malformed.
            PayloadTooLarge: what it holds is larger than allowed.
            UnsupportedMediaType: the content type or the format is not one that is read.
        """

    def render(self, outputs: tuple[HostArray, ...], options: Mapping[str, str]) -> object:
        """Makes the answer of the model's outputs. Runs on the event loop, so it takes well below a millisecond.

        Args:
            outputs: all outputs in the order of `ModelSpec.outputs`, one row per row of `PreparedMedia`.
            options: the query parameters, as `check_options` accepted them.

        Returns:
            An object that JSON can hold.

        Raises:
            ExecutionFailed: the outputs make no sense.
        """


class _Factory(Protocol):
    def __call__(self, spec: ModelSpec, *, max_image_pixels: int) -> Task: ...


_FACTORIES: Mapping[str, _Factory] = {"classify": create_classify_task}


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
    factory = _FACTORIES.get(name)
    if factory is None:
        known = ", ".join(sorted([RAW_TENSOR_TASK, *_FACTORIES]))
        raise ModelLoadFailed(f"model '{spec.name}': unknown task '{name}'; the tasks are {known}")
    return factory(spec, max_image_pixels=max_image_pixels)
