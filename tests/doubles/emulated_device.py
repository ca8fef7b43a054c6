"""A GPU that computes: the CUDA double with memory that kernels can touch, and a driver that runs their sources.

The sources of `kernels/csrc` are compiled for the host, once a session, and run thread by thread (see
`emulator/emulator.hpp`). So the very cases that run on a GPU run here too.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from bisect import insort
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.compile import Toolchain
from kernels.session import DeviceSession
from kernels.specs import SOURCE_FOLDER, SOURCES
from service.runtime.cuda.device import Cuda
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_cuda_core import api_call
from tests.doubles.fake_cuda_types import Block, Failed, Handle, Node, cudaError_t, cudaGraphNodeType
from tests.doubles.fake_driver import CUDA_KERNEL_NODE_PARAMS, FakeDriver

EMULATOR = Path(__file__).with_name("emulator")

COOPERATIVE = ("__syncthreads", "block.cuh", "tensor_core.cuh", "hopper.cuh")
"""What a source contains whose threads must take turns."""

PARAMETERS = {"fill_bytes": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32)}
"""Of kernels that are nodes of graphs, which keep copies of their arguments."""


class EmulatedCuda(FakeCuda):
    """Device memory is host memory, at its own address, so that kernels find what their arguments point to."""

    @api_call(values=1)
    def cudaMalloc(self, size: int) -> tuple[int]:
        self._unsafe()
        if size > self._free_bytes:
            raise Failed(cudaError_t.cudaErrorMemoryAllocation)
        memory = np.full(size + 256, 0xCD, np.uint8)
        start = -memory.ctypes.data % 256
        block = Block(memory.ctypes.data + start, memory[start : start + size], self._current_device)
        insort(self._device, block, key=lambda block: block.address)
        return (block.address,)

    @api_call()
    def cudaFree(self, devPtr: int) -> None:
        """Forgets the memory, whose address may be another's soon."""
        self._unsafe()
        self._free(self._device, devPtr)
        self._device = [block for block in self._device if not block.is_freed]

    def run(self, stream: Any, work: Any) -> tuple[Any, ...]:
        """Enqueues a kernel."""
        return self._launchKernel(stream, work)


class EmulatedDriver(FakeDriver):
    """Launches run the emulated kernel, in the order of the double's streams."""

    def __init__(self, cuda: EmulatedCuda) -> None:
        super().__init__()
        self._cuda = cuda
        self._library = emulated_kernels()

    def cuLaunchKernel(self, kernel: int, *rest: int) -> tuple[Any, ...]:
        grid, block, (_, stream, parameters, _) = rest[:3], rest[3:6], rest[6:]
        run = getattr(self._library, f"run_{self._entries[kernel]}")
        # A real launch copies its arguments; these live as long as the prepared launch, which outlives its graphs.
        return self._cuda.run(stream, lambda: run((ctypes.c_int * 3)(*grid), (ctypes.c_int * 3)(*block), parameters))

    def cuGraphAddKernelNode(
        self, hGraph: Handle, dependencies: list[Handle], numDependencies: int, nodeParams: CUDA_KERNEL_NODE_PARAMS
    ) -> tuple[Any, ...]:
        refused = super().cuGraphAddKernelNode(hGraph, dependencies, numDependencies, nodeParams)
        if refused[0]:
            return refused
        entry = self._entries[int(nodeParams.kern)]
        grid, block = (ctypes.c_int * 3)(*nodeParams.grid), (ctypes.c_int * 3)(*nodeParams.block)
        given = (ctypes.c_void_p * len(PARAMETERS[entry])).from_address(nodeParams.kernelParams)
        copies = [
            kind.from_buffer_copy(kind.from_address(at)) for kind, at in zip(PARAMETERS[entry], given, strict=True)
        ]
        places = (ctypes.c_void_p * len(copies))(*map(ctypes.addressof, copies))

        def launch(kept: object = copies) -> None:
            if not self.loaded:
                self._cuda.violations.append("a graph launched a kernel that was unloaded")
            getattr(self._library, f"run_{entry}")(grid, block, places)

        node = Node(cudaGraphNodeType.cudaGraphNodeTypeKernel, launch)
        return self._cuda._addNode(hGraph, node, dependencies)

    def cuMemsetD16Async(self, dstDevice: int, us: int, N: int, hStream: Any) -> tuple[Any, ...]:
        return self._cuda._fillItems(dstDevice, us, 2, N, hStream)

    def cuMemsetD32Async(self, dstDevice: int, ui: int, N: int, hStream: Any) -> tuple[Any, ...]:
        return self._cuda._fillItems(dstDevice, ui, 4, N, hStream)


@cache
def emulated_kernels() -> ctypes.CDLL:
    """Every source, compiled."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed: the kernels cannot be emulated")
    with tempfile.TemporaryDirectory() as folder:
        parts = [_wrapped(source, Path(folder)) for source in SOURCES]
        library = Path(folder) / "kernels.so"
        command = [compiler, "-std=c++17", "-O2", "-w", "-ffp-contract=off", "-shared", "-fPIC"]
        includes = [f"-I{SOURCE_FOLDER}", f"-I{EMULATOR}"]
        subprocess.run([*command, *includes, *map(str, parts), "-o", str(library)], check=True)
        return _loaded(library)


def _loaded(library: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(library))
    for entries in SOURCES.values():
        for entry in entries:
            function = getattr(loaded, f"run_{entry}")
            function.argtypes = [ctypes.c_void_p] * 3
            function.restype = None
    return loaded


def _wrapped(source: str, folder: Path) -> Path:
    """A source with a function per entry point that runs it on a grid."""
    text = (SOURCE_FOLDER / f"{source}.cu").read_text()
    needs_fibers = str(any(word in text for word in COOPERATIVE)).lower()
    functions = [
        f'extern "C" void run_{entry}(const int *grid, const int *block, void **arguments) {{\n'
        f"    emulated::launch({entry}, grid, block, arguments, {needs_fibers});\n}}\n"
        for entry in SOURCES[source]
    ]
    path = folder / f"{source}.cpp"
    path.write_text(f'#include "emulator.hpp"\n#include "hopper.hpp"\n#include "{source}.cu"\n{"".join(functions)}')
    return path


def emulated_session(cache_folder: Path) -> DeviceSession:
    """A session on the emulated device; nothing is compiled for a GPU."""
    device = EmulatedCuda(total_bytes=1 << 31)
    toolchain = Toolchain("13.0", lambda text, architecture: b"none")
    return DeviceSession.open(Cuda(device).probed(), EmulatedDriver(device), toolchain, cache=cache_folder, device=0)
