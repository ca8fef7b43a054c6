from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from service.api.exchange import MAX_QUERY_FIELDS, Exchange
from service.api.watchdog import Watched
from service.cards import BatchingCard
from service.errors import ClientGone, InvalidInput, Overloaded, ShuttingDown
from service.requests import Stamps
from tests.doubles.held_repository import HeldRepository, begun, until
from tests.doubles.requests import make_request

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


async def silence() -> Message:
    await asyncio.Event().wait()
    raise AssertionError("never")


async def make_exchange(query: bytes = b"") -> Exchange:
    task = asyncio.current_task()
    assert task is not None
    return Exchange({}, query, Stamps(1), Watched(silence, task, 1))


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        (b"", {}),
        (b"top_k=3", {"top_k": "3"}),
        (b"a=1&b=&c=x%20y+z", {"a": "1", "b": "", "c": "x y z"}),
        (b"a=%C3%A9", {"a": "\u00e9"}),
    ],
)
async def test_query(query: bytes, fields: dict[str, str]) -> None:
    assert (await make_exchange(query)).query() == fields


@pytest.mark.parametrize(
    ("query", "says"),
    [
        (b"a=1&a=2", "repeats a name"),
        (b"a", "cannot be read"),
        (b"a=1&&b=2", "cannot be read"),
        (b"&", "cannot be read"),
        (b"a=%FF", "cannot be read"),
        (b"a=\xc3\xa9", "cannot be read"),
        (b"&".join(b"n%d=1" % number for number in range(MAX_QUERY_FIELDS + 1)), "cannot be read"),
    ],
)
async def test_queries_that_are_refused(query: bytes, says: str) -> None:
    exchange = await make_exchange(query)
    with pytest.raises(InvalidInput, match=says):
        exchange.query()


@given(st.dictionaries(TEXTS, TEXTS, max_size=MAX_QUERY_FIELDS))
def test_every_query_comes_back(fields: dict[str, str]) -> None:
    exchange = asyncio.run(make_exchange(urlencode(fields).encode()))
    assert exchange.query() == fields


@given(st.binary(max_size=40))
def test_no_query_is_an_unexpected_error(query: bytes) -> None:
    exchange = asyncio.run(make_exchange(query))
    with suppress(InvalidInput):
        assert all(isinstance(value, str) for value in exchange.query().values())


async def test_run_gives_the_outputs_and_says_what_is_awaited(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("m")
        await repository.registry.start(None)
        exchange = await make_exchange()
        (host_y,) = await exchange.run(repository.batcher("m"), make_request(deadline_ns=1 << 62, fill=4.0))
        assert host_y[0, 0] == 8.0
        assert exchange.watched.on_gone is not None


async def test_a_refused_request_is_not_awaited(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("m")
        await repository.registry.start(None)
        batcher = repository.batcher("m")
        await repository.registry.unload("m")
        exchange = await make_exchange()
        with pytest.raises(ShuttingDown):
            await exchange.run(batcher, make_request(deadline_ns=1 << 62))
        assert exchange.watched.on_gone is None


async def test_a_cancelled_task_takes_its_request_out_of_the_queue(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("m")
        await repository.registry.start(None)
        (backend,), batcher = repository.backends, repository.batcher("m")
        repository.hold(backend)
        running = batcher.submit(make_request(deadline_ns=1 << 62))
        await begun(backend)
        exchange = await make_exchange()
        task = asyncio.create_task(exchange.run(batcher, make_request(deadline_ns=1 << 62)))
        await until(lambda: batcher.queued_requests == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert batcher.queued_requests == 0
        backend.let()
        await running.future


async def test_requests_that_run_together_come_back_in_order(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("m")
        await repository.registry.start(None)
        batcher = repository.batcher("m")
        exchange = await make_exchange()
        requests = [make_request(deadline_ns=1 << 62, fill=float(fill)) for fill in (3, 1, 2)]
        outputs = await exchange.run_all([(batcher, request) for request in requests])
        assert [host_y[0, 0] for (host_y,) in outputs] == [6.0, 2.0, 4.0]


async def test_a_client_that_leaves_takes_all_of_its_requests_along(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("m")
        await repository.registry.start(None)
        (backend,), batcher = repository.backends, repository.batcher("m")
        repository.hold(backend)
        running = batcher.submit(make_request(deadline_ns=1 << 62))
        await begun(backend)
        exchange = await make_exchange()
        both = [(batcher, make_request(deadline_ns=1 << 62)) for _ in range(2)]
        task = asyncio.create_task(exchange.run_all(both))
        await until(lambda: batcher.queued_requests == 2)
        assert exchange.watched.on_gone is not None
        exchange.watched.on_gone()
        with pytest.raises(ClientGone):
            await task
        assert batcher.queued_requests == 0
        exchange.watched.is_gone = True
        with pytest.raises(ClientGone, match="while its request was prepared"):
            await exchange.run_all(both)
        backend.let()
        await running.future


async def test_one_that_is_refused_takes_the_others_out_of_the_queue(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path, batching=BatchingCard(max_batch_size=1, max_queued_requests=2)) as repository:
        repository.add("m")
        await repository.registry.start(None)
        (backend,), batcher = repository.backends, repository.batcher("m")
        repository.hold(backend)
        running = batcher.submit(make_request(deadline_ns=1 << 62))
        await begun(backend)
        exchange = await make_exchange()
        with pytest.raises(Overloaded):
            await exchange.run_all([(batcher, make_request(deadline_ns=1 << 62)) for _ in range(5)])
        assert batcher.queued_requests == 0
        backend.let()
        await running.future
