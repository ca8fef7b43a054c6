from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from loadtest import loops
from loadtest.client import Client
from loadtest.connection import Answer, Endpoint
from loadtest.errors import LoadTestError
from loadtest.figures import summarise
from loadtest.loops import LoadLoop, Message
from loadtest.processes import free_port
from loadtest.records import Failure, Phase, Window
from tests.loadtest.manual_clock import ManualClock
from tests.loadtest.tiny_server import Handler, Reply, Request, TinyServer, reply

MS = 1_000_000
# Measured from 0 to 100 ms, then 50 ms of grace.
WINDOW = Window(0, 0, 100 * MS, 50 * MS)


@dataclass
class Bench:
    clock: ManualClock
    server: TinyServer
    client: Client

    def loop(self, bodies: Sequence[bytes] = (b"x",), window: Window = WINDOW) -> LoadLoop:
        messages = [Message(self.client.endpoint.frame("POST", "/", (), body), len(body)) for body in bodies]
        return LoadLoop(self.client, self.clock, messages, window, fault)


def fault(answer: Answer) -> str | None:
    return "it says so" if answer.body == b"wrong" else None


@asynccontextmanager
async def bench(handler: Handler, clock: ManualClock, max_connections: int = 64) -> AsyncIterator[Bench]:
    async with (
        TinyServer(handler) as server,
        Client(server.endpoint, clock, max_connections=max_connections, timeout_s=60.0) as client,
    ):
        yield Bench(clock, server, client)


class Taking:
    """Answers a request in so many milliseconds of the manual clock, with what `script` says for its number."""

    def __init__(self, clock: ManualClock, took_ms: int, script: dict[int, Reply] | None = None) -> None:
        self._clock = clock
        self._took_ms = took_ms
        self._script = script or {}
        self._count = 0

    async def __call__(self, request: Request) -> Reply:
        self._clock.advance(self._took_ms * MS)
        self._count += 1
        return self._script.get(self._count, reply(200, request.body, "Server-Timing: q;dur=1"))


