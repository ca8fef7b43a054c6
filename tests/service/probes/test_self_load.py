"""Requests that the server makes itself: to its queue, and over HTTP from a process of its own."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from service.buckets import Bucket
from service.cards import BatchingCard
from service.errors import ExecutionFailed, ShuttingDown
from service.probes import loopback_client
from service.probes.bench import NotHere
from service.probes.ceilings import CEILING_ROUNDS, ceilings
from service.probes.self_load import HttpTarget, SelfLoad, in_flight
from tests.doubles.batcher_bench import BatcherBench
from tests.doubles.held_backend import HeldBackend
from tests.doubles.probe_cases import assert_interval, finish, make_bench, make_tools
from tests.doubles.requests import make_request, make_spec

REQUEST = b"POST /infer HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\nbody"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nyes"[:-1]


def self_load(bench: BatcherBench, target: HttpTarget | None = None, **rest) -> SelfLoad:
    loop = asyncio.get_running_loop()
    return SelfLoad(bench.batcher, bench.spec, make_request(2), target, loop=loop, **rest)


@asynccontextmanager
async def http_server(answer: bytes) -> AsyncIterator[int]:
    """Answers every request alike; gives its port."""

    connections: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readexactly(len(REQUEST)) == REQUEST:
                writer.write(answer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*(connection for connection in connections if connection is not None))


def target(port: int) -> HttpTarget:
    return HttpTarget("127.0.0.1", port, lambda request: REQUEST)


async def test_the_queue_is_kept_full_and_rows_are_counted() -> None:
    async with BatcherBench(make_spec(batching=BatchingCard(max_batch_size=8, priority_levels=3)), held=False) as bench:
        ticking = ticks(bench)
        load = self_load(bench, clock=ticking)
        rate = await asyncio.to_thread(load.direct_rows_per_s, 0.5)
        assert rate > 0
        requests = [request for batch in bench.backend.batches for request in batch.requests]
        assert {request.priority for request in requests} == {3}, "on the least urgent level"
        assert max(batch.size for batch in bench.backend.batches) == 8
        assert bench.batcher.queued_requests == bench.batcher.dispatched_requests == 0


def ticks(bench: BatcherBench) -> Callable[[], int]:
    """The bench's clock, a millisecond further each time."""

    def tick() -> int:
        bench.clock.advance_ms(1)
        return bench.clock()

    return tick


async def test_where_clients_fill_the_queue_it_waits_its_turn() -> None:
    spec = make_spec(batching=BatchingCard(max_batch_size=1, max_queued_requests=2))
    async with BatcherBench(spec) as bench:
        theirs = [bench.submit()]
        await bench.begun()
        theirs += [bench.submit(), bench.submit()]
        loop = asyncio.get_running_loop()
        load = SelfLoad(bench.batcher, spec, make_request(1), None, loop=loop, clock=ticks(bench))
        rate = await asyncio.to_thread(load.direct_rows_per_s, 0.01)
        assert rate == 0.0
        bench.backend.let(3)
        await asyncio.gather(*(item.future for item in theirs))


async def test_a_model_that_leaves_ends_it() -> None:
    async with BatcherBench(make_spec(), held=False) as bench:
        load = self_load(bench)
        await bench.batcher.drain(1)
        with pytest.raises(ShuttingDown):
            await asyncio.to_thread(load.direct_rows_per_s, 0.1)


async def test_another_process_sends_requests_to_the_servers_own_address() -> None:
    async with BatcherBench(make_spec(), held=False) as bench, http_server(OK) as port:
        rate = await asyncio.to_thread(self_load(bench, target(port)).http_rows_per_s, 0.05)
        assert rate > 0


@pytest.mark.parametrize(
    ("answer", "words"),
    [(b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nfull", "503: full"), (b"", "own request with 200")],
)
async def test_an_answer_other_than_200_is_told(answer: bytes, words: str) -> None:
    async with BatcherBench(make_spec(), held=False) as bench, http_server(answer) as port:
        load = self_load(bench, target(port if answer else 1))
        with pytest.raises(ExecutionFailed, match=words):
            await asyncio.to_thread(load.http_rows_per_s, 0.05)


async def test_a_process_that_cannot_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    async with BatcherBench(make_spec(), held=False) as bench:
        with pytest.raises(ExecutionFailed, match="process that sends requests"):
            await asyncio.to_thread(self_load(bench, target(1)).http_rows_per_s, 0.05)


async def test_a_server_without_tcp_sends_itself_nothing() -> None:
    async with BatcherBench(make_spec(), held=False) as bench:
        with pytest.raises(NotHere, match="not reached by TCP"):
            self_load(bench).http_rows_per_s(0.05)


async def test_the_sending_process_counts_answers_and_warms_its_connections() -> None:
    seconds = iter(range(1000))
    async with http_server(OK) as port:
        order = {"host": "127.0.0.1", "port": port, "connections": 2, "duration_s": 5}
        found = await loopback_client.measure(order, REQUEST, lambda: float(next(seconds)))
    assert found["answered"] > 0
    assert found["seconds"] > 0


def test_the_sending_process_tells_what_went_wrong(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    order = json.dumps({"host": "127.0.0.1", "port": 1, "connections": 1, "duration_s": 0.1}).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(order + b"\n" + REQUEST)))
    loopback_client.main()
    assert "problem" in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("lanes", "batch_requests", "most_queued", "count"),
    [(1, 8, 1024, 16), (4, 128, 1024, 256), (2, 8, 20, 10), (1, 1, 1, 1)],
)
def test_requests_in_flight(lanes: int, batch_requests: int, most_queued: int, count: int) -> None:
    assert in_flight(lanes=lanes, batch_requests=batch_requests, most_queued=most_queued) == count


class Rates:
    def direct_rows_per_s(self, duration_s: float) -> float:
        return 1000.0

    def http_rows_per_s(self, duration_s: float) -> float:
        return 400.0


def test_ceilings() -> None:
    backend = HeldBackend(make_spec(), clock=lambda: 0)
    bench = make_bench(backend, Bucket(1), tools=make_tools(load=Rates()))  # type: ignore[arg-type]
    found = finish(ceilings(bench), most=CEILING_ROUNDS).figures
    assert_interval(found.direct_rows_per_s)
    assert found.http_rows_per_s is not None
    assert found.http_rows_per_s.value == 400.0
    assert finish(ceilings(bench), most=2).figures.http_rows_per_s is None
