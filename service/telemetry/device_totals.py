"""What the lanes of one model version tell of their device, added up.

Promises: counters of several loads add up, so that they never fall.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TypeVar

from service.buckets import Bucket
from service.device_figures import LaneFigures, MemoryOwner, MissReason

K = TypeVar("K")


class Direction(Enum):
    """Where a copy goes; the value is the metrics' label."""

    H2D = "h2d"
    D2H = "d2h"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTotals:
    """Counters of lanes on a device; all empty where no lane has one.

    Attributes:
        replays: batches that a CUDA Graph ran, by bucket.
        eager_runs: batches that were enqueued without one, by bucket.
        copied_bytes: by direction.
        allocations: calls that allocated memory while batches ran.
        allocation_ns: what they took.
    """

    replays: Mapping[Bucket, int] = field(default_factory=lambda: MappingProxyType({}))
    eager_runs: Mapping[Bucket, int] = field(default_factory=lambda: MappingProxyType({}))
    copied_bytes: Mapping[Direction, int] = field(default_factory=lambda: MappingProxyType({}))
    allocations: int = 0
    allocation_ns: int = 0

    @classmethod
    def of(cls, lanes: Iterable[LaneFigures]) -> DeviceTotals:
        """The sums over lanes, those without a device left out."""
        totals = cls()
        for lane in on_device(lanes):
            copied = {Direction.H2D: lane.h2d_bytes, Direction.D2H: lane.d2h_bytes}
            totals = totals.plus(
                cls(
                    replays=lane.replays,
                    eager_runs=lane.eager_runs,
                    copied_bytes=copied,
                    allocations=lane.allocations,
                    allocation_ns=lane.allocation_ns,
                )
            )
        return totals

    def plus(self, more: DeviceTotals) -> DeviceTotals:
        """These totals and more; buckets stay in the order in which they came."""
        return DeviceTotals(
            replays=_sum(self.replays, more.replays),
            eager_runs=_sum(self.eager_runs, more.eager_runs),
            copied_bytes=_sum(self.copied_bytes, more.copied_bytes),
            allocations=self.allocations + more.allocations,
            allocation_ns=self.allocation_ns + more.allocation_ns,
        )


NO_TOTALS = DeviceTotals()
"""Of a model without a device."""


def on_device(lanes: Iterable[LaneFigures]) -> list[LaneFigures]:
    """The lanes that have a device: one on the CPU tells nothing at all."""
    nothing = LaneFigures()
    return [lane for lane in lanes if lane != nothing]


def graphs_missing(lanes: Iterable[LaneFigures]) -> dict[MissReason, dict[Bucket, int]]:
    """Lanes on which a bucket has no graph, by reason and bucket."""
    missing: dict[MissReason, dict[Bucket, int]] = {}
    for lane in lanes:
        for bucket, miss in lane.graph_misses.items():
            of_reason = missing.setdefault(miss.reason, {})
            of_reason[bucket] = of_reason.get(bucket, 0) + 1
    return missing


def device_bytes(lanes: Sequence[LaneFigures], weights_bytes: int) -> dict[MemoryOwner, int]:
    """Memory of the device by owner, over all lanes and what they share; nothing where no lane has a device."""
    owned = on_device(lanes)
    if not owned:
        return {}
    totals: Mapping[MemoryOwner, int] = {MemoryOwner.WEIGHTS: weights_bytes}
    for lane in owned:
        totals = _sum(totals, lane.device_bytes)
    return dict(totals)


def _sum(one: Mapping[K, int], other: Mapping[K, int]) -> dict[K, int]:
    added = dict(one)
    for key, number in other.items():
        added[key] = added.get(key, 0) + number
    return added
