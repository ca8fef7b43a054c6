"""`engines` on a real GPU: the cases of the fake, with the builder of the TensorRT that is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.runtime.cuda.device import Cuda
from service.runtime.trt.flavour import find_flavour
from tests.doubles.build_bench import BuildBench
from tests.doubles.build_cases import BuildCases

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def bench(tmp_path: Path) -> BuildBench:
    (tmp_path / "model").mkdir()
    return BuildBench(tmp_path / "model", find_flavour(), Cuda.load())


class TestBuild(BuildCases):
    """The cases of the fake."""
