"""The models of the TensorRT double: what a plan holds and the NumPy that computes it.

A plan of the fake is a real header followed by a pickled `FakeModel`.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import onnxruntime as ort

from service.runtime.trt.plan import MAGIC

Shape = tuple[int, ...]
Range = tuple[Shape, Shape, Shape]

HEADER_BYTES = 28

NUMPY = {
    "FLOAT": np.float32,
    "HALF": np.float16,
    "BF16": np.uint16,
    "INT8": np.int8,
    "INT32": np.int32,
    "INT64": np.int64,
    "UINT8": np.uint8,
    "BOOL": np.bool_,
    "FP8": np.uint8,
}

_ONNX_TYPES = {"tensor(int64)": np.int64}

PROGRAMS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "double": lambda x: (x + x,),
    "pair": lambda a, b: (a + b, a - b),
    "select": lambda x: (np.stack(np.nonzero(x)).astype(np.int32), x + x),
    "select_above_one": lambda x: (np.stack(np.nonzero(x > 1)).astype(np.int32), x + x),
    "keep_positive": lambda x: (x[:, np.any(x > 0, axis=0)],),
    "reshape": lambda x, shape: (x.reshape([int(extent) for extent in shape]),),
    "sum_rows": lambda x: (np.sum(x, axis=0, keepdims=True),),
}


@dataclass(frozen=True)
class FakeModel:
    """What a plan holds.

    Attributes:
        inputs: by name (type, dims), -1 for a dynamic one.
        outputs: likewise.
        profiles: per profile the range of every input.
        program: a name in `PROGRAMS`.
        scratch: bytes per profile.
        host_tensors: those that TensorRT reads on the host; the profiles have ranges of their values, not their shapes.
        data_dependent: outputs whose sizes depend on the data.
        data_dependent_dims: their dims once the inputs' are known; those of the engine if empty.
        max_output_bytes: what an output can need at most, as TensorRT says.
        layouts: format descriptions other than linear.
        shares_profiles: whether 8.6 was asked for PROFILE_SHARING_0806.
        is_capturable: whether a capture of it succeeds.
        weights_bytes: of the device, for an engine.
        persistent_bytes: of the device, for a context; never shared.
        replay_error: added to the outputs of captured work alone.
        is_cleared: whether an enqueue clears the outputs by fills first, and its kernel adds to what it finds there.
        onnx: the ONNX model that the program "onnx" is.
    """

    inputs: Mapping[str, tuple[str, Shape]]
    outputs: Mapping[str, tuple[str, Shape]]
    profiles: tuple[Mapping[str, Range], ...]
    program: str
    scratch: tuple[int, ...] = (1024, 4096)
    host_tensors: frozenset[str] = frozenset()
    data_dependent: frozenset[str] = frozenset()
    data_dependent_dims: Shape = ()
    max_output_bytes: int = 256
    layouts: Mapping[str, str] = field(default_factory=dict)
    shares_profiles: bool = True
    is_capturable: bool = True
    replay_error: int = 0
    is_cleared: bool = False
    weights_bytes: int = 3 << 20
    persistent_bytes: int = 5 << 10
    onnx: bytes = b""

    def run(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Computes the outputs, by NumPy or, for a model that was built from ONNX, by ONNX Runtime."""
        return _run_onnx(self, inputs) if self.program == "onnx" else PROGRAMS[self.program](*inputs)


def plan_of(model: FakeModel, version: tuple[int, int, int, int]) -> bytes:
    """The model as a plan that TensorRT `version` built."""
    header = struct.pack("<II16x", MAGIC, 0) + bytes(min(number, 255) for number in version)
    return header + pickle.dumps(model)


def model_in(plan: bytes) -> FakeModel:
    """The model that `plan_of` made a plan of."""
    model = pickle.loads(plan[HEADER_BYTES:])
    assert isinstance(model, FakeModel)
    return model


@lru_cache(maxsize=8)
def _session(onnx: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])


def _run_onnx(model: FakeModel, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """In the model's own types: those of the engine may be narrower."""
    session = _session(model.onnx)
    names = {argument.name: _ONNX_TYPES.get(argument.type) for argument in session.get_inputs()}
    feeds = {
        name: np.asarray(value, dtype=names[name] or value.dtype)
        for name, value in zip(model.inputs, inputs, strict=True)
    }
    outputs = session.run(list(model.outputs), feeds)
    kinds = (NUMPY[kind] for kind, _ in model.outputs.values())
    return tuple(np.asarray(output, kind) for output, kind in zip(outputs, kinds, strict=True))
