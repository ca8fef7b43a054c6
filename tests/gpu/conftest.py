"""CUDA for tests: the double everywhere, and the real device where there is one (`pytest -m gpu`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from service.runtime.cuda.check import runtime_api
from service.runtime.cuda.device import Cuda, LiveCounts
from service.runtime.cuda.stream import Stream
from tests.doubles.fake_cuda import FakeCuda


@pytest.fixture(
    params=["fake", "fake-deferred", pytest.param("gpu", marks=pytest.mark.gpu)],
)
def cuda(request: pytest.FixtureRequest) -> Iterator[Cuda]:
    """Device 0, on which every test must leave nothing behind, whoever plays it."""
    fake = None if request.param == "gpu" else FakeCuda(is_deferred=request.param == "fake-deferred")
    cuda = Cuda(fake or runtime_api()).probed()
    cuda.use_device(0)
    yield cuda
    assert cuda.live == LiveCounts()
    assert int(cuda.api.cudaGetLastError()[0]) == 0, "an error was left behind for the next library"
    if fake is not None:
        assert fake.violations == []
        assert fake.live_objects() == {}


@pytest.fixture
def stream(cuda: Cuda) -> Iterator[Stream]:
    with Stream(cuda) as stream:
        yield stream
