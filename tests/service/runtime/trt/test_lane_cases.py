"""The promises of a lane, on the fake GPU and every generation of TensorRT."""

from __future__ import annotations

from tests.doubles.trt_cases import LaneCases


class TestLane(LaneCases):
    """All of it comes from the base."""
