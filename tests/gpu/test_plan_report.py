"""`inferlane inspect` on a real GPU: the cases of the fake."""

from __future__ import annotations

import pytest

from tests.doubles.inspect_cases import InspectCases
from tests.gpu.test_trt import bench, flavour, plan_path, process_cuda

__all__ = ["bench", "flavour", "plan_path", "process_cuda"]

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180)]


class TestInspect(InspectCases):
    """On what TensorRT's own inspector says."""
