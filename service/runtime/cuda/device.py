"""The process's one view of CUDA: which devices there are, which one a thread uses, what is alive on them."""

from __future__ import annotations

import threading
from dataclasses import astuple, dataclass

from service.errors import DeviceError, ModelLoadFailed
from service.runtime.cuda.api import CopyAttributes, RuntimeApi
from service.runtime.cuda.check import check, runtime_api
from service.runtime.cuda.ranges import HostRanges

BATCH_COPY_VERSION = 12080

PCI_BUS_ID_BYTES = 16
"""Room for domain, bus, device and function, and the closing zero: 13 bytes where the domain has four digits."""


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """Memory of one device, whoever uses it."""

    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class LiveCounts:
    """What this process has created through this package and not closed yet.

    `device_bytes` are those of `DeviceBuffer`s: graphs and TensorRT hold more.
    """

    streams: int = 0
    events: int = 0
    pinned_bytes: int = 0
    device_bytes: int = 0
    graphs: int = 0
    registrations: int = 0

    def __add__(self, other: LiveCounts) -> LiveCounts:
        return LiveCounts(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def __neg__(self) -> LiveCounts:
        return LiveCounts(*(-count for count in astuple(self)))


class Cuda:
    """CUDA as this process uses it. One per process; safe to share between threads.

    Attributes:
        api: the binding, real or a double.
        capture_lock: held by whoever captures a graph: one capture at a time in the whole process.
        page_locked: the host memory that copies can use without the host's help.
    """

    def __init__(self, api: RuntimeApi) -> None:
        self.api = api
        self.capture_lock = threading.Lock()
        self.page_locked = HostRanges()
        self._live = LiveCounts()
        self._live_lock = threading.Lock()
        self._batch_attributes: CopyAttributes | None = None
        self._is_batch_copy_probed = False

    @classmethod
    def load(cls) -> Cuda:
        """Imports the binding and makes sure that a GPU answers.

        Raises:
            ModelLoadFailed: the binding, the driver or a GPU is missing, or the driver is too old for the binding.
        """
        return cls(runtime_api()).probed()

    def probed(self) -> Cuda:
        """Gives itself, once a driver and a device have answered.

        Raises:
            ModelLoadFailed: no driver, no device, or a driver that is too old.
        """
        mend = "serve the model with backend = 'onnxruntime' where there is no GPU"
        if self.driver_version == 0:
            raise ModelLoadFailed(
                "CUDA cannot be used: no NVIDIA driver answers (version 0); install one, in a container start it "
                f"with --gpus all, or {mend}"
            )
        try:
            count = check(self.api, "cudaGetDeviceCount", self.api.cudaGetDeviceCount())
        except DeviceError as error:
            raise ModelLoadFailed(
                f"CUDA cannot be used: {error.message}; the driver supports CUDA {_dotted(self.driver_version)}, "
                f"the binding is of {_dotted(self.runtime_version)}; update the driver, make a GPU visible, or {mend}"
            ) from error
        if count == 0:
            raise ModelLoadFailed(f"CUDA cannot be used: no GPU is visible; check CUDA_VISIBLE_DEVICES, or {mend}")
        return self

    def use_device(self, ordinal: int) -> None:
        """Makes a device the calling thread's own; the first thing that every thread does that touches CUDA.

        Raises:
            DeviceError: there is no such device, or it cannot be used.
        """
        check(self.api, f"cudaSetDevice({ordinal})", self.api.cudaSetDevice(ordinal))

    def memory_info(self) -> MemoryInfo:
        """The memory of the calling thread's device, as the driver counts it."""
        return MemoryInfo(*check(self.api, "cudaMemGetInfo", self.api.cudaMemGetInfo()))

    def device_name(self, ordinal: int) -> str:
        """The device's name, such as `NVIDIA H200`."""
        call = f"cudaGetDeviceProperties({ordinal})"
        return check(self.api, call, self.api.cudaGetDeviceProperties(ordinal)).name.rstrip(b"\0").decode()

    def pci_bus_id(self, ordinal: int) -> str:
        """Where the device is, such as `0000:3B:00.0`, by which NVML knows it too."""
        call = f"cudaDeviceGetPCIBusId({ordinal})"
        answer = self.api.cudaDeviceGetPCIBusId(PCI_BUS_ID_BYTES, ordinal)
        # What lies behind the terminating zero is not defined; on an H200 it was spaces.
        return check(self.api, call, answer).partition(b"\0")[0].decode()

    def compute_capability(self, ordinal: int) -> tuple[int, int]:
        """Major and minor, such as `(9, 0)`."""
        attributes = self.api.cudaDeviceAttr
        call = f"cudaDeviceGetAttribute({ordinal})"
        major = self.api.cudaDeviceGetAttribute(attributes.cudaDevAttrComputeCapabilityMajor, ordinal)
        minor = self.api.cudaDeviceGetAttribute(attributes.cudaDevAttrComputeCapabilityMinor, ordinal)
        return check(self.api, call, major), check(self.api, call, minor)

    def cache_bytes(self, ordinal: int) -> int:
        """Size of the device's last cache before its memory."""
        attribute = self.api.cudaDeviceAttr.cudaDevAttrL2CacheSize
        call = f"cudaDeviceGetAttribute({ordinal})"
        return check(self.api, call, self.api.cudaDeviceGetAttribute(attribute, ordinal))

    @property
    def driver_version(self) -> int:
        """The newest CUDA that the driver supports, as 1000 major + 10 minor; 0 where there is no driver."""
        return check(self.api, "cudaDriverGetVersion", self.api.cudaDriverGetVersion())

    @property
    def runtime_version(self) -> int:
        """The CUDA that the binding was made for, as 1000 major + 10 minor."""
        return check(self.api, "cudaRuntimeGetVersion", self.api.cudaRuntimeGetVersion())

    @property
    def live(self) -> LiveCounts:
        """What is alive now."""
        return self._live

    def count(self, change: LiveCounts) -> None:
        """Adds to what is alive; for the objects of this package alone."""
        with self._live_lock:
            self._live += change

    def batch_copy_attributes(self) -> CopyAttributes | None:
        """How to call `cudaMemcpyBatchAsync`, found out once; None if binding and driver do not both have it."""
        if not self._is_batch_copy_probed:
            has_function = hasattr(self.api, "cudaMemcpyBatchAsync")
            if has_function and min(self.driver_version, self.runtime_version) >= BATCH_COPY_VERSION:
                attributes = self.api.cudaMemcpyAttributes()
                attributes.srcAccessOrder = self.api.cudaMemcpySrcAccessOrder.cudaMemcpySrcAccessOrderStream
                self._batch_attributes = attributes
            self._is_batch_copy_probed = True
        return self._batch_attributes

    def give_up_batch_copy(self) -> None:
        """Remembers that the driver, asked for a batch of copies, said that it has none."""
        self._batch_attributes = None


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"
