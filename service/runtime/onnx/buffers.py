"""Host memory that the buckets of a lane share."""

from __future__ import annotations

import numpy as np

from service.tensors import HostArray, TensorSpec, element_count


class HostScratch:
    """One flat host buffer per tensor, which every bucket of a lane views in its own shape.

    A lane holds one batch at a time, so its buckets need no memory of their own: the largest suffices.
    Used by the lane's thread.
    """

    def __init__(self) -> None:
        self._host_flat: dict[str, HostArray] = {}

    def take(self, tensor: TensorSpec, shape: tuple[int, ...]) -> HostArray:
        """A C-contiguous view of `shape`, contents undefined; allocates where the tensor's buffer is too small.

        Views taken before keep their memory.
        """
        count = element_count(shape)
        flat = self._host_flat.get(tensor.name)
        if flat is None or flat.size < count:
            flat = self._host_flat[tensor.name] = np.empty(count, tensor.dtype.numpy)
        return flat[:count].reshape(shape)
