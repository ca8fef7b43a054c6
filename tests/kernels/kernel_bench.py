"""Kernels on the doubles: what the launchers check and enqueue, without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernels.compile import Toolchain
from kernels.launch import DeviceTensor, Kernels, load_kernels
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.stream import Stream
from service.tensors import DType
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_driver import FakeDriver

ADDRESS = 0x7_0000_0000_0000


class KernelBench:
    """A device of the doubles with the named sources loaded, and one stream."""

    def __init__(self, cache: Path, sources: Sequence[str]) -> None:
        self.driver = FakeDriver()
        self.cuda = Cuda(FakeCuda()).probed()
        self.asked: list[str] = []
        self.kernels = self.load(cache, sources)
        self.stream = Stream(self.cuda)

    def load(self, cache: Path, sources: Sequence[str]) -> Kernels:
        def compile_nothing(text: str, architecture: str) -> bytes:
            self.asked.append(architecture)
            return b"code"

        toolchain = Toolchain("13.0", compile_nothing)
        return load_kernels(self.cuda, self.driver, toolchain, device=0, cache=cache, sources=sources)

    def close(self) -> None:
        self.stream.close()
        self.kernels.close()


def tensor(dtype: DType, *shape: int, device: int = 0, offset: int = 0) -> DeviceTensor:
    return DeviceTensor(ADDRESS + offset, dtype, shape, device)
