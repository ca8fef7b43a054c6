"""Copies and fills of the CUDA double: both sides are checked when they are enqueued, and again when they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.doubles.fake_cuda_core import api_call
from tests.doubles.fake_cuda_memory import FakeMemory
from tests.doubles.fake_cuda_types import (
    Failed,
    Stream,
    cudaError_t,
    cudaGraphNodeType,
    cudaMemcpyAttributes,
    cudaMemcpyKind,
    cudaMemsetParams,
)

E = cudaError_t
COPY = cudaGraphNodeType.cudaGraphNodeTypeMemcpy


class FakeCopies(FakeMemory):
    """Copies bytes, rows and batches between the host and the device."""

    @api_call()
    def cudaMemcpyAsync(self, dst: int, src: int, count: int, kind: cudaMemcpyKind, stream: Any) -> None:
        self._copy(dst, src, count, kind, self._stream(stream))

    @api_call()
    def cudaMemcpy2DAsync(  # noqa: PLR0917 - as the binding has it
        self, dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: cudaMemcpyKind, stream: Any
    ) -> None:
        if width > min(dpitch, spitch):
            raise Failed(E.cudaErrorInvalidPitchValue)
        on = self._stream(stream)
        rows = [(self._plan_copy(dst + row * dpitch, src + row * spitch, width, kind)) for row in range(height)]
        if rows:
            self._enqueue(on, lambda: [copy() for copy in rows] and None, COPY)

    @api_call()
    def cudaMemcpyBatchAsync(  # noqa: PLR0917 - as the binding has it
        self,
        dsts: Sequence[int],
        srcs: Sequence[int],
        sizes: Sequence[int],
        count: int,
        attrs: Sequence[cudaMemcpyAttributes],
        attrsIdxs: Sequence[int],
        numAttrs: int,
        stream: Any,
    ) -> None:
        is_ordered = all(attr.srcAccessOrder for attr in attrs)
        if not len(dsts) == len(srcs) == len(sizes) == count or not is_ordered or attrsIdxs[0] != 0 or not count:
            raise Failed(E.cudaErrorInvalidValue)
        if len(attrs) != numAttrs or numAttrs > count:
            raise Failed(E.cudaErrorInvalidValue)
        on = self._stream(stream)
        for dst, src, size in zip(dsts, srcs, sizes, strict=True):
            self._copy(dst, src, size, cudaMemcpyKind.cudaMemcpyHostToDevice, on)

    @api_call()
    def cudaMemsetAsync(self, devPtr: int, value: int, count: int, stream: Any) -> None:
        self._fill(cudaMemsetParams(devPtr, count, value & 0xFF, 1, count, 1), stream)

    @api_call()
    def cudaMemset2DAsync(self, devPtr: int, pitch: int, value: int, width: int, height: int, stream: Any) -> None:
        if width > pitch:
            raise Failed(E.cudaErrorInvalidPitchValue)
        self._fill(cudaMemsetParams(devPtr, pitch, value & 0xFF, 1, width, height), stream)

    @api_call()
    def _fillItems(self, address: int, value: int, itemsize: int, count: int, stream: Any) -> None:
        """The driver's fills, whose items are of several bytes."""
        if address % itemsize:
            raise Failed(E.cudaErrorInvalidValue)
        self._fill(cudaMemsetParams(address, 0, value, itemsize, count, 1), stream)

    def _fill(self, memset: cudaMemsetParams, stream: Any) -> None:
        on = self._stream(stream)
        row = np.frombuffer(memset.value.to_bytes(4, "little")[: memset.elementSize] * memset.width, np.uint8)
        places = [memset.dst + index * memset.pitch for index in range(memset.height)]
        for place in places:
            self._device_slice(place, row.nbytes, "a fill", E.cudaErrorInvalidValue)

        def fill() -> None:
            for place in places:
                self._late_slice(place, row.nbytes)[:] = row

        self._enqueue(on, fill, cudaGraphNodeType.cudaGraphNodeTypeMemset, memset)

    def _copy(self, dst: int, src: int, count: int, kind: cudaMemcpyKind, stream: Stream) -> None:
        if count:
            self._enqueue(stream, self._plan_copy(dst, src, count, kind), COPY)

    def _plan_copy(self, dst: int, src: int, count: int, kind: cudaMemcpyKind) -> Callable[[], None]:
        """Checks both sides now, as CUDA does, and gives what copies them later."""
        target_is_host = kind is cudaMemcpyKind.cudaMemcpyDeviceToHost
        source_is_host = kind is cudaMemcpyKind.cudaMemcpyHostToDevice
        for address, is_host in ((dst, target_is_host), (src, source_is_host)):
            if is_host:
                self._require_host(address, count)
            else:
                self._device_slice(address, count, "a copy", E.cudaErrorInvalidValue)

        def copy() -> None:
            target = self._host_slice(dst, count) if target_is_host else self._late_slice(dst, count)
            source = self._host_slice(src, count) if source_is_host else self._late_slice(src, count)
            target[:] = source

        return copy
