"""A batch's outputs out of pinned memory, into memory of the requests' own; large ones by several threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from service.requests import Batch
from service.runtime.rows import TensorPlan, scatter
from service.runtime.trt.copy_threads import PARALLEL_FROM_BYTES, CopyThreads
from service.tensors import HostArray


@dataclass(frozen=True, slots=True)
class _Part:
    """What one output has for one request, and where it goes."""

    target: HostArray
    source: HostArray

    @property
    def nbytes(self) -> int:
        return self.target.nbytes

    def copy(self) -> None:
        np.copyto(self.target, self.source)

    def cut(self, limit_bytes: int) -> Iterator[_Part]:
        """Itself, or pieces of about `limit_bytes` along the leading axis."""
        if self.nbytes <= limit_bytes or not self.target.ndim:
            yield self
            return
        rows = -(-limit_bytes * len(self.target) // self.nbytes)
        for first in range(0, len(self.target), rows):
            yield _Part(self.target[first : first + rows], self.source[first : first + rows])


def take_results(
    batch: Batch, plans: tuple[TensorPlan, ...], host_outputs: Sequence[HostArray], threads: CopyThreads
) -> tuple[tuple[HostArray, ...], ...]:
    """Per request, the outputs that it asked for, in memory of their own.

    New memory is slow to write to: the kernel clears each page of it first. So for large outputs that is shared too.

    Args:
        batch: what was run.
        plans: of every output, in the order of `ModelSpec.outputs`.
        host_outputs: dtype[padded shape] pinned, of every output.
        threads: they help where it pays.
    """
    if sum(host.nbytes for host in host_outputs) < PARALLEL_FROM_BYTES:
        return scatter(batch, plans, tuple(host_outputs))
    results: list[tuple[HostArray, ...]] = []
    parts: list[_Part] = []
    row = 0
    for request in batch.requests:
        sources = [plans[i].part(host_outputs[i], row, request.rows, request.dims) for i in request.outputs]
        targets = tuple([np.empty(source.shape, source.dtype) for source in sources])
        parts.extend(map(_Part, targets, sources))
        results.append(targets)
        row += request.rows
    total_bytes = sum(part.nbytes for part in parts)
    share_bytes = threads.share_bytes(total_bytes)
    threads.copy((piece for part in parts for piece in part.cut(share_bytes)), total_bytes)
    return tuple(results)
