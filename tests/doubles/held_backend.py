"""A backend whose lanes compute `2 * x`, sum up media, and finish a batch only when the test lets them."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from service.buckets import Bucket, Form
from service.device_figures import LaneFigures
from service.errors import ModelLoadFailed
from service.models import ModelSpec
from service.requests import Batch, BatchResult, BatchTimings, InferenceRequest
from service.runtime.probe import LayerProbe, Probe
from service.runtime.protocol import Ticket
from service.tensors import HostArray
from tests.doubles.requests import text_outputs


class HeldLane:
    def __init__(self, backend: HeldBackend, lane_id: int) -> None:
        self._backend = backend
        self._lane_id = lane_id
        self.owner = threading.get_ident()

    def warm_up(self, bucket: Bucket) -> None:
        assert threading.get_ident() == self.owner
        self._backend.warmed.append(bucket)

    def enqueue(self, batch: Batch) -> Ticket:
        assert threading.get_ident() == self.owner
        assert {request.form for request in batch.requests} == {batch.bucket.form}
        with self._backend.lock:
            self._backend.open_count += 1
            self._backend.max_open_count = max(self._backend.max_open_count, self._backend.open_count)
            self._backend.batches.append(batch)
        self._backend.begun.release()
        return batch

    def sync(self, ticket: Ticket) -> BatchResult:
        assert threading.get_ident() == self.owner
        assert isinstance(ticket, Batch)
        self._backend.permits.acquire()
        with self._backend.lock:
            self._backend.open_count -= 1
        for error in filter(None, map(self._backend.fails_on, ticket.requests)):
            raise error
        now = self._backend.clock()
        return BatchResult(tuple(map(_answer, ticket.requests)), BatchTimings(now, now, now, now))

    def figures(self) -> LaneFigures:
        return self._backend.figures[self._lane_id]

    def close(self) -> None:
        self._backend.closed_lanes += 1
        if self._backend.close_fails is not None:
            raise self._backend.close_fails


class HeldBackend:
    """Attributes that tests use: `batches` in the order of their begin, `permits` to let one finish each."""

    def __init__(
        self, spec: ModelSpec, *, clock: Callable[[], int], lane_count: int = 1, lane_depth: int = 1, held: bool = True
    ) -> None:
        self.spec = spec
        self.lane_count = lane_count
        self.lane_depth = lane_depth
        self.clock = clock
        self.lock = threading.Lock()
        self.batches: list[Batch] = []
        self.warmed: list[Bucket] = []
        self.begun = threading.Semaphore(0)
        self.permits = threading.Semaphore(0 if held else 1 << 30)
        self.fails_on: Callable[[InferenceRequest], Exception | None] = lambda request: None
        self.open_count = 0
        self.max_open_count = 0
        self.closed_lanes = 0
        self.free_bytes: int | None = None
        self.is_closed = False
        self.close_fails: Exception | None = None
        self.figures = defaultdict[int, LaneFigures](LaneFigures)
        self.weights_bytes = 0

    def free_device_bytes(self) -> int | None:
        return self.free_bytes

    def create_lane(self, lane_id: int) -> HeldLane:
        return HeldLane(self, lane_id)

    def profiles(self, bucket: Bucket) -> tuple[int, ...]:
        return ()

    def create_probe(self, bucket: Bucket, *, profile: int | None = None) -> Probe | None:
        return None

    def create_layer_probe(self, bucket: Bucket) -> LayerProbe:
        raise ModelLoadFailed("a held backend tells nothing of layers")

    def register(self, host: HostArray) -> AbstractContextManager[object]:
        return nullcontext()

    def let(self, count: int = 1) -> None:
        for _ in range(count):
            self.permits.release()

    def close(self) -> None:
        self.is_closed = True


def _answer(request: InferenceRequest) -> tuple[HostArray, ...]:
    if request.form is Form.MEDIA:
        return text_outputs(request)
    return tuple(request.inputs[0] * np.float32(index + 2) for index in request.outputs)
