"""Opens a model and one warm lane for it, and closes the lane after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service.cards import BatchingCard, ModelCard
from service.runtime.onnx.backend import OnnxBackend
from service.runtime.onnx.lane import OnnxLane

OpenLane = Callable[..., tuple[OnnxBackend, OnnxLane]]


@pytest.fixture
def open_lane(tmp_path: Path) -> Iterator[OpenLane]:
    lanes: list[OnnxLane] = []

    def open_model(
        make: Callable[[Path], Path], *, max_batch_size: int | None = 4, warm: bool = True, **card: object
    ) -> tuple[OnnxBackend, OnnxLane]:
        batching = BatchingCard(max_batch_size=max_batch_size)
        backend = OnnxBackend.open(
            ModelCard(name="m", batching=batching, **card),  # type: ignore[arg-type]
            version="1",
            model_path=make(tmp_path / "model.onnx"),
            cpu_threads=1,
        )
        lane = backend.create_lane(0)
        lanes.append(lane)
        for bucket in backend.spec.buckets.known() if warm else ():
            lane.warm_up(bucket)
        return backend, lane

    yield open_model
    for lane in lanes:
        lane.close()
