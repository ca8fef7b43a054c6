"""The memory of a batch in flight, on both sides, and the marks of its way through the streams.

A lane has two sets: while one batch is computed, the next is copied in. All buckets use the same two, each in its own
shapes, so memory does not grow with the number of buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from service.cards import Completion
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.memory import DeviceBuffer, PinnedBuffer
from service.runtime.cuda.stream import Event
from service.runtime.trt.profiles import Shape
from service.tensors import TensorSpec, element_count

ALIGNMENT_BYTES = 256
"""What TensorRT demands of a tensor's address."""

POISON_BYTE = 0xA5
"""What outputs are filled with before a run that is to write all of them: an unlikely value in every type."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where tensors lie in one buffer: their offsets, multiples of `ALIGNMENT_BYTES`, and the bytes up to their end."""

    offsets: tuple[int, ...]
    nbytes: int

    @classmethod
    def of(cls, tensors: Sequence[TensorSpec], shapes: Sequence[Shape]) -> Layout:
        """Lays tensors of these shapes one after another, so that one copy moves them all."""
        offsets = []
        end = 0
        for tensor, shape in zip(tensors, shapes, strict=True):
            offset = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            offsets.append(offset)
            end = offset + element_count(shape) * tensor.dtype.itemsize
        return cls(tuple(offsets), end)


@dataclass(frozen=True, slots=True)
class MediaBytes:
    """What media need of a buffer set, the most of all their buckets.

    Attributes:
        upload: in pinned memory, before the copy to the device.
        inputs: of the same, what goes to where the engine reads it.
        device: for everything on the device but the engine's inputs and outputs.
        results: in pinned memory, after the copy from the device.
    """

    upload: int = 0
    inputs: int = 0
    device: int = 0
    results: int = 0


class BufferSet:
    """Buffers and events of one batch in flight; used by the lane's thread.

    Attributes:
        pinned_inputs: where the rows are gathered, or media.
        device_inputs: the same bytes on the device.
        device_outputs: what the engine writes.
        pinned_outputs: the same bytes on the host, or those of media.
        device_media: of buckets of media, what kernels read and write beside the engine's tensors; None without media.
        begun: the upload may begin.
        uploaded: the inputs are on the device.
        launched: the engine may begin: the upload, and the batch before, are done.
        computed: the engine is done.
        done: the outputs are on the host.
        is_free: no batch is in flight on this set.
    """

    def __init__(
        self,
        cuda: Cuda,
        *,
        input_bytes: int,
        output_bytes: int,
        media: MediaBytes = MediaBytes(),
        completion: Completion = Completion.BLOCK,
    ) -> None:
        with ExitStack() as stack:
            self.pinned_inputs = stack.enter_context(PinnedBuffer(cuda, max(input_bytes, media.upload)))
            self.device_inputs = stack.enter_context(DeviceBuffer(cuda, max(input_bytes, media.inputs)))
            self.device_outputs = stack.enter_context(DeviceBuffer(cuda, output_bytes))
            self.pinned_outputs = stack.enter_context(PinnedBuffer(cuda, max(output_bytes, media.results)))
            self.device_media: DeviceBuffer | None = None
            if media.device:
                self.device_media = stack.enter_context(DeviceBuffer(cuda, media.device))
            self.begun, self.uploaded, self.launched, self.computed = (
                stack.enter_context(Event(cuda, timing_enabled=True, blocking_sync=False)) for _ in range(4)
            )
            # Without blocking_sync the driver spins; it holds no lock of the interpreter while it does.
            sleeps = completion is Completion.BLOCK
            self.done = stack.enter_context(Event(cuda, timing_enabled=True, blocking_sync=sleeps))
            self._stack = stack.pop_all()
        self.is_free = True

    @property
    def device_bytes(self) -> int:
        """Memory of the device that it holds."""
        media_bytes = self.device_media.nbytes if self.device_media is not None else 0
        return self.device_inputs.nbytes + self.device_outputs.nbytes + media_bytes

    def close(self) -> None:
        """Frees everything; idempotent. No work may use it any more.

        Raises:
            DeviceError: CUDA refused something; the rest is freed all the same.
        """
        self._stack.close()
