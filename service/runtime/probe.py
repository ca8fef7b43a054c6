"""The seam between measuring and devices: how a bucket is timed beside the lanes that serve it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from service.runtime.layer_trace import LayerTrace


@dataclass(frozen=True, slots=True)
class LaunchTimes:
    """Medians over launches that were given to the device one after another.

    Attributes:
        device_ns: from one launch's end to the next one's, on the device's clock. Where launching takes the host
            longer than running takes the device, it is the host's time.
        host_ns: how long the call that launches keeps the host.
    """

    device_ns: float
    host_ns: float


class LayerProbe(Protocol):
    """One bucket whose layers are timed one by one, made, used and closed on one thread; requests never meet it."""

    def layers(self, runs: int) -> LayerTrace:
        """Times every layer in `runs` executions, and whole executions between them; of media the engine's alone.

        Raises:
            ExecutionFailed: the model does not run, or the runtime's profiler tells nothing.
            ModelLoadFailed: it does not open a second time.
        """

    def close(self) -> None:
        """Frees what it holds; idempotent."""


class Probe(LayerProbe, Protocol):
    """One bucket on a device, made, used and closed on one thread; requests never meet it."""

    def replay(self, launches: int) -> LaunchTimes | None:
        """Times `launches` replays of the bucket's CUDA Graph; None where it has none."""

    def eager(self, launches: int) -> LaunchTimes:
        """Times `launches` enqueues without the graph."""

    def h2d(self, launches: int) -> LaunchTimes:
        """Times `launches` uploads of the bucket's inputs, from pinned memory."""

    def d2h(self, launches: int) -> LaunchTimes:
        """Times `launches` downloads of its outputs, to pinned memory."""
