"""Three small models for TensorRT, for the fake and the real one, and a bench that opens them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from service.buckets import Bucket
from service.cards import BatchingCard, ModelCard
from service.models import ModelSpec
from service.requests import Batch, InferenceRequest
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.memory import HostRegistration, PinnedBuffer
from service.runtime.trt.backend import TensorRTBackend
from service.runtime.trt.flavour import Flavour
from service.runtime.trt.lane import TensorRTLane
from service.tensors import HostArray
from tests.doubles.fake_tensorrt_model import FakeModel
from tests.doubles.onnx_batches import request_of

WIDTH = 8

DOUBLE = FakeModel(
    inputs={"x": ("FLOAT", (-1, WIDTH))},
    outputs={"y": ("FLOAT", (-1, WIDTH))},
    profiles=({"x": ((1, WIDTH), (4, WIDTH), (8, WIDTH))},),
    program="double",
)
"""`x: FP32[batch, 8] -> y = x + x`; one profile of 1 to 8 rows."""

PAIR = FakeModel(
    inputs={"a": ("FLOAT", (-1, 3)), "b": ("FLOAT", (-1, 3))},
    outputs={"s": ("FLOAT", (-1, 3)), "d": ("FLOAT", (-1, 3))},
    profiles=({"a": ((1, 3), (2, 3), (4, 3)), "b": ((1, 3), (2, 3), (4, 3))},),
    program="pair",
)
"""`a, b: FP32[batch, 3] -> s = a + b, d = a - b`: tensors that do not end where the next may begin."""

SEQUENCE = FakeModel(
    inputs={"x": ("FLOAT", (-1, -1))},
    outputs={"y": ("FLOAT", (-1, -1))},
    profiles=({"x": ((1, 1), (4, 4), (4, 8))}, {"x": ((1, 8), (2, 16), (4, 16))}),
    program="double",
)
"""`x: FP32[batch, sequence] -> y = x + x`; a profile for up to 8 columns, one for 8 to 16."""

WIDE_BYTES = 512 << 10

WIDE = FakeModel(
    inputs={"x": ("FLOAT", (-1, WIDE_BYTES // 4))},
    outputs={"y": ("FLOAT", (-1, WIDE_BYTES // 4))},
    profiles=({"x": ((1, WIDE_BYTES // 4), (8, WIDE_BYTES // 4), (8, WIDE_BYTES // 4))},),
    program="double",
)
"""As `DOUBLE`, with rows that are worth a copy of their own, and a largest batch that is worth several threads."""

LONG = FakeModel(
    inputs={"x": ("FLOAT", (-1, -1))},
    outputs={"y": ("FLOAT", (-1, -1))},
    profiles=({"x": ((1, 1), (2, 1 << 15), (4, 1 << 16))},),
    program="double",
)
"""As `SEQUENCE`, with rows as large as those of `WIDE`."""

SELECT = FakeModel(
    inputs={"x": ("FLOAT", (-1, WIDTH))},
    outputs={"indices": ("INT32", (2, -1)), "y": ("FLOAT", (-1, WIDTH))},
    profiles=({"x": ((1, WIDTH), (4, WIDTH), (8, WIDTH))},),
    program="select",
    data_dependent=frozenset({"indices"}),
)
"""`x: FP32[rows, 8] -> indices = NonZero(x): INT32[2, selected], y = x + x`; no batch, for `indices` has no rows."""

RESHAPE = FakeModel(
    inputs={"x": ("FLOAT", (4, WIDTH)), "shape": ("INT32", (2,))},
    outputs={"y": ("FLOAT", (-1, -1))},
    profiles=({"x": ((4, WIDTH),) * 3, "shape": ((WIDTH, 4),) * 3},),
    program="reshape",
    host_tensors=frozenset({"shape"}),
)
"""`x: FP32[4, 8], shape: INT32[2], which the profile fixes as 8, 4 -> y = x in that shape`."""

MODELS = {
    "double": DOUBLE,
    "pair": PAIR,
    "sequence": SEQUENCE,
    "wide": WIDE,
    "long": LONG,
    "select": SELECT,
    "reshape": RESHAPE,
}

CARDS: dict[str, dict[str, object]] = {
    "select": {"dims": {"x": ("rows", WIDTH), "y": ("rows", WIDTH)}, "bucket_sizes": {"rows": (1, 2, 4, 8)}},
    "sequence": {
        "dims": {"x": ("batch", "sequence"), "y": ("batch", "sequence")},
        "bucket_sizes": {"batch": (1, 2, 4), "sequence": (4, 8, 16)},
    },
    "long": {
        "dims": {"x": ("batch", "sequence"), "y": ("batch", "sequence")},
        "bucket_sizes": {"batch": (4,), "sequence": (1 << 15, 1 << 16)},
    },
}

REFERENCES: dict[str, Callable[..., tuple[HostArray, ...]]] = {
    "double": lambda x: (x + x,),
    "pair": lambda a, b: (a + b, a - b),
    "sequence": lambda x: (x + x,),
    "wide": lambda x: (x + x,),
    "long": lambda x: (x + x,),
    "reshape": lambda x: (x.reshape(WIDTH, 4),),
    "select": lambda x: (np.stack(np.nonzero(x)).astype(np.int32), x + x),
}


class GivePlan(Protocol):
    """Puts the plan of one of `MODELS` somewhere and says where."""

    def __call__(self, name: str) -> Path: ...


@dataclass
class TrtBench:
    """Opens models and lanes on a CUDA and a TensorRT, real or fake, and closes them."""

    cuda: Cuda
    flavour: Flavour
    plan_path: GivePlan
    lanes: list[TensorRTLane] = field(default_factory=list)
    backends: list[TensorRTBackend] = field(default_factory=list)

    def open(self, name: str, **card: object) -> TensorRTBackend:
        keys: dict[str, object] = {"batching": BatchingCard(), **CARDS.get(name, {}), **card}
        backend = TensorRTBackend.open(
            ModelCard(name=name, **keys),  # type: ignore[arg-type]
            version="1",
            plan_path=self.plan_path(name),
            flavour=self.flavour,
            cuda=self.cuda,
        )
        self.backends.append(backend)
        return backend

    def lane(self, backend: TensorRTBackend, *, warm: bool = True) -> TensorRTLane:
        lane = backend.create_lane(len(self.lanes))
        self.lanes.append(lane)
        for bucket in backend.spec.buckets.known() if warm else ():
            lane.warm_up(bucket)
        return lane

    def close(self) -> None:
        for lane in self.lanes:
            lane.close()
        for backend in self.backends:
            backend.close()


@contextmanager
def in_memory(cuda: Cuda, request: InferenceRequest, memory: str) -> Iterator[InferenceRequest]:
    """The same request with its inputs in `pageable`, `pinned` or `registered` memory."""
    with ExitStack() as stack:
        inputs = []
        for values in request.inputs:
            if memory == "pinned":
                lying = stack.enter_context(PinnedBuffer(cuda, values.nbytes)).host(values.dtype, values.shape)
            else:
                lying = np.empty_like(values)
            lying[...] = values
            if memory == "registered":
                stack.enter_context(HostRegistration(cuda, lying))
            inputs.append(lying)
        yield replace(request, inputs=tuple(inputs))


def batch_in(spec: ModelSpec, bucket: Bucket, rng: np.random.Generator, rows: tuple[int, ...]) -> Batch:
    """Requests of so many rows each, with distinct values, each as long as its bucket or shorter."""
    requests = []
    for count in rows:
        dims = tuple(int(rng.integers(1, size + 1)) for size in bucket.dims)
        shapes = (tensor.resolve(spec.dim_sizes(dims, count)) for tensor in spec.inputs)
        requests.append(request_of(spec, *(rng.random(shape, np.float32) for shape in shapes), dims=dims))
    return Batch(bucket, tuple(requests), sum(rows))


def assert_right(name: str, batch: Batch, outputs: tuple[tuple[HostArray, ...], ...]) -> None:
    """Every request has what NumPy gives for its own inputs, to the bit."""
    assert len(outputs) == len(batch.requests)
    for request, got in zip(batch.requests, outputs, strict=True):
        for wanted, array in zip(REFERENCES[name](*request.inputs), got, strict=True):
            np.testing.assert_array_equal(array, wanted)
