"""Lanes on real ONNX models, opened by the test and closed after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service.cards import ModelCard
from service.models import ModelSpec
from service.runtime.onnx.backend import OnnxBackend
from service.runtime.onnx.lane import OnnxLane

OpenLane = Callable[..., tuple[ModelSpec, OnnxLane]]


@pytest.fixture
def open_lane(tmp_path: Path) -> Iterator[OpenLane]:
    lanes: list[OnnxLane] = []

    def open_model(
        make: Callable[[Path], Path], *, batch: tuple[int, ...] = (1, 4), **buckets: tuple[int, ...]
    ) -> object:
        card = ModelCard(name="m", bucket_sizes={"batch": batch, **buckets})
        path = make(tmp_path / "m.onnx")
        backend = OnnxBackend.open(card, version="1", model_path=path, cpu_threads=1)
        lanes.append(backend.create_lane(0))
        return backend.spec, lanes[-1]

    yield open_model  # type: ignore[misc]
    for lane in lanes:
        lane.close()
