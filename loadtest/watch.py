"""Watches both sides of a step while it runs: CPU time of the processes, busy lanes, busy cores of the machine.

Two readings, at the ends of the measured time; on the event loop's thread, about a millisecond each.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from prometheus_client.parser import text_string_to_metric_families

from loadtest.arrivals import NS_PER_S
from loadtest.client import Client
from loadtest.clock import Clock
from loadtest.connection import Endpoint
from loadtest.limits import Observation
from loadtest.records import Window
from loadtest.usage import ProcessTime, machine_busy_s, process_loads, process_times, process_tree

LANE_BUSY = "inferlane_lane_busy_seconds_total"
_SCRAPE_TIMEOUT_S = 5.0

LaneTimes = dict[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class _Reading:
    at_ns: int
    clients: Mapping[int, ProcessTime]
    servers: Mapping[int, ProcessTime]
    busy_s: float | None
    metrics: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What to watch.

    Attributes:
        endpoint: of the server, asked for `/metrics`.
        headers: of that request.
        clients: process ids of the generator.
        server: process id of the server; what descends from it is watched as well. None if it is unknown.
    """

    endpoint: Endpoint
    headers: tuple[tuple[str, str], ...] = ()
    clients: tuple[int, ...] = ()
    server: int | None = None

    def of_clients(self, pids: Sequence[int]) -> Watch:
        """The same, of these processes of the generator."""
        return replace(self, clients=tuple(pids))

    async def __call__(self, clock: Clock, window: Window) -> Observation:
        """Reads at both ends of the measured time; returns just after its end."""
        async with Client(self.endpoint, clock, max_connections=1, timeout_s=_SCRAPE_TIMEOUT_S) as client:
            before = await self._read(client, clock, window.measured_start_ns)
            after = await self._read(client, clock, window.end_ns)
        seconds = max(after.at_ns - before.at_ns, 1) / NS_PER_S
        busy_cores = None
        if before.busy_s is not None and after.busy_s is not None:
            busy_cores = (after.busy_s - before.busy_s) / seconds
        return Observation(
            seconds=seconds,
            clients=process_loads(before.clients, after.clients, seconds),
            servers=process_loads(before.servers, after.servers, seconds),
            cores=os.cpu_count() or 1,
            busy_cores=busy_cores,
            lanes=lane_shares(lane_times(before.metrics), lane_times(after.metrics), seconds),
        )

    async def _read(self, client: Client, clock: Clock, at_ns: int) -> _Reading:
        # The clock has one waiter, which is the load; a millisecond more or less does not matter here.
        await asyncio.sleep(max(0, at_ns - clock.now_ns()) / NS_PER_S)
        read_ns, busy_s = clock.now_ns(), machine_busy_s()
        servers = () if self.server is None else process_tree(self.server)
        times = process_times(self.clients), process_times(servers)
        answer = await client.fetch(self.endpoint.frame("GET", "/metrics", self.headers))
        is_answered = answer.failure is None and answer.status == 200
        return _Reading(read_ns, *times, busy_s, answer.body if is_answered else b"")


def lane_times(metrics: bytes) -> LaneTimes:
    """Seconds that each lane was busy so far, by model (with its version) and lane; empty if there is no such sample.

    Args:
        metrics: a Prometheus text exposition.
    """
    lines = [line for line in metrics.decode("utf-8", "replace").splitlines() if line.startswith(LANE_BUSY)]
    if not lines:
        return {}
    return {
        (f"{sample.labels['model']}/{sample.labels['version']}", sample.labels["lane"]): sample.value
        for family in text_string_to_metric_families("\n".join(lines) + "\n")
        for sample in family.samples
    }


def lane_shares(before: LaneTimes, after: LaneTimes, seconds: float) -> dict[str, dict[str, float]]:
    """Share of `seconds` that each lane was busy, by model and lane; lanes that are not in both are left out."""
    shares: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for (model, lane), busy_s in after.items():
        if (model, lane) in before:
            shares[model][lane] = (busy_s - before[model, lane]) / seconds
    return dict(shares)
