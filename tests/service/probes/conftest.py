"""Experiments on the fake GPU: rounds as short as they can be."""

from __future__ import annotations

import pytest

from service.probes import bench as bench_module
from tests.service.runtime.trt.conftest import bench, make_bench
from tests.service.runtime.trt.media.conftest import make_media_bench

__all__ = ["bench", "make_bench", "make_media_bench"]


@pytest.fixture(autouse=True)
def _short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a fake needs no milliseconds to tell."""
    monkeypatch.setattr(bench_module, "ROUND_NS", 50_000)
    monkeypatch.setattr(bench_module, "MAX_LAUNCHES", 10)
