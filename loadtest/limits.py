"""What limited a step: the generator, the server's lanes, a process of the server, the machine, or the load itself.

Pure. A verdict names the first limit that the evidence shows, in an order in which a wrong one does the least harm: a
figure that the generator held down says nothing of the server, so its limits come first.

The thresholds are shares that leave a station no room: above 90 % of a core a thread waits for itself, not for work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from loadtest.figures import Summary
from loadtest.usage import ProcessLoad

BUSY_CORES = 0.9
"""A process that uses so much of one core has none to spare: both sides run one busy thread in each."""

BUSY_LANES = 0.9
BUSY_MACHINE = 0.95
SERVED = 0.98
"""An open loop whose answers reach this share of what was due has been served; Poisson arrivals miss a little."""

MAX_LAG_MS = 1.0
MAX_LAG_SHARE = 0.2
"""Sends later than both, at p99, and the latter of the median latency, distort the latencies."""

OTHERS_SHARE = 0.08
"""CPU that neither side used, as a share of the machine, from which on a run is not that of a quiet machine."""


class Limiter(Enum):
    """What held a step's figures where they were."""

    CLIENT = "client"
    MACHINE = "machine"
    LANES = "server: lanes"
    PROCESS = "server: process"
    LOAD = "load"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What was used in the measured time.

    Attributes:
        seconds: its length.
        clients: processes of the generator.
        servers: processes of the server; empty where they are unknown or on another machine.
        cores: of this machine that the generator may use.
        busy_cores: CPU time of all processes of this machine per second; None where the kernel hides it.
        lanes: share of the time that a lane held a batch, by model and lane; empty where the server tells none.
    """

    seconds: float
    clients: tuple[ProcessLoad, ...]
    servers: tuple[ProcessLoad, ...]
    cores: int
    busy_cores: float | None
    lanes: Mapping[str, Mapping[str, float]]

    @property
    def client_cores(self) -> float:
        """CPU time of the generator per second."""
        return sum(load.cores for load in self.clients)

    @property
    def server_cores(self) -> float | None:
        """CPU time of the server per second, all its processes together; None where they are unknown."""
        return sum(load.cores for load in self.servers) if self.servers else None

    @property
    def busiest_lanes(self) -> tuple[str, float] | None:
        """The model whose lanes were busiest on average, and that average; None without any."""
        shares = [(model, sum(lanes.values()) / len(lanes)) for model, lanes in self.lanes.items() if lanes]
        return max(shares, key=lambda share: share[1], default=None)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What limited a step, with the evidence in words: the figure, and the bound that it is held against."""

    limiter: Limiter
    evidence: tuple[str, ...]


def verdict(seen: Observation, summary: Summary, *, is_open: bool) -> Verdict:
    """What limited a step.

    Args:
        seen: what was used meanwhile.
        summary: what came of it.
        is_open: whether requests left at times fixed beforehand.
    """
    served = summary.throughput_per_s / summary.offered_per_s if summary.offered_per_s else 0.0
    is_served = is_open and served >= SERVED
    found = list(_client(seen, summary, is_served=is_served))
    if is_served:
        text = f"{summary.throughput_per_s:.1f} of {summary.offered_per_s:.1f} due per second were answered"
        found.append((Limiter.LOAD, text))
    else:
        found.extend(_saturated(seen))
    if not found:
        found.append(_nothing_busy(seen, served, is_open=is_open))
    return Verdict(found[0][0], (*(text for _, text in found), *_notes(seen)))


def _client(seen: Observation, summary: Summary, *, is_served: bool) -> Iterator[tuple[Limiter, str]]:
    for load in seen.clients:
        if load.cores >= BUSY_CORES:
            text = f"client process {load.pid} used {load.cores:.2f} cores, bound {BUSY_CORES}: take more --processes"
            yield Limiter.CLIENT, text
    p50_ms = 0.0 if summary.latency is None else summary.latency.p50_ms
    lag_ms, allowed_ms = summary.send_lag_p99_ms or 0.0, max(MAX_LAG_MS, MAX_LAG_SHARE * p50_ms)
    # Where the server falls behind, requests wait for a connection: their lag is its doing.
    if is_served and lag_ms > allowed_ms:
        yield Limiter.CLIENT, f"requests left {lag_ms:.2f} ms late at p99, bound {allowed_ms:.2f}: latencies hold that"


def _saturated(seen: Observation) -> Iterator[tuple[Limiter, str]]:
    """Limits of the machine and the server, in the order in which they explain each other."""
    if seen.busy_cores is not None and seen.busy_cores >= BUSY_MACHINE * seen.cores:
        yield Limiter.MACHINE, f"{seen.busy_cores:.2f} of the machine's {seen.cores} cores were busy"
    lanes = seen.busiest_lanes
    if lanes is not None and lanes[1] >= BUSY_LANES:
        yield Limiter.LANES, f"the lanes of {lanes[0]!r} held a batch {lanes[1]:.0%} of the time"
    for load in seen.servers:
        if load.cores >= BUSY_CORES:
            yield Limiter.PROCESS, f"server process {load.pid} ({load.name}) used {load.cores:.2f} of a core"


def _nothing_busy(seen: Observation, served: float, *, is_open: bool) -> tuple[Limiter, str]:
    if not seen.servers and not seen.lanes:
        return Limiter.UNKNOWN, "the client had room, and neither processes nor lanes of the server could be watched"
    if is_open:
        return Limiter.UNKNOWN, f"{served:.0%} of what was due was answered, and nothing that was watched was busy"
    return Limiter.LOAD, "neither side was busy all the time: more requests in flight may bring more answers"


def _notes(seen: Observation) -> Iterator[str]:
    if seen.busy_cores is None or seen.server_cores is None:
        return
    others = seen.busy_cores - seen.client_cores - seen.server_cores
    if others > OTHERS_SHARE * seen.cores:
        yield f"other processes used {others:.2f} cores: the machine was not quiet"
