"""Runs steps against a server: metadata, payloads, one trial of each, then the loop. On one event loop's thread."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import TypeVar

from loadtest.arrivals import NS_PER_S, ArrivalPlan, send_offsets_ns
from loadtest.client import Client
from loadtest.clock import Clock
from loadtest.connection import Answer, Endpoint
from loadtest.errors import LoadTestError
from loadtest.loops import Fault, LoadLoop, Message, StepRun
from loadtest.metadata import ModelMetadata, answer_fault, model_path, parse_metadata
from loadtest.payloads import Payload, PayloadPlan, Wire, build_payloads
from loadtest.records import Window
from loadtest.scenario import Step
from loadtest.shared_region import shared_payloads

_LEAD_NS = NS_PER_S // 100

_T = TypeVar("_T")


def run_in_loop(main: Coroutine[object, object, _T]) -> _T:
    """Runs a coroutine to its end on uvloop where it is installed, else on asyncio's own loop."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return asyncio.run(main)
    result: _T = uvloop.run(main)
    return result


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a step that one of several client processes runs: the `index`-th of `count`, from 0."""

    index: int = 0
    count: int = 1

    def of(self, total: int) -> int:
        """This share of `total` whole things; all shares together are `total`."""
        return total // self.count + (self.index < total % self.count)


WHOLE = Share()


@dataclass(frozen=True, slots=True)
class StepJob:
    """What a client process needs to run its share of a step.

    Attributes:
        metadata: what the model takes and gives.
        step: the load.
        rate: of an open loop, in requests per second, of all processes together; None for a closed loop.
        share: which part of it.
    """

    metadata: ModelMetadata
    step: Step
    rate: float | None = None
    share: Share = WHOLE


RunWindow = Callable[[Window], Awaitable[StepRun]]
"""Runs a prepared step once, in this window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What all steps of one bench share.

    Attributes:
        endpoint: the server.
        model: the model's name.
        headers: added to each request, such as an `Authorization`.
        max_connections: bound of an open loop.
        timeout_s: after which a request counts as failed.
        objective_ms: latency up to which an answer is goodput, or None.
    """

    endpoint: Endpoint
    model: str
    headers: tuple[tuple[str, str], ...] = ()
    max_connections: int = 256
    timeout_s: float = 30.0
    objective_ms: float | None = None

    async def metadata(self, clock: Clock) -> ModelMetadata:
        """Asks the server what the model takes and gives.

        Raises:
            LoadTestError: no server, no such model, or no metadata in its answer.
        """
        async with self._client(clock, 1) as client:
            await client.open(1)
            answer = await client.fetch(self.endpoint.frame("GET", model_path(self.model), self.headers))
        if answer.failure is not None or answer.status != 200:
            raise LoadTestError(f"no metadata of model {self.model!r}: {_words(answer)}")
        return parse_metadata(answer.body)

    async def run_step(self, clock: Clock, job: StepJob, fault: Fault | None = None) -> StepRun:
        """Runs one step at once, paced by `clock`; as `prepared` in all else."""
        async with self.prepared(clock, job, fault) as run:
            return await run(window_of(job.step, clock.now_ns()))

    @contextlib.asynccontextmanager
    async def prepared(self, clock: Clock, job: StepJob, fault: Fault | None = None) -> AsyncIterator[RunWindow]:
        """Makes the payloads, tries each, opens connections; yields what runs the step.

        Args:
            clock: paces the step.
            job: the step.
            fault: says what is wrong with a 200 answer; by default, that it lacks the model's outputs.

        Raises:
            LoadTestError: the server cannot be reached, refuses the trial requests, or stops answering.
        """
        step, metadata, share = job.step, job.metadata, job.share
        check = fault or (lambda answer: answer_fault(metadata, answer.header_length, answer.body))
        offsets_ns = _offsets_ns(step, job.rate)
        connections = share.of(self.max_connections if step.concurrency is None else step.concurrency)
        async with self._client(clock, max(1, connections)) as client, self._payloads(client, job) as payloads:
            messages = [self._message(payload) for payload in payloads]
            for payload, message in zip(payloads, messages, strict=True):
                await _try(client, message, payload.label, check)
            await client.open(connections if step.concurrency is not None else min(16, connections))

            async def run(window: Window) -> StepRun:
                loop = LoadLoop(client, clock, messages, window, check, step.seed + share.index)
                if offsets_ns is None:
                    return await loop.closed(connections)
                return await loop.open(offsets_ns[share.index :: share.count])

            with _no_collections():
                yield run

    @contextlib.asynccontextmanager
    async def _payloads(self, client: Client, job: StepJob) -> AsyncIterator[list[Payload]]:
        step = job.step
        plan = PayloadPlan(wire=step.wire, rows=step.rows, dims=step.dims, seed=step.seed)
        payloads = build_payloads(job.metadata, plan)
        if step.wire is not Wire.SHARED:
            yield payloads
            return
        async with shared_payloads(client, self.headers, job.metadata, payloads) as shared:
            yield shared

    def _message(self, payload: Payload) -> Message:
        headers = (*self.headers, *payload.headers)
        return Message(self.endpoint.frame("POST", payload.path, headers, payload.body), payload.rows)

    def _client(self, clock: Clock, max_connections: int) -> Client:
        return Client(self.endpoint, clock, max_connections=max_connections, timeout_s=self.timeout_s)


def _offsets_ns(step: Step, rate: float | None) -> list[int] | None:
    if rate is None:
        return None
    return send_offsets_ns(
        ArrivalPlan(
            arrivals=step.arrivals,
            rate=rate,
            duration_s=step.warm_up_s + step.duration_s,
            burst_size=step.burst_size,
            seed=step.seed,
        )
    )


def window_of(step: Step, now_ns: int) -> Window:
    """The phases of a step that starts a moment after `now_ns`."""
    return Window(
        start_ns=now_ns + _LEAD_NS,
        warm_up_ns=round(step.warm_up_s * NS_PER_S),
        measured_ns=round(step.duration_s * NS_PER_S),
        grace_ns=round(step.grace_s * NS_PER_S),
    )


async def _try(client: Client, message: Message, label: str, fault: Fault) -> None:
    """Sends one request and raises unless it is answered rightly: a load of refusals would measure nothing."""
    answer = await client.fetch(message.request)
    if answer.failure is not None or answer.status != 200:
        raise LoadTestError(f"the trial request with {label} failed: {_words(answer)}")
    wrong = fault(answer)
    if wrong is not None:
        raise LoadTestError(f"the trial request with {label} got a wrong answer: {wrong}")


def _words(answer: Answer) -> str:
    text = answer.body[:500].decode("utf-8", "replace")
    return text if answer.failure is not None else f"status {answer.status}: {text}"


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """No garbage collection while the clock runs: a full one over all records would be reported as latency.

    Entered before the window is chosen: the collection that it begins with may take longer than the whole window.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
