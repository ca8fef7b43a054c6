"""Tasks on a real GPU: the cases of the emulated device, with kernels from NVRTC and plans from TensorRT's builder."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels.compile import nvrtc
from kernels.launch import driver_api
from service.runtime.cuda.device import Cuda, LiveCounts
from service.runtime.trt.flavour import find_flavour
from tests.doubles.media_cases import MediaCases
from tests.doubles.media_models import MediaBench

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plans")


@pytest.fixture(scope="module")
def process_cuda() -> Cuda:
    os.environ.setdefault("CUDA_HOME", "/usr/local/cuda")  # where a toolkit lies if nobody says otherwise
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"  # plans in FP32 throughout: nearly equal boxes must not change places
    cuda = Cuda.load()
    cuda.use_device(0)
    return cuda


@pytest.fixture
def bench(process_cuda: Cuda, plans: Path, tmp_path: Path) -> Iterator[MediaBench]:
    bench = MediaBench(process_cuda, find_flavour(), driver_api, nvrtc, folder=tmp_path, plans=plans)
    yield bench
    bench.close()
    gc.collect()
    assert process_cuda.live == LiveCounts()
    assert int(process_cuda.api.cudaGetLastError()[0]) == 0, "an error was left behind for the next library"


class TestMedia(MediaCases):
    """The cases of the emulated device."""
