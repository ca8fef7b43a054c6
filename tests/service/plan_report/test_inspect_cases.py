"""The cases that a real GPU runs too, in every generation of the fake TensorRT."""

from __future__ import annotations

from tests.doubles.inspect_cases import InspectCases
from tests.service.runtime.trt.conftest import bench, make_bench

__all__ = ["bench", "make_bench"]


class TestInspect(InspectCases):
    """On the fake."""
