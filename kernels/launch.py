"""From a cubin to work on a stream: modules, arguments held against what a kernel takes, and prepared launches.

A launch is prepared once and enqueued many times. Enqueuing allocates nothing on the device and waits for nothing, so
it can be captured in a CUDA Graph; the buffers that it names must outlive it and the graph.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Protocol, cast

from kernels.compile import Toolchain, cubin
from kernels.specs import SOURCES, Geometry, target_of
from kernels.tensor_map import TensorMap, TensorMapApi, encode_halves
from service.errors import DeviceError, ModelLoadFailed
from service.runtime.cuda.api import Code, Handle
from service.runtime.cuda.calls import PreparedCall
from service.runtime.cuda.check import check
from service.runtime.cuda.device import Cuda, LiveCounts
from service.runtime.cuda.memory import DeviceBuffer
from service.runtime.cuda.resource import Resource
from service.runtime.cuda.stream import Stream
from service.tensors import DType, element_count

KernelArgument = ctypes.c_void_p | ctypes.c_int | ctypes.c_float | ctypes.c_uint64 | ctypes.Structure
"""A parameter as the kernel declares it."""

_USUAL_SHARED_BYTES = 48 << 10
"""More than this a block gets only if the kernel has asked for it."""


class FunctionAttributes(Protocol):
    """What of a kernel can be set."""

    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: IntEnum


class NodeParameters(Protocol):
    """What a graph's node launches; `func`, which is not named here, stays empty."""

    kern: Handle
    gridDimX: int
    gridDimY: int
    gridDimZ: int
    blockDimX: int
    blockDimY: int
    blockDimZ: int
    sharedMemBytes: int
    kernelParams: int


class DriverApi(TensorMapApi, Protocol):
    """The part of `cuda.bindings.driver` that loads and launches; its codes have the runtime's numbers."""

    cuLibraryLoadData: Callable[..., tuple[Code, Handle]]
    cuLibraryGetKernel: Callable[[Handle, bytes], tuple[Code, Handle]]
    cuLibraryUnload: Callable[[Handle], tuple[Code]]
    cuLaunchKernel: Callable[..., tuple[Code]]
    cuKernelSetAttribute: Callable[[IntEnum, int, Handle, int], tuple[Code]]
    cuGraphAddKernelNode: Callable[[Handle, Sequence[Handle], int, NodeParameters], tuple[Code, Handle]]
    CUDA_KERNEL_NODE_PARAMS: Callable[[], NodeParameters]
    CUfunction_attribute: FunctionAttributes


def driver_api() -> DriverApi:
    """The real binding.

    Raises:
        ModelLoadFailed: it is not installed, or does not load.
    """
    try:
        from cuda.bindings import driver  # noqa: PLC0415 - only servers with a GPU have it
    except ImportError as error:
        raise ModelLoadFailed(
            f"CUDA kernels cannot be used: the Python package cuda-bindings does not load ({error}); "
            "install inferlane[kernels]"
        ) from error
    return cast("DriverApi", driver)


@dataclass(frozen=True, slots=True)
class DeviceTensor:
    """A C-contiguous tensor in device memory; says where it is, owns nothing.

    Attributes:
        address: of its first element, in device memory.
        dtype: the elements' type.
        shape: its dims.
        device: the ordinal of the device that holds it.
    """

    address: int
    dtype: DType
    shape: tuple[int, ...]
    device: int

    @property
    def nbytes(self) -> int:
        """Its size."""
        return element_count(self.shape) * self.dtype.itemsize

    @classmethod
    def within(cls, buffer: DeviceBuffer, dtype: DType, shape: tuple[int, ...], *, device: int) -> DeviceTensor:
        """A tensor at the start of a buffer, which must stay open as long as the tensor is used.

        Raises:
            DeviceError: the buffer is too small.
        """
        tensor = cls(buffer.address, dtype, shape, device)
        if tensor.nbytes > buffer.nbytes:
            raise DeviceError(
                f"{dtype.value}{list(shape)} needs {tensor.nbytes} bytes, the device buffer has {buffer.nbytes}; "
                "allocate it for the largest shape"
            )
        return tensor


