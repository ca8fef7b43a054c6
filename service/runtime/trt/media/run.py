"""One bucket of media on one buffer set: kernels, the engine as the bucket of tensors runs it, and kernels again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernels.launch import DeviceTensor
from service.models import ModelSpec
from service.runtime.cuda.calls import PreparedCall, run_calls
from service.runtime.cuda.copies import copy_d2h, copy_h2d, fill, prepare_d2h
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.stream import Stream
from service.runtime.synthetic import synthetic_batch
from service.runtime.trt.buffers import POISON_BYTE, Layout, MediaBytes
from service.runtime.trt.data_dependent import DataDependentOutputs
from service.runtime.trt.feeds import Feed
from service.runtime.trt.media.form import DeviceTask, LoadedTask, MediaPlaces, aligned
from service.runtime.trt.profiles import BucketShapes, Shape
from service.runtime.trt.runs import BucketRun
from service.tensors import HostArray, TensorSpec


@dataclass(frozen=True, slots=True)
class MediaLayout:
    """How one bucket of media lies in the memory that a buffer set has for them.

    Attributes:
        upload_bytes: the most that is uploaded.
        scratch: where the kernels' scratch begins, in bytes from the start of the device memory for media.
        results: where the task's outputs begin in it.
        shapes: of the task's outputs.
        layout: of the same among themselves.
        is_in_place: whether the upload goes to the engine's inputs instead, and scratch comes first.
    """

    upload_bytes: int
    scratch: int
    results: int
    shapes: tuple[Shape, ...]
    layout: Layout
    is_in_place: bool

    @classmethod
    def of(cls, task: DeviceTask, spec: ModelSpec, shapes: BucketShapes) -> MediaLayout:
        """The layout of a bucket."""
        upload_bytes = task.front.upload_bytes(shapes)
        scratch = 0 if task.front.is_in_place else aligned(upload_bytes)
        sizes = spec.dim_sizes(shapes.bucket.dims, shapes.bucket.padded_size)
        outputs = tuple(tensor.resolve(sizes) for tensor in task.form.outputs)
        return cls(
            upload_bytes,
            scratch,
            scratch + aligned(task.back.scratch_bytes(shapes)),
            outputs,
            Layout.of(task.form.outputs, outputs),
            task.front.is_in_place,
        )


def media_bytes(task: DeviceTask, spec: ModelSpec, buckets: Iterable[BucketShapes]) -> MediaBytes:
    """What the buckets of media, at least one, need of a buffer set."""
    layouts = [MediaLayout.of(task, spec, shapes) for shapes in buckets]
    return MediaBytes(
        upload=max(each.upload_bytes for each in layouts),
        inputs=max(each.upload_bytes * each.is_in_place for each in layouts),
        device=max(each.results + each.layout.nbytes for each in layouts),
        results=max(each.layout.nbytes for each in layouts),
    )


class MediaRun:
    """Runs media in one bucket's shapes. Implements `chain.Run`; used by the lane's thread.

    Args:
        cuda: the process's CUDA.
        spec: the model.
        loaded: its task, with kernels.
        shapes: the bucket.
        engine: the bucket of tensors of the same shape, bound; it must outlive this. Only one of the two may be in
            flight, for they share context and buffers.

    Attributes:
        buffers: the set of both.
        feed: how a batch's media get into pinned memory.
        context_bytes: 0, for the context is the other's.
        sized_by_data: empty.
        data_dependent: None.
    """

    def __init__(
        self, cuda: Cuda, spec: ModelSpec, loaded: LoadedTask, shapes: BucketShapes, engine: BucketRun
    ) -> None:
        self._cuda = cuda
        self._spec = spec
        self._loaded = loaded
        self._shapes = shapes
        self._engine = engine
        self._layout = MediaLayout.of(loaded.task, spec, shapes)
        self._filled_bytes = 0
        self._before: tuple[PreparedCall, ...] = ()
        self._after: tuple[PreparedCall, ...] = ()
        self.buffers = engine.buffers
        self._host_outputs: tuple[HostArray, ...] = tuple(
            self.buffers.pinned_outputs.host(tensor.dtype.numpy, shape, offset)
            for tensor, shape, offset in zip(
                loaded.task.form.outputs, self._layout.shapes, self._layout.layout.offsets, strict=True
            )
        )
        self.feed: Feed = loaded.task.front.feed(shapes, self.buffers.pinned_inputs, self.upload_address)
        self.context_bytes = 0
        self.sized_by_data: set[str] = set()
        self.data_dependent: DataDependentOutputs | None = None

    def bind(self, *, stream: Stream) -> None:
        """Prepares the kernels' launches.

        Raises:
            DeviceError: a kernel does not take what the engine takes or gives.
        """
        task, kernels, places = self._loaded.task, self._loaded.kernels, self._places()
        self._before = task.front.calls(kernels, places, stream=stream)
        self._after = task.back.calls(kernels, self._shapes, places, stream=stream)

    @property
    def host_outputs(self) -> tuple[HostArray, ...]:
        """dtype[padded shape] pinned, per output of the form; valid once the download is done."""
        return self._host_outputs

    @property
    def upload_address(self) -> int:
        """Where the engine reads it, or the kernels before it."""
        return self.buffers.device_inputs.address if self._layout.is_in_place else self._media_address

    @property
    def h2d_bytes(self) -> int:
        """What the upload of a small batch copies."""
        return self._layout.upload_bytes

    @property
    def d2h_bytes(self) -> int:
        """The task's outputs."""
        return self._layout.layout.nbytes

    @property
    def data_dependent_bytes(self) -> int:
        """None."""
        return 0

    def fill_inputs(self) -> None:
        """Puts the form's example into pinned memory."""
        route = self.feed.route(synthetic_batch(self._spec, self._shapes.bucket), lambda address, nbytes: False)
        for piece in route.work:
            piece.copy()
        self._filled_bytes = max(piece.offset + piece.nbytes for piece in route.work)

    def upload(self, *, stream: Stream) -> None:
        """Copies what `fill_inputs` has written to the device."""
        pinned = self.buffers.pinned_inputs.address
        copy_h2d(self._cuda, self.upload_address, pinned, self._filled_bytes, stream=stream)

    def poison_outputs(self, *, stream: Stream) -> None:
        """Overwrites what an earlier run left of the engine's outputs and of the task's."""
        self._engine.poison_outputs(stream=stream)
        fill(self._cuda, self._results_address, POISON_BYTE, self.d2h_bytes, stream=stream)

    def enqueue(self, *, stream: Stream) -> bool:
        """Gives kernels, engine and kernels to the stream; False if TensorRT refuses."""
        run_calls(self._cuda, self._before)
        is_enqueued = self._engine.enqueue(stream=stream)
        run_calls(self._cuda, self._after)
        return is_enqueued

    def execute(self, *, stream: Stream) -> None:
        """`enqueue`, whose refusal is an error.

        Raises:
            ExecutionFailed: TensorRT refuses the batch; the run can be used again.
            DeviceError: CUDA refuses a launch.
        """
        run_calls(self._cuda, self._before)
        self._engine.execute(stream=stream)
        run_calls(self._cuda, self._after)

    def take_errors(self) -> str:
        """What TensorRT said of the latest failure."""
        return self._engine.take_errors()

    def download(self, *, stream: Stream) -> None:
        """Copies the task's outputs to the host, all at once."""
        copy_d2h(self._cuda, self.buffers.pinned_outputs.address, self._results_address, self.d2h_bytes, stream=stream)

    def prepare_download(self, *, stream: Stream) -> tuple[PreparedCall, ...]:
        """`download` for later."""
        pinned = self.buffers.pinned_outputs.address
        return (prepare_d2h(self._cuda, pinned, self._results_address, self.d2h_bytes, stream=stream),)

    def download_sized_by_data(self, *, stream: Stream) -> None:
        """Nothing."""

    @property
    def _media_address(self) -> int:
        memory = self.buffers.device_media
        assert memory is not None, "a lane with buckets of media has memory for them"
        return memory.address

    @property
    def _results_address(self) -> int:
        return self._media_address + self._layout.results

    def _places(self) -> MediaPlaces:
        spec, shapes, layout = self._spec, self._shapes, self._layout
        inputs, outputs = self.buffers.device_inputs.address, self.buffers.device_outputs.address
        return MediaPlaces(
            upload=self.upload_address,
            inputs=self._tensors(inputs, spec.inputs, shapes.inputs),
            outputs=self._tensors(outputs, spec.outputs, shapes.outputs),
            scratch=self._media_address + layout.scratch,
            results=self._tensors(self._results_address, self._loaded.task.form.outputs, layout.shapes),
        )

    def _tensors(
        self, address: int, tensors: tuple[TensorSpec, ...], shapes: tuple[Shape, ...]
    ) -> tuple[DeviceTensor, ...]:
        device = self._loaded.kernels.device
        offsets = Layout.of(tensors, shapes).offsets
        return tuple(
            DeviceTensor(address + offset, tensor.dtype, shape, device)
            for tensor, shape, offset in zip(tensors, shapes, offsets, strict=True)
        )
