"""Requests that the server makes itself, to learn how many it can answer; on the least urgent level of the model.

Implements `probes.bench.Load`. What clients send meanwhile overtakes them in the queue, and waits for a batch at most.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from service.batching.batcher import Batcher
from service.errors import ExecutionFailed, Overloaded
from service.models import ModelSpec
from service.probes.bench import NotHere
from service.requests import Clock, InferenceRequest, Stamps
from service.units import NS_PER_S

MAX_IN_FLIGHT = 256
"""Requests at once: the sending process needs a connection for each."""

PATIENCE_S = 10.0
RETRY_S = 0.005
CLIENT = ("-m", "service.probes.loopback_client")


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """Where the server listens, and what it is sent.

    Attributes:
        host: an address of its own.
        port: likewise.
        request: makes head and body for one inference request.
    """

    host: str
    port: int
    request: Callable[[InferenceRequest], bytes]


class SelfLoad:
    """Requests to one model.

    Args:
        batcher: of the model.
        spec: the model.
        request: what is sent, over and over.
        target: the server, whose address is no one else's; None where it has none that TCP reaches.
        loop: the event loop that the batcher belongs to.
        clock: the batcher's.
    """

    def __init__(
        self,
        batcher: Batcher,
        spec: ModelSpec,
        request: InferenceRequest,
        target: HttpTarget | None,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock = time.monotonic_ns,
    ) -> None:
        batching = spec.card.batching
        self._batcher = batcher
        self._request = replace(request, priority=batching.priority_levels)
        self._target = target
        self._loop = loop
        self._clock = clock
        self._in_flight = in_flight(
            lanes=batcher.lane_count * batcher.lane_depth,
            batch_requests=-(-spec.buckets.max_size // request.rows),
            most_queued=batching.max_queued_requests,
        )

    def direct_rows_per_s(self, duration_s: float) -> float:
        """Rows answered per second that were given to the queue; blocking, not on the event loop.

        Raises:
            NotReady, ShuttingDown, ExecutionFailed, DeviceError: the model does not answer.
        """
        return asyncio.run_coroutine_threadsafe(self._fill(duration_s), self._loop).result()

    def http_rows_per_s(self, duration_s: float) -> float:
        """Rows answered per second that another process sent to the server's own address; blocking, likewise.

        Raises:
            NotHere: the server is reached in another way than by TCP.
            ExecutionFailed: it could not be started, or was answered otherwise than with 200.
        """
        target = self._target
        if target is None:
            raise NotHere("the server is not reached by TCP, as its own requests would have to")
        order = {
            "host": target.host,
            "port": target.port,
            "connections": self._in_flight,
            "duration_s": duration_s,
        }
        sent = json.dumps(order).encode() + b"\n" + target.request(self._request)
        try:
            done = subprocess.run(
                [sys.executable, *CLIENT], input=sent, capture_output=True, timeout=duration_s + PATIENCE_S, check=True
            )
            found = json.loads(done.stdout)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise ExecutionFailed(f"the process that sends requests to this server failed: {error}") from error
        if "problem" in found:
            raise ExecutionFailed(f"this server did not answer its own request with 200: {found['problem']}")
        return float(found["answered"]) * self._request.rows / max(1e-9, float(found["seconds"]))

    async def _fill(self, duration_s: float) -> float:
        began_ns = self._clock()
        until_ns = began_ns + round(duration_s * NS_PER_S)
        counts = await asyncio.gather(*(self._repeat(until_ns) for _ in range(self._in_flight)))
        return sum(counts) * self._request.rows * NS_PER_S / max(1, self._clock() - began_ns)

    async def _repeat(self, until_ns: int) -> int:
        answered = 0
        while (now_ns := self._clock()) < until_ns:
            deadline_ns = now_ns + round(PATIENCE_S * NS_PER_S)
            fresh = replace(self._request, stamps=Stamps(now_ns), deadline_ns=deadline_ns)
            try:
                pending = self._batcher.submit(fresh)
            except Overloaded:  # clients fill the queue: theirs is what it is for
                await asyncio.sleep(RETRY_S)
                continue
            await pending.future
            answered += 1
        return answered


def in_flight(*, lanes: int, batch_requests: int, most_queued: int) -> int:
    """So many requests that every lane finds a full batch while it runs another, and clients find half of the queue."""
    return max(1, min(2 * lanes * batch_requests, MAX_IN_FLIGHT, most_queued // 2))