class Kernels(Resource[tuple[Handle, ...]]):
    """The kernels of one device, loaded. Threads may share it; made by `load_kernels`.

    Attributes:
        cuda: the process's CUDA.
        device: the ordinal that they run on.
    """

    def __init__(self, cuda: Cuda, driver: DriverApi, libraries: dict[str, Handle], *, device: int) -> None:
        super().__init__(cuda, tuple(libraries.values()), LiveCounts())
        self.cuda = cuda
        self.device = device
        self._driver = driver
        self._entries = {
            entry: check(cuda.api, f"cuLibraryGetKernel {entry}", driver.cuLibraryGetKernel(library, entry.encode()))
            for source, library in libraries.items()
            for entry in SOURCES[source]
        }

    def prepare(
        self, entry: str, geometry: Geometry, arguments: Sequence[KernelArgument], *, stream: Stream
    ) -> PreparedCall:
        """A launch for later, as often as wanted; its arguments are copied by every launch.

        Args:
            entry: the kernel's name; see `specs.SOURCES`.
            geometry: grid, block and dynamic shared memory.
            arguments: in the order and types of the kernel's parameters.
            stream: what orders it.
        """
        self._require_launchable(entry, geometry)
        places = _places(arguments)
        kept = (places, tuple(arguments), self)
        launch, kernel, handle = self._driver.cuLaunchKernel, int(self._entries[entry]), stream.handle
        address = ctypes.addressof(places)

        def call(_kept: object = kept) -> tuple[Code]:
            return launch(kernel, *geometry.grid, *geometry.block, geometry.shared_bytes, handle, address, 0)

        return PreparedCall(f"cuLaunchKernel {entry}", call)

    def add_node(
        self,
        graph: Handle,
        entry: str,
        geometry: Geometry,
        arguments: Sequence[KernelArgument],
        *,
        dependencies: Sequence[Handle],
    ) -> Handle:
        """Adds a launch to a graph that is not instantiated yet; CUDA copies the arguments, and keeps no more of them.

        Args:
            graph: the graph. What is instantiated of it must not outlive these kernels.
            entry: the kernel's name; see `specs.SOURCES`.
            geometry: grid, block and dynamic shared memory.
            arguments: in the order and types of the kernel's parameters.
            dependencies: nodes of the graph that must be done before.

        Returns:
            The new node.

        Raises:
            DeviceError: CUDA refuses, or the kernels are closed.
        """
        self._require_launchable(entry, geometry)
        places = _places(arguments)
        node = self._driver.CUDA_KERNEL_NODE_PARAMS()
        node.kern = self._entries[entry]
        node.gridDimX, node.gridDimY, node.gridDimZ = geometry.grid
        node.blockDimX, node.blockDimY, node.blockDimZ = geometry.block
        node.sharedMemBytes = geometry.shared_bytes
        node.kernelParams = ctypes.addressof(places)
        added = self._driver.cuGraphAddKernelNode(graph, [*dependencies], len(dependencies), node)
        return check(self.cuda.api, f"cuGraphAddKernelNode {entry}", added)

    def has(self, entry: str) -> bool:
        """Whether the device has this kernel: some are for one architecture alone."""
        return entry in self._entries

    def tensor_map(self, matrix: DeviceTensor, box: tuple[int, int]) -> TensorMap:
        """What the copy engine must know of FP16[rows, columns]; see `tensor_map.encode_halves`.

        Raises:
            DeviceError: the driver refuses it.
        """
        rows, columns = matrix.shape
        encoded = encode_halves(self._driver, matrix.address, (rows, columns), box)
        words = check(self.cuda.api, f"cuTensorMapEncodeTiled of {rows} x {columns}", encoded).opaque
        return TensorMap((ctypes.c_uint64 * 16)(*map(int, words)))

    def _require_launchable(self, entry: str, geometry: Geometry) -> None:
        _require_grid(entry, geometry)
        if geometry.shared_bytes > _USUAL_SHARED_BYTES:
            self._allow_shared(entry, geometry.shared_bytes)
        self.native  # noqa: B018 - refuses a closed module

    def _allow_shared(self, entry: str, nbytes: int) -> None:
        attribute = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call = f"cuKernelSetAttribute {entry}, {nbytes} bytes of shared memory"
        check(
            self.cuda.api,
            call,
            self._driver.cuKernelSetAttribute(attribute, nbytes, self._entries[entry], self.device),
        )

    def _release(self, native: tuple[Handle, ...]) -> None:
        for library in native:
            check(self._cuda.api, "cuLibraryUnload", self._driver.cuLibraryUnload(library))


