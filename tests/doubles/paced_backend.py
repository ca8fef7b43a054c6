"""A device whose throughput depends on the number of its lanes, in the time of a clock of its own."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from service.buckets import Bucket
from service.device_figures import LaneFigures, MemoryOwner
from service.errors import DeviceError
from service.models import ModelSpec
from service.requests import Batch, BatchResult
from service.runtime.protocol import Ticket
from service.units import NS_PER_S
from tests.doubles.held_backend import HeldBackend, HeldLane


class PacedLane(HeldLane):
    def __init__(self, backend: PacedBackend, lane_id: int) -> None:
        super().__init__(backend, lane_id)
        self._paced = backend

    def warm_up(self, bucket: Bucket) -> None:
        super().warm_up(bucket)
        self._paced.pass_time(self._paced.warm_up_ns)

    def sync(self, ticket: Ticket) -> BatchResult:
        assert isinstance(ticket, Batch)
        result = super().sync(ticket)
        self._paced.pass_time(int(ticket.bucket.padded_size * NS_PER_S / self._paced.rate))
        return result

    def figures(self) -> LaneFigures:
        return LaneFigures(device_bytes={MemoryOwner.SCRATCH: self._paced.lane_bytes})

    def close(self) -> None:
        super().close()
        self._paced.alive -= 1


class PacedBackend(HeldBackend):
    """`rates` is items per second by the number of lanes that live; `free_bytes` shrinks with each of them."""

    def __init__(
        self, spec: ModelSpec, rates: Mapping[int, float], *, lane_bytes: int = 1, max_lanes: int = 99
    ) -> None:
        super().__init__(spec, clock=self.now_ns, lane_depth=2, held=False)
        self.rates = rates
        self.lane_bytes = lane_bytes
        self.max_lanes = max_lanes
        self.warm_up_ns = 0
        self.alive = 0
        self.free_bytes = 1 << 40
        self._now_ns = 0
        self._time_lock = threading.Lock()

    @property
    def rate(self) -> float:
        return self.rates.get(self.alive) or self.rates[max(self.rates)]

    def now_ns(self) -> int:
        return self._now_ns

    def pass_time(self, ns: int) -> None:
        with self._time_lock:
            self._now_ns += ns

    def create_lane(self, lane_id: int) -> PacedLane:
        if self.alive == self.max_lanes:
            raise DeviceError("cudaErrorMemoryAllocation: out of memory, in cudaMalloc")
        self.alive += 1
        return PacedLane(self, lane_id)
