"""Task `embed` on the device: the mean over a row's tokens, so that a vector comes back instead of one per token.

Tokens come as the model takes them; what the kernels add to its inputs is which of them count. A model that gives one
vector per text leaves nothing to do here, and the first token's vector is as quickly taken on the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.embed import prepare_embed
from kernels.launch import DeviceTensor, Kernels
from service.buckets import DimSizes
from service.cards import Pooling
from service.models import MediaForm, ModelSpec
from service.pipeline.embed import vector_output
from service.pipeline.tokenize import COUNTED, token_inputs
from service.runtime.cuda.calls import PreparedCall
from service.runtime.cuda.memory import PinnedBuffer
from service.runtime.cuda.stream import Stream
from service.runtime.rows import TensorPlan, input_plans, tensor_plan
from service.runtime.synthetic import SEED, synthetic_values
from service.runtime.trt.buffers import Layout
from service.runtime.trt.feeds import TensorFeed
from service.runtime.trt.media.form import DeviceTask, MediaPlaces, NotOnDevice, sizes_that_fit
from service.runtime.trt.profiles import BucketShapes, Shape
from service.tensors import BATCH_DIM, DType, HostArray, TensorSpec


@dataclass(frozen=True, slots=True)
class TokenFront:
    """The model's own inputs, and behind them the mask of the tokens that count, uploaded where the engine reads them.

    Attributes:
        inputs: with the mask, INT32[rows, sequence], as the last.
        plans: how requests lie in each.
    """

    inputs: tuple[TensorSpec, ...]
    plans: tuple[TensorPlan, ...]

    @property
    def is_in_place(self) -> bool:
        """The engine reads what was uploaded."""
        return True

    @property
    def sources(self) -> tuple[str, ...]:
        """None."""
        return ()

    def upload_bytes(self, shapes: BucketShapes) -> int:
        """All of the inputs."""
        return self._layout(shapes).nbytes

    def feed(self, shapes: BucketShapes, pinned: PinnedBuffer, upload: int) -> TensorFeed:
        """As of any tensors."""
        layout = self._layout(shapes)
        hosts = tuple(
            pinned.host(tensor.dtype.numpy, shape, offset)
            for tensor, shape, offset in zip(self.inputs, self._shapes(shapes), layout.offsets, strict=True)
        )
        return TensorFeed(self.plans, hosts, layout.offsets, layout.nbytes)

    def calls(self, kernels: Kernels, places: MediaPlaces, *, stream: Stream) -> tuple[PreparedCall, ...]:
        """None."""
        return ()

    def mask(self, shapes: BucketShapes, upload: int, *, device: int) -> DeviceTensor:
        """INT32[rows, sequence] device: 1 where a token counts."""
        return DeviceTensor(upload + self._layout(shapes).offsets[-1], DType.INT32, shapes.inputs[0], device)

    def _shapes(self, shapes: BucketShapes) -> tuple[Shape, ...]:
        return (*shapes.inputs, shapes.inputs[0])

    def _layout(self, shapes: BucketShapes) -> Layout:
        return Layout.of(self.inputs, self._shapes(shapes))


@dataclass(frozen=True, slots=True)
class EmbedBack:
    """The kernel `embed`. Its result is `vectors: FP32[rows, size]`.

    Attributes:
        front: knows where the mask is.
        output: index of the output that holds a vector per token.
        is_normalized: whether vectors get length 1.
    """

    front: TokenFront
    output: int
    is_normalized: bool

    @property
    def sources(self) -> tuple[str, ...]:
        """Of the kernel."""
        return ("embed",)

    def scratch_bytes(self, shapes: BucketShapes) -> int:
        """None."""
        return 0

    def calls(
        self, kernels: Kernels, shapes: BucketShapes, places: MediaPlaces, *, stream: Stream
    ) -> tuple[PreparedCall, ...]:
        """One launch."""
        mask = self.front.mask(shapes, places.upload, device=kernels.device)
        hidden, vectors = places.outputs[self.output], places.results[0]
        return (prepare_embed(kernels, hidden, mask, vectors, is_normalized=self.is_normalized, stream=stream),)


def embed_task(spec: ModelSpec) -> DeviceTask | None:
    """The task `embed` of a model; None where the host does it as well.

    Raises:
        ModelLoadFailed: the model does not embed texts.
        NotOnDevice: the kernels do not fit it.
    """
    token_inputs(spec)
    output = vector_output(spec)
    if not output.is_per_token or output.pooling is not Pooling.MEAN:
        return None
    hidden = spec.outputs[output.index]
    size = hidden.dims[2]
    if hidden.dtype not in (DType.FP32, DType.FP16) or not isinstance(size, int):
        raise NotOnDevice(
            f"the vectors of tokens are {hidden.dtype.value} of size {size}, the kernel reads FP32 and FP16 of a fixed "
            "size; export the model so"
        )
    mask = TensorSpec(COUNTED, DType.INT32, spec.inputs[0].dims)
    inputs = (*spec.inputs, mask)
    front = TokenFront(inputs, (*input_plans(spec), tensor_plan(spec, mask, np.int32(0))))
    largest = tuple(sizes[-1] for sizes in spec.buckets.dim_sizes if sizes is not None)
    row_bytes = sum(np.prod(shape) * tensor.dtype.itemsize for tensor, shape in _shapes(spec, inputs, largest, 1))
    form = MediaForm(
        inputs=inputs,
        outputs=(TensorSpec("vectors", DType.FP32, (BATCH_DIM, size)),),
        batch_sizes=sizes_that_fit(spec.buckets.batch_sizes, int(row_bytes)),
        max_row_bytes=int(row_bytes),
        example=lambda rows, dims: (_example(spec, inputs, dims, rows),),
    )
    return DeviceTask(form, front, EmbedBack(front, output.index, output.is_normalized))


def _shapes(
    spec: ModelSpec, inputs: tuple[TensorSpec, ...], dims: DimSizes, rows: int
) -> list[tuple[TensorSpec, Shape]]:
    sizes = spec.dim_sizes(dims, rows)
    return [(tensor, tensor.resolve(sizes)) for tensor in inputs]


def _example(spec: ModelSpec, inputs: tuple[TensorSpec, ...], dims: DimSizes, rows: int) -> tuple[HostArray, ...]:
    """One request: tokens 0 and 1, of which some count and the first always does."""
    rng = np.random.default_rng(SEED)
    return tuple(synthetic_values(rng, tensor.dtype, shape) for tensor, shape in _shapes(spec, inputs, dims, rows))