def load_kernels(
    cuda: Cuda, driver: DriverApi, toolchain: Toolchain, *, device: int, cache: Path, sources: Sequence[str]
) -> Kernels:
    """Compiles (or finds) the named sources for a device and loads them; takes a second the first time.

    Args:
        cuda: the process's CUDA; the calling thread must use `device`.
        driver: the driver's binding.
        toolchain: compiles what the cache does not hold.
        device: the ordinal.
        cache: folder of compiled kernels.
        sources: names from `specs.SOURCES`; those for other architectures are left out.

    Raises:
        ModelLoadFailed: a source does not compile.
        DeviceError: the driver does not take a cubin.
    """
    major, minor = cuda.compute_capability(device)
    targets = {source: target_of(source, f"sm_{major}{minor}") for source in sources}
    libraries: dict[str, Handle] = {}
    try:
        for source, target in targets.items():
            if target is None:
                continue
            code = cubin(source, target, cache=cache, toolchain=toolchain)
            loaded = driver.cuLibraryLoadData(code, [], [], 0, [], [], 0)
            libraries[source] = check(cuda.api, f"cuLibraryLoadData {source} {target}", loaded)
        return Kernels(cuda, driver, libraries, device=device)
    except BaseException:
        for library in libraries.values():
            driver.cuLibraryUnload(library)  # unchecked: what went wrong first is what must be reported
        raise


def require_tensor(
    name: str, tensor: DeviceTensor, dtypes: tuple[DType, ...], shape: Sequence[int | None], *, kernels: Kernels
) -> None:
    """Holds a tensor against what a kernel takes; C order is all that a `DeviceTensor` can say.

    Args:
        name: the argument's name, for the message.
        tensor: the argument.
        dtypes: the allowed ones.
        shape: the extents it must have; None allows any from 1.
        kernels: whose device it must be on.

    Raises:
        DeviceError: the type, a dim, the device or the alignment is another.
    """
    dims_fit = len(tensor.shape) == len(shape) and all(
        got == wanted or (wanted is None and got >= 1) for got, wanted in zip(tensor.shape, shape, strict=True)
    )
    if tensor.dtype not in dtypes or not dims_fit:
        allowed = " or ".join(dtype.value for dtype in dtypes)
        dims = ", ".join("any" if extent is None else str(extent) for extent in shape)
        raise DeviceError(
            f"'{name}' is {tensor.dtype.value}{list(tensor.shape)}; the kernel takes {allowed}[{dims}], in C order"
        )
    if tensor.device != kernels.device:
        raise DeviceError(
            f"'{name}' is on device {tensor.device}, the kernel runs on device {kernels.device}; allocate it there"
        )
    if not tensor.address or tensor.address % max(tensor.dtype.itemsize, 1):
        raise DeviceError(
            f"'{name}' begins at address {tensor.address:#x}, the kernel needs a multiple of "
            f"{tensor.dtype.itemsize} other than 0"
        )


def pointers(*tensors: DeviceTensor) -> list[KernelArgument]:
    """The addresses of tensors, as a kernel's parameters."""
    return [ctypes.c_void_p(tensor.address) for tensor in tensors]


def _places(arguments: Sequence[KernelArgument]) -> ctypes.Array[ctypes.c_void_p]:
    """Where the arguments lie; they must outlive this."""
    return (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))


def _require_grid(entry: str, geometry: Geometry) -> None:
    """CUDA's limits: 65535 blocks along y and z, 1024 threads in a block."""
    x, y, z = geometry.grid
    if min(x, y, z) < 1 or x >= 1 << 31 or max(y, z) > 65535:
        raise DeviceError(f"kernel {entry} was asked to run in {geometry.grid} blocks; split the batch")
