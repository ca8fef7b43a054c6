"""What a lane tells of its device: batches by graph and without, bytes copied, memory by owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from service.buckets import Bucket


class MissReason(Enum):
    """Why a bucket runs without a CUDA Graph; the value is the metrics' label."""

    NOT_CAPTURABLE = "not_capturable"
    REPLAY_DIFFERS = "replay_differs"
    DATA_DEPENDENT = "data_dependent"
    MEMORY_BUDGET = "memory_budget"


class MemoryOwner(Enum):
    """Who holds device memory; the value is the metrics' label."""

    WEIGHTS = "weights"
    SCRATCH = "scratch"
    BUFFERS = "buffers"
    CONTEXTS = "contexts"
    GRAPHS = "graphs"


@dataclass(frozen=True, slots=True)
class GraphMiss:
    """Why a bucket has no graph: the class of the cause, and TensorRT's or CUDA's own words."""

    reason: MissReason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneFigures:
    """Totals of one lane since it was made. A lane on the CPU has none.

    Attributes:
        replays: batches that a graph ran, by bucket.
        eager_runs: batches that were enqueued without one, by bucket.
        graph_misses: buckets that run eagerly, and why.
        h2d_bytes: copied to the device.
        d2h_bytes: copied from it.
        device_bytes: memory of the device that this lane alone holds, by owner.
        allocations: calls that allocated memory of the device, or page-locked memory, for outputs that outgrew theirs;
            all else is allocated at start-up.
        allocation_ns: what they took.
    """

    replays: Mapping[Bucket, int] = field(default_factory=lambda: MappingProxyType({}))
    eager_runs: Mapping[Bucket, int] = field(default_factory=lambda: MappingProxyType({}))
    graph_misses: Mapping[Bucket, GraphMiss] = field(default_factory=lambda: MappingProxyType({}))
    h2d_bytes: int = 0
    d2h_bytes: int = 0
    device_bytes: Mapping[MemoryOwner, int] = field(default_factory=lambda: MappingProxyType({}))
    allocations: int = 0
    allocation_ns: int = 0
