"""A lane whose answers, times and failures the test gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from service.buckets import Bucket, Form
from service.requests import Batch, BatchResult, BatchTimings, InferenceRequest
from service.runtime.protocol import Ticket
from service.tensors import HostArray
from tests.doubles.requests import text_outputs


class ScriptedLane:
    """Answers `gain * x + error(batch)`, or the sum of media so, and takes the time that it is told."""

    def __init__(
        self,
        cost_ns: Callable[[Bucket], int],
        error: Callable[[Batch], float] = lambda batch: 0.0,
        *,
        gain: float = 1.0,
        on_warm_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_warm_up = on_warm_up
        self.events: list[tuple[str, Bucket]] = []
        self._cost_ns = cost_ns
        self._error = error
        self._gain = np.float32(gain)

    def warm_up(self, bucket: Bucket) -> None:
        self.events.append(("warm", bucket))
        self._on_warm_up()

    def enqueue(self, batch: Batch) -> Ticket:
        self.events.append(("run", batch.bucket))
        return batch

    def sync(self, ticket: Ticket) -> BatchResult:
        assert isinstance(ticket, Batch)
        outputs = tuple(self._answer(request, np.float32(self._error(ticket))) for request in ticket.requests)
        return BatchResult(outputs, BatchTimings(0, 0, 0, self._cost_ns(ticket.bucket)))

    def _answer(self, request: InferenceRequest, error: np.float32) -> tuple[HostArray, ...]:
        if request.form is Form.TENSORS:
            return (self._gain * request.inputs[0] + error,)
        host_sum, *rest = text_outputs(request)
        return (self._gain * host_sum + error, *rest)

    def close(self) -> None:
        self.events.clear()
