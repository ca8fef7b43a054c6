"""Ranges on the timeline of Nsight Systems: what each lane does, by bucket. Off unless a setting says otherwise.

NVTX is NVIDIA's interface for such marks; a range costs about half a microsecond of the lane's thread, and Nsight
Systems projects it onto the kernels and copies that were given to the GPU within it.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, cast

from service.buckets import Bucket
from service.device_figures import LaneFigures
from service.errors import ModelLoadFailed
from service.models import ModelSpec
from service.requests import Batch, BatchResult
from service.runtime.probe import LayerProbe, Probe
from service.runtime.protocol import Backend, Lane, Ticket
from service.tensors import HostArray

DOMAIN = "inferlane"


class Nvtx(Protocol):
    """What is called of the package `nvtx`."""

    push_range: Callable[..., object]
    pop_range: Callable[..., object]


def load_nvtx() -> Nvtx:
    """The package.

    Raises:
        ModelLoadFailed: it is not installed.
    """
    try:
        return cast("Nvtx", importlib.import_module("nvtx"))
    except ImportError as error:
        raise ModelLoadFailed(
            f"INFERLANE_NVTX_ENABLED needs the package nvtx, which cannot be imported ({error}); "
            "pip install -e '.[nsight]', or unset the variable"
        ) from error


class MarkedBackend:
    """A backend whose lanes mark what they do; everything else is the other's. Implements `runtime.protocol.Backend`.

    Attributes:
        backend: the other.
    """

    def __init__(self, backend: Backend, nvtx: Nvtx) -> None:
        self.backend = backend
        self._nvtx = nvtx

    @property
    def spec(self) -> ModelSpec:
        """As the other's."""
        return self.backend.spec

    @property
    def lane_count(self) -> int:
        """As the other's."""
        return self.backend.lane_count

    @property
    def lane_depth(self) -> int:
        """As the other's."""
        return self.backend.lane_depth

    @property
    def weights_bytes(self) -> int:
        """As the other's."""
        return self.backend.weights_bytes

    def free_device_bytes(self) -> int | None:
        """As the other's."""
        return self.backend.free_device_bytes()

    def create_lane(self, lane_id: int) -> MarkedLane:
        """The other's lane, which marks what it does."""
        return MarkedLane(self.backend.create_lane(lane_id), f"{self.spec.name} lane {lane_id}", self._nvtx)

    def profiles(self, bucket: Bucket) -> tuple[int, ...]:
        """As the other's."""
        return self.backend.profiles(bucket)

    def create_probe(self, bucket: Bucket, *, profile: int | None = None) -> Probe | None:
        """As the other's."""
        return self.backend.create_probe(bucket, profile=profile)

    def create_layer_probe(self, bucket: Bucket) -> LayerProbe:
        """As the other's."""
        return self.backend.create_layer_probe(bucket)

    def register(self, host: HostArray) -> AbstractContextManager[object]:
        """As the other's."""
        return self.backend.register(host)

    def close(self) -> None:
        """Closes the other; idempotent."""
        self.backend.close()


class MarkedLane:
    """A lane with a range around each call of its thread. Implements `runtime.protocol.Lane`."""

    def __init__(self, lane: Lane, name: str, nvtx: Nvtx) -> None:
        self._lane = lane
        self._name = name
        self._nvtx = nvtx
        self._in_flight: deque[str] = deque()

    def warm_up(self, bucket: Bucket) -> None:
        """As the other's."""
        with self._range(f"warm-up {bucket.label}"):
            self._lane.warm_up(bucket)

    def enqueue(self, batch: Batch) -> Ticket:
        """As the other's."""
        with self._range(f"enqueue {batch.bucket.label}"):
            ticket = self._lane.enqueue(batch)
        self._in_flight.append(batch.bucket.label)
        return ticket

    def sync(self, ticket: Ticket) -> BatchResult:
        """As the other's; tickets come in the order of their enqueues."""
        with self._range(f"sync {self._in_flight.popleft() if self._in_flight else ''}"):
            return self._lane.sync(ticket)

    def figures(self) -> LaneFigures:
        """As the other's."""
        return self._lane.figures()

    def close(self) -> None:
        """Closes the other; idempotent."""
        self._lane.close()

    @contextmanager
    def _range(self, words: str) -> Iterator[None]:
        self._nvtx.push_range(f"{self._name}: {words}", domain=DOMAIN)
        try:
            yield
        finally:
            self._nvtx.pop_range(domain=DOMAIN)
