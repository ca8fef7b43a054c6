from __future__ import annotations

from collections.abc import Iterator

import pytest

from service.runtime.cuda.device import Cuda
from service.runtime.cuda.stream import Stream
from tests.doubles.fake_cuda import FakeCuda


@pytest.fixture
def fake() -> FakeCuda:
    return FakeCuda()


@pytest.fixture
def cuda(fake: FakeCuda) -> Cuda:
    return Cuda(fake)


@pytest.fixture
def stream(cuda: Cuda) -> Iterator[Stream]:
    stream = Stream(cuda)
    yield stream
    if int(cuda.api.cudaGetLastError()[0]) == 0:
        stream.close()
