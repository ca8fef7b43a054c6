"""Runs steps against a server: metadata, payloads, one trial of each, then the loop. On one event loop's thread."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from loadtest.arrivals import NS_PER_S, ArrivalPlan, send_offsets_ns
from loadtest.client import Client
from loadtest.clock import Clock
from loadtest.connection import Answer, Endpoint
from loadtest.errors import LoadTestError
from loadtest.loops import Fault, LoadLoop, Message, StepRun
from loadtest.metadata import ModelMetadata, answer_fault, model_path, parse_metadata
from loadtest.payloads import PayloadPlan, build_payloads
from loadtest.records import Window
from loadtest.report import StepReport, summarise
from loadtest.scenario import Step

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

    async def run(self, clock: Clock, steps: Sequence[Step]) -> list[StepReport]:
        """Runs steps one after the other, paced by `clock`.

        Raises:
            LoadTestError: the server cannot be reached, refuses the trial requests, or stops answering.
        """
        metadata = await self.metadata(clock)
        reports: list[StepReport] = []
        for step in steps:
            rate = _rate(step, reports)
            run = await self.run_step(clock, metadata, step, rate)
            reports.append(StepReport(step, rate, summarise(run, self.objective_ms)))
        return reports

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

    async def run_step(
        self, clock: Clock, metadata: ModelMetadata, step: Step, rate: float | None = None, fault: Fault | None = None
    ) -> StepRun:
        """Runs one step.

        Args:
            clock: paces the step.
            metadata: what the model takes and gives.
            step: the load.
            rate: of an open loop, in requests per second; None for a closed loop.
            fault: says what is wrong with a 200 answer; by default, that it lacks the model's outputs.

        Raises:
            LoadTestError: as `run`.
        """
        payloads = build_payloads(metadata, PayloadPlan(wire=step.wire, rows=step.rows, dims=step.dims, seed=step.seed))
        messages = [
            Message(self.endpoint.frame("POST", p.path, (*self.headers, *p.headers), p.body), p.rows) for p in payloads
        ]

        check = fault or (lambda answer: answer_fault(metadata, answer.header_length, answer.body))
        offsets_ns = _offsets_ns(step, rate)
        connections = self.max_connections if step.concurrency is None else step.concurrency
        async with self._client(clock, connections) as client:
            for payload, message in zip(payloads, messages, strict=True):
                await _try(client, message, payload.label, check)
            await client.open(connections if step.concurrency is not None else min(16, connections))
            with _no_collections():
                loop = LoadLoop(client, clock, messages, _window(step, clock.now_ns()), check, step.seed)
                return await (loop.closed(connections) if offsets_ns is None else loop.open(offsets_ns))

    def _client(self, clock: Clock, max_connections: int) -> Client:
        return Client(self.endpoint, clock, max_connections=max_connections, timeout_s=self.timeout_s)


def _rate(step: Step, reports: Sequence[StepReport]) -> float | None:
    """Requests per second of an open loop, None of a closed one."""
    if step.capacity_fraction is None:
        return step.rate
    capacity = max((r.summary.throughput_per_s for r in reports if r.step.concurrency is not None), default=0.0)
    if not capacity:
        raise LoadTestError(
            f"step {step.title!r} wants {step.capacity_fraction:g} of the capacity, but no closed loop before it got "
            "an answer; put a step with concurrency first"
        )
    return capacity * step.capacity_fraction


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


def _window(step: Step, now_ns: int) -> Window:
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
    """No garbage collection while the clock runs: a full one over all records would be reported as latency."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