class Stalled:
    """Keeps all answers back until released."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def __call__(self, request: Request) -> Reply:
        await self.released.wait()
        return reply(200, request.body)


async def test_a_closed_loop_sends_as_fast_as_answers_come_and_ends_in_time() -> None:
    clock = ManualClock()
    async with bench(Taking(clock, 10), clock) as b:
        run = await b.loop().closed(1)
    # Sent at 0, 10, ... 90 ms; the answer at 100 ms is past the end, so nothing is sent then.
    assert [record.intended_ns // MS for record in run.records] == list(range(0, 100, 10))
    assert {record.latency_ns // MS for record in run.records} == {10}
    assert run.records[0].server_timing == b"q;dur=1"
    assert summarise(run).throughput_per_s == 90.0


async def test_a_closed_loop_keeps_its_concurrency() -> None:
    clock, stalled = ManualClock(), Stalled()
    async with bench(stalled, clock) as b:
        running = asyncio.ensure_future(b.loop().closed(3))
        await b.server.arrived(3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(b.server.requests) == 3
        clock.advance(20 * MS)
        stalled.released.set()
        await b.server.arrived(6)
        clock.advance(200 * MS)
        run = await running
    assert len({record.done_ns for record in run.records[:3]}) == 1


async def test_the_measured_phase_starts_after_the_warm_up() -> None:
    clock = ManualClock()
    window = Window(0, 50 * MS, 50 * MS, 0)
    async with bench(Taking(clock, 10), clock) as b:
        run = await b.loop(window=window).closed(1)
    assert [window.phase(record.intended_ns) for record in run.records] == [Phase.WARM_UP] * 5 + [Phase.MEASURED] * 5


async def test_refusals_and_wrong_answers_are_failures_with_their_words() -> None:
    clock = ManualClock()
    script = {2: reply(503, b'{"error": "full"}'), 4: reply(200, b"wrong")}
    async with bench(Taking(clock, 20, script), clock) as b:
        run = await b.loop().closed(1)
    assert [record.error_label for record in run.records] == ["", "http 503", "", "wrong answer", ""]
    assert run.examples == {"http 503": '{"error": "full"}', "wrong answer": "it says so"}


async def test_a_closed_loop_gives_up_on_a_dead_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MAX_FAILURES_IN_A_ROW", 5)
    clock = ManualClock()
    async with Client(Endpoint("127.0.0.1", free_port()), clock, max_connections=2) as client:
        loop = LoadLoop(client, clock, [Message(client.endpoint.frame("POST", "/"), 1)], WINDOW, fault)
        with pytest.raises(LoadTestError, match="no connection"):
            await loop.closed(2)


async def test_refusals_do_not_make_a_server_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MAX_FAILURES_IN_A_ROW", 3)
    clock = ManualClock()
    async with bench(Taking(clock, 10, dict.fromkeys(range(20), reply(503))), clock) as b:
        run = await b.loop().closed(1)
    assert len(run.records) == 10


async def test_a_step_keeps_a_bounded_number_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MAX_REQUESTS", 7)
    clock = ManualClock()
    async with bench(Taking(clock, 1), clock) as b:
        with pytest.raises(LoadTestError, match="at most 7"):
            await b.loop().closed(1)


async def test_payloads_are_mixed_the_same_way_every_time() -> None:
    sizes = []
    for _ in range(2):
        clock = ManualClock()
        async with bench(Taking(clock, 1), clock) as b:
            run = await b.loop((b"x", b"xx", b"xxx")).closed(1)
        sizes.append([record.rows for record in run.records])
    assert sizes[0] == sizes[1]
    assert set(sizes[0]) == {1, 2, 3}


async def drive(b: Bench, until_ms: int) -> None:
    """Moves the clock in steps of 10 ms, each after the loop has come to wait."""
    while b.clock.now_ns() < until_ms * MS:
        await b.clock.is_awaited.wait()
        b.clock.advance(10 * MS)


async def test_an_open_loop_goes_on_sending_while_the_server_stalls() -> None:
    clock, stalled = ManualClock(), Stalled()
    offsets = [index * 10 * MS for index in range(10)]
    async with bench(stalled, clock) as b:
        running = asyncio.ensure_future(b.loop().open(offsets))
        await drive(b, 90)
        await b.server.arrived(10)  # all ten are out, though not one is answered
        clock.advance(20 * MS)
        stalled.released.set()
        run = await running
    assert sorted(record.intended_ns for record in run.records) == offsets
    # Answered together at 110 ms: each counts from when it was due.
    assert sorted(record.latency_ns // MS for record in run.records) == [20 + index * 10 for index in range(10)]


async def test_waiting_for_a_connection_counts_as_latency() -> None:
    clock, stalled = ManualClock(), Stalled()
    async with bench(stalled, clock, max_connections=1) as b:
        running = asyncio.ensure_future(b.loop().open([0, 10 * MS, 20 * MS]))
        await drive(b, 40)
        await b.server.arrived(1)
        assert len(b.server.requests) == 1
        stalled.released.set()
        run = await running
    assert [record.latency_ns // MS for record in run.records] == [40, 30, 20]
    assert [record.send_lag_ns for record in run.records][1:] == [30 * MS, 20 * MS]


async def test_a_burst_leaves_at_once() -> None:
    clock, stalled = ManualClock(), Stalled()
    async with bench(stalled, clock) as b:
        running = asyncio.ensure_future(b.loop().open([0] * 8))
        await b.server.arrived(8)
        assert clock.now_ns() == 0
        stalled.released.set()
        run = await running
    assert len(run.records) == 8


async def test_requests_out_at_the_end_of_the_grace_time_are_unanswered() -> None:
    clock, stalled = ManualClock(), Stalled()
    async with bench(stalled, clock, max_connections=1) as b:
        running = asyncio.ensure_future(b.loop().open([0, 50 * MS]))
        await drive(b, 140)
        assert not running.done()
        await drive(b, 150)
        run = await running
    assert {record.failure for record in run.records} == {Failure.UNANSWERED}
    assert sorted(record.latency_ns // MS for record in run.records) == [100, 150]
    assert sorted(record.sent_ns is None for record in run.records) == [False, True]


async def test_answers_in_the_grace_time_count() -> None:
    clock, stalled = ManualClock(), Stalled()
    async with bench(stalled, clock) as b:
        running = asyncio.ensure_future(b.loop().open([50 * MS]))
        await drive(b, 50)
        await b.server.arrived(1)
        clock.advance(80 * MS)
        stalled.released.set()
        run = await running
    summary = summarise(run)
    assert (summary.succeeded, summary.throughput_per_s) == (1, 0.0)
    assert summary.latency is not None
    assert summary.latency.p50_ms == 80.0
