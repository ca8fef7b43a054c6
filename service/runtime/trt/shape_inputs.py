"""Inputs that TensorRT reads on the host because shapes follow from their values, such as the size of a Resize.

What they hold decides the shapes of other tensors, so it would have to be part of the bucket. Served is the one case
that needs no such thing: a value that the engine's profiles fix, minimum equal to maximum and the same in all. It is
bound to every context once, and clients neither see nor send it. Since it never changes, graphs hold for it too.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from service.errors import ModelLoadFailed
from service.runtime.trt.buffers import ALIGNMENT_BYTES
from service.runtime.trt.flavour import Flavour
from service.tensors import HostArray, TensorSpec


def fixed_values(flavour: Flavour, native: Any, tensor: TensorSpec) -> HostArray:
    """The values that the profiles fix for one input; dtype[the input's shape] in memory of their own, aligned.

    Args:
        flavour: the TensorRT that runs the engine.
        native: the engine.
        tensor: an input that TensorRT reads on the host.

    Raises:
        ModelLoadFailed: its shape is dynamic, the profiles leave a choice, or TensorRT does not tell the values, as
            8.6 was seen to do on an H200: of two it told one.
    """
    shape = tuple(extent for extent in tensor.dims if isinstance(extent, int))
    ranges = _ranges(flavour, native, tensor.name)
    values = {bound for each in ranges for bound in each}
    is_static = len(shape) == len(tensor.dims)
    if is_static and any(len(bound) != math.prod(shape) for bound in values):
        raise ModelLoadFailed(
            f"input '{tensor.name}' holds values that shapes follow from, and {flavour.name} {flavour.version} does "
            "not tell which ones its profiles fix; use TensorRT 10 or newer, export the model so that shapes follow "
            "from the dimensions of its inputs, or serve the ONNX model on the CPU"
        )
    if not is_static or len(values) != 1:
        raise ModelLoadFailed(
            f"input '{tensor.name}' holds values that shapes follow from, and the engine leaves them open "
            f"({_text(ranges)}); build it with min = opt = max for that input, the same in every profile, export the "
            "model so that shapes follow from the dimensions of its inputs, or serve the ONNX model on the CPU"
        )
    aligned = _aligned(shape, tensor.dtype.numpy)
    aligned[...] = np.asarray(values.pop(), tensor.dtype.numpy).reshape(shape)
    return aligned


def _ranges(flavour: Flavour, native: Any, name: str) -> list[tuple[tuple[int, ...], ...]]:
    """Minimum, optimum and maximum of every profile."""
    found = []
    for profile in range(native.num_optimization_profiles):
        if flavour.capabilities.profile_values:
            bounds = native.get_tensor_profile_values(profile, name)  # by position: the keywords are swapped
        else:
            bounds = _old_profile_values(native, profile, name)
        found.append(tuple(tuple(int(value) for value in bound) for bound in bounds))
    return found


def _old_profile_values(native: Any, profile: int, name: str) -> Any:
    """By the function of 8.6, which calls itself deprecated in favour of one that tells shapes, not values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return native.get_profile_shape_input(profile, name)


def _aligned(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> HostArray:
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.zeros(nbytes + ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT_BYTES
    return memory[start : start + nbytes].view(dtype).reshape(shape)


def _text(ranges: list[tuple[tuple[int, ...], ...]]) -> str:
    return "; ".join(f"profile {index}: {list(each[0])} to {list(each[-1])}" for index, each in enumerate(ranges))
