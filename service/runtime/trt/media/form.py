"""What a task's kernels are to a lane: what they take and give, the memory that they need, and their calls.

A task on the device has two ends. Its front fills the engine's inputs from what was uploaded, its back turns the
engine's outputs into the task's. Both are calls that are prepared once and captured with the engine in one graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kernels.launch import DeviceTensor, Kernels
from service.models import MediaForm
from service.runtime.cuda.calls import PreparedCall
from service.runtime.cuda.memory import PinnedBuffer
from service.runtime.cuda.stream import Stream
from service.runtime.trt.buffers import ALIGNMENT_BYTES
from service.runtime.trt.feeds import Feed
from service.runtime.trt.profiles import BucketShapes
from service.tensors import DType, element_count

MAX_MEDIA_BYTES = 256 << 20
"""Of one batch's media, on each side and for each of a lane's buffer sets."""


class NotOnDevice(Exception):
    """A task whose kernels do not fit the model or its card. It runs on the host; no client ever sees this.

    Attributes:
        reason: what does not fit, and what would.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class MediaPlaces:
    """Device memory of one media bucket on one buffer set; every address is a multiple of 256.

    Attributes:
        upload: where what was uploaded begins.
        inputs: the engine's inputs.
        outputs: the engine's outputs.
        scratch: where kernels leave things for each other.
        results: the tensors of `MediaForm.outputs`.
    """

    upload: int
    inputs: tuple[DeviceTensor, ...]
    outputs: tuple[DeviceTensor, ...]
    scratch: int
    results: tuple[DeviceTensor, ...]


class Front(Protocol):
    """What fills an engine's inputs. Immutable, shared by all lanes."""

    @property
    def is_in_place(self) -> bool:
        """Whether the upload begins with the engine's inputs as they are, so that it goes where they lie."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Names in `kernels.specs.SOURCES` of its kernels."""

    def upload_bytes(self, shapes: BucketShapes) -> int:
        """The most that a batch of a bucket uploads."""

    def feed(self, shapes: BucketShapes, pinned: PinnedBuffer, upload: int) -> Feed:
        """How requests get into `pinned` and from there to device address `upload`."""

    def calls(self, kernels: Kernels, places: MediaPlaces, *, stream: Stream) -> tuple[PreparedCall, ...]:
        """The launches before the engine.

        Raises:
            DeviceError: a tensor is not what a kernel takes.
        """


class Back(Protocol):
    """What makes a task's outputs of an engine's. Immutable, shared by all lanes."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Names in `kernels.specs.SOURCES` of its kernels."""

    def scratch_bytes(self, shapes: BucketShapes) -> int:
        """Device memory that its kernels need between each other."""

    def calls(
        self, kernels: Kernels, shapes: BucketShapes, places: MediaPlaces, *, stream: Stream
    ) -> tuple[PreparedCall, ...]:
        """The launches after the engine.

        Raises:
            DeviceError: a tensor is not what a kernel takes.
        """


@dataclass(frozen=True, slots=True)
class DeviceTask:
    """A task around an engine.

    Attributes:
        form: what its requests bring and get.
        front: its kernels before the engine.
        back: its kernels after it.
    """

    form: MediaForm
    front: Front
    back: Back

    @property
    def sources(self) -> tuple[str, ...]:
        """Names in `kernels.specs.SOURCES` of all its kernels."""
        return (*self.front.sources, *self.back.sources)


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """A task whose kernels are loaded on the engine's device; whoever holds it closes them, after all lanes."""

    task: DeviceTask
    kernels: Kernels


def aligned(nbytes: int) -> int:
    """`nbytes`, rounded up so that what follows may begin there."""
    return -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def laid_out(address: int, dtype: DType, shape: tuple[int, ...], *, device: int) -> tuple[DeviceTensor, int]:
    """A tensor at an address, and the address that is free for the next."""
    tensor = DeviceTensor(address, dtype, shape, device)
    return tensor, address + aligned(element_count(shape) * dtype.itemsize)


def sizes_that_fit(batch_sizes: tuple[int, ...], row_bytes: int) -> tuple[int, ...]:
    """The batch sizes whose media fit `MAX_MEDIA_BYTES`.

    Raises:
        NotOnDevice: none does.
    """
    sizes = tuple(size for size in batch_sizes if size * row_bytes <= MAX_MEDIA_BYTES)
    if not sizes:
        raise NotOnDevice(
            f"the smallest batch has {batch_sizes[0]} rows of {row_bytes} bytes, and {MAX_MEDIA_BYTES} bytes are there "
            "for all of them; name a smaller size in [buckets] batch, or a smaller device_image_pixels in [preprocess]"
        )
    return sizes
