"""CUDA without a GPU: the calling convention, the rules and the failures of `cuda.bindings.runtime`.

`Cuda(FakeCuda())` works like the real thing. Device memory is NumPy memory behind addresses of its own, so that host
and device addresses cannot be taken for each other. Work runs when it is enqueued; with `is_deferred` it runs no
earlier than somebody waits for it, so that a missing sync is seen. Where CUDA would allow what this project never
does (the legacy stream), or would corrupt memory silently, the fake refuses and writes it down in `violations`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tests.doubles.fake_cuda_copies import FakeCopies
from tests.doubles.fake_cuda_core import api_call
from tests.doubles.fake_cuda_graphs import FakeGraphs
from tests.doubles.fake_cuda_types import (
    DeviceProperties,
    Failed,
    cudaDeviceAttr,
    cudaError_t,
    cudaGraphNodeType,
    cudaMemcpyAttributes,
    cudaMemcpyKind,
    cudaMemcpySrcAccessOrder,
    cudaMemsetParams,
    cudaStreamCaptureMode,
)

E = cudaError_t


class FakeCuda(FakeCopies, FakeGraphs):
    """Stands where the module `cuda.bindings.runtime` would; has the devices, and from its bases all that they do."""

    cudaError_t = cudaError_t
    cudaMemcpyKind = cudaMemcpyKind
    cudaStreamCaptureMode = cudaStreamCaptureMode
    cudaMemcpySrcAccessOrder = cudaMemcpySrcAccessOrder
    cudaDeviceAttr = cudaDeviceAttr
    cudaMemcpyAttributes = cudaMemcpyAttributes
    cudaGraphNodeType = cudaGraphNodeType
    cudaMemsetParams = cudaMemsetParams

    def __init__(
        self,
        *,
        device_count: int = 1,
        total_bytes: int = 1 << 30,
        clock: Callable[[], int] | None = None,
        is_deferred: bool = False,
    ) -> None:
        super().__init__(total_bytes=total_bytes, clock=clock, is_deferred=is_deferred)
        self.device_count = device_count
        self.driver_version = 13000
        self.runtime_version = 13000

    def live_objects(self) -> dict[str, int]:
        """How many native objects there are, by kind; without those there are none of."""
        kinds = Counter(type(value).__name__.lower() for value in self._handles.values())
        kinds["device"] = sum(not block.is_freed for block in self._device)
        kinds["pinned"] = sum(not block.is_freed for block in self._pinned)
        kinds["registration"] = len(self._registered)
        return {kind: count for kind, count in kinds.items() if count}

    # Devices

    def cudaDriverGetVersion(self) -> tuple[cudaError_t, int]:
        return E.cudaSuccess, self.driver_version

    def cudaRuntimeGetVersion(self) -> tuple[cudaError_t, int]:
        return E.cudaSuccess, self.runtime_version

    @api_call(values=1)
    def cudaGetDeviceCount(self) -> tuple[int]:
        if self.driver_version < self.runtime_version // 1000 * 1000:
            raise Failed(E.cudaErrorInsufficientDriver)
        if not self.device_count:
            raise Failed(E.cudaErrorNoDevice)
        return (self.device_count,)

    @api_call()
    def cudaSetDevice(self, device: int) -> None:
        self._require_device(device)
        self._local.device = device

    @api_call(values=1)
    def cudaGetDevice(self) -> tuple[int]:
        return (self._current_device,)

    @api_call(values=1)
    def cudaDeviceGetAttribute(self, attr: cudaDeviceAttr, device: int) -> tuple[int]:
        self._require_device(device)
        values = {cudaDeviceAttr.cudaDevAttrComputeCapabilityMajor: 9, cudaDeviceAttr.cudaDevAttrL2CacheSize: 50 << 20}
        return (values.get(attr, 0),)

    @api_call(values=1)
    def cudaGetDeviceProperties(self, device: int) -> tuple[DeviceProperties]:
        self._require_device(device)
        return (DeviceProperties(b"Fake GPU"),)

    @api_call(values=1)
    def cudaDeviceGetPCIBusId(self, length: int, device: int) -> tuple[bytes]:
        self._require_device(device)
        if length < 13:
            raise Failed(E.cudaErrorInvalidValue)
        return ((f"0000:{0x3B + device:02X}:00.0".encode() + b"\0").ljust(length, b" "),)

    @api_call()
    def cudaDeviceSynchronize(self) -> None:
        self._unsafe()
        for stream in self._streams():
            self._drain(stream)
        self._fail_if_sticky()

    def _require_device(self, device: int) -> None:
        if not 0 <= device < self.device_count:
            raise Failed(E.cudaErrorInvalidDevice)
