"""Bodies: whole within their bounds or refused in words, and what they hold of the budget always given back."""

from __future__ import annotations

import asyncio
import gzip
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from starlette.types import Message, Receive

from service.api import body as body_module
from service.api.body import AnyBody, Body, ByteBudget, OwnMemory
from service.api.watchdog import Watched
from service.errors import (
    BodyTimeout,
    ClientGone,
    InvalidInput,
    Overloaded,
    PayloadTooLarge,
    ServiceError,
    Unsupported,
)
from service.tensors import HOST_ALIGNMENT_BYTES, IN_PLACE_FROM_BYTES

LIMIT_BYTES = 100
POOL = ThreadPoolExecutor(1)
BUDGET_BYTES = 1000


def part(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


GONE: Message = {"type": "http.disconnect"}


def receive_of(*messages: Message | Exception) -> Receive:
    """What ASGI servers say, one after another; then the connection is silent for ever."""
    left = list(messages)

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()
        message = left.pop(0)
        if isinstance(message, Exception):
            raise message
        return message

    return receive


class Reading:
    """One body and its budget."""

    def __init__(self, *messages: Message | Exception, limit: int = LIMIT_BYTES, budget: int = BUDGET_BYTES) -> None:
        self.budget = ByteBudget(budget)
        self.body = Body(self.budget, limit, POOL, OwnMemory())
        self.receive = receive_of(*messages)
        self.watched: Watched | None = None

    async def read(self, **headers: str) -> bytes:
        return bytes(await self.read_raw(**headers))

    async def read_raw(self, **headers: str) -> AnyBody:
        task = asyncio.current_task()
        assert task is not None
        self.watched = Watched(self.receive, task, 0)
        named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        return await self.body.read(named, self.receive, self.watched)


@pytest.mark.parametrize(
    ("messages", "whole"),
    [
        ([part(b"abc")], b"abc"),
        ([part(b"")], b""),
        ([{"type": "http.request"}], b""),
        ([part(b"ab", more=True), part(b"c")], b"abc"),
        ([part(b"", more=True), part(b"abc", more=True), part(b"")], b"abc"),
        ([{"type": "http.request", "more_body": True}, {"type": "http.request"}], b""),
        ([part(bytes(LIMIT_BYTES))], bytes(LIMIT_BYTES)),
        ([part(b"x", more=True)] * (LIMIT_BYTES - 1) + [part(b"x")], b"x" * LIMIT_BYTES),
    ],
)
async def test_bodies_in_parts(messages: list[Message], whole: bytes) -> None:
    for headers in ({}, {"content_length": str(len(whole))}):
        reading = Reading(*messages)
        assert await reading.read(**headers) == whole
        assert reading.budget.held_bytes == len(whole)
        reading.body.close()
        assert reading.budget.held_bytes == 0


@pytest.mark.parametrize(
    "value", ["", "x", "-1", "+1", "1.0", " 1", "0x10", "1e3", "\u0661", "1, 1", "9" * 20, "1" * 500]
)
async def test_a_content_length_that_is_no_number_is_refused(value: str) -> None:
    reading = Reading(part(b"x"))
    with pytest.raises(InvalidInput, match="expected a number of bytes") as caught:
        await reading.read(content_length=value)
    assert len(caught.value.message) < 200
    assert reading.budget.held_bytes == 0


async def test_an_announced_body_over_the_limit_is_refused_before_a_byte_is_read() -> None:
    reading = Reading(AssertionError("nothing may be read"))
    with pytest.raises(PayloadTooLarge, match=f"has 101 bytes or more, max_body_bytes is {LIMIT_BYTES}"):
        await reading.read(content_length="101")
    assert reading.budget.held_bytes == 0


async def test_a_body_that_grows_over_the_limit_is_refused_at_once() -> None:
    reading = Reading(part(b"x" * 60, more=True), part(b"x" * 60, more=True), AssertionError("read on"))
    with pytest.raises(PayloadTooLarge):
        await reading.read()
    assert reading.budget.held_bytes <= LIMIT_BYTES
    reading.body.close()
    assert reading.budget.held_bytes == 0


@pytest.mark.parametrize("announced", [0, 10, 50, 99])
async def test_a_body_longer_than_announced_is_counted_as_it_is(announced: int) -> None:
    reading = Reading(part(b"x" * 60, more=True), part(b"x" * 40))
    await reading.read(content_length=str(announced))
    assert reading.budget.held_bytes == LIMIT_BYTES
    reading.body.close()
    assert reading.budget.held_bytes == 0


async def test_what_has_arrived_is_reserved_until_it_is_closed_and_what_is_announced_is_not() -> None:
    """A client that announces much and sends little takes no room from the others."""
    reading = Reading(part(b"short"))
    await reading.read(content_length="90")
    assert reading.budget.held_bytes == 5
    reading.body.close()
    reading.body.close()
    assert reading.budget.held_bytes == 0


async def test_the_budget_of_all_requests_is_one() -> None:
    budget = ByteBudget(150)
    first, second = Body(budget, LIMIT_BYTES, POOL, OwnMemory()), Body(budget, LIMIT_BYTES, POOL, OwnMemory())
    task = asyncio.current_task()
    assert task is not None
    whole = receive_of(part(bytes(LIMIT_BYTES)))
    await first.read({}, whole, Watched(whole, task, 0))
    refused = receive_of(AssertionError("nothing may be read"))
    with pytest.raises(
        Overloaded, match="hold 100 bytes, this one needs 51 more, max_in_flight_bytes is 150"
    ) as caught:
        await second.read({b"content-length": b"51"}, refused, Watched(refused, task, 0))
    assert caught.value.retry_after_s == 1.0
    assert budget.held_bytes == 100
    first.close()
    fits = receive_of(part(bytes(51)))
    await second.read({b"content-length": b"51"}, fits, Watched(fits, task, 0))
    second.close()
    assert budget.held_bytes == 0


@pytest.mark.parametrize("before", [[], [part(b"a", more=True)], [part(b"a", more=True), part(b"b", more=True)]])
async def test_a_client_that_leaves_before_its_body_is_whole(before: list[Message]) -> None:
    reading = Reading(*before, GONE)
    with pytest.raises(ClientGone):
        await reading.read(content_length="10")
    reading.body.close()
    assert reading.budget.held_bytes == 0


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("GZIP", gzip.compress),
        ("identity", bytes),
        ("Identity", bytes),
    ],
)
async def test_compressed_bodies(encoding: str, compress: Callable[[bytes], bytes]) -> None:
    data = b"abcd" * 20
    reading = Reading(part(compress(data)))
    assert await reading.read(content_encoding=encoding) == data
    assert reading.budget.held_bytes == len(data)
    reading.body.close()
    assert reading.budget.held_bytes == 0


@pytest.mark.parametrize(
    ("body", "encoding", "error"),
    [
        (b"no gzip", "gzip", InvalidInput),
        (gzip.compress(b"x" * 50)[:-9], "gzip", InvalidInput),
        (b"x", "br", Unsupported),
        (gzip.compress(bytes(LIMIT_BYTES + 1)), "gzip", PayloadTooLarge),
    ],
)
async def test_bodies_that_do_not_decompress(body: bytes, encoding: str, error: type[ServiceError]) -> None:
    reading = Reading(part(body))
    with pytest.raises(error):
        await reading.read(content_encoding=encoding)
    reading.body.close()
    assert reading.budget.held_bytes == 0


async def test_a_decompressed_body_must_fit_the_budget() -> None:
    reading = Reading(part(gzip.compress(bytes(90))), budget=80)
    with pytest.raises(Overloaded):
        await reading.read(content_encoding="gzip")
    reading.body.close()
    assert reading.budget.held_bytes == 0


async def test_decompression_never_runs_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the body: a thousand times as much may come out of it."""
    threads: list[int] = []

    def decode(encoding: bytes, body: bytes, limit: int) -> bytes:
        threads.append(threading.get_ident())
        return body

    monkeypatch.setattr(body_module, "decode_body", decode)
    await Reading(part(b"x")).read(content_encoding="gzip")
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def test_only_waiting_for_the_body_counts_as_reading() -> None:
    reading = Reading()
    task = asyncio.create_task(reading.read())
    await asyncio.sleep(0)
    assert reading.watched is not None
    assert reading.watched.is_reading
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not reading.watched.is_reading

    refused = Reading(part(bytes(LIMIT_BYTES + 1)))
    with pytest.raises(PayloadTooLarge):
        await refused.read()
    assert refused.watched is not None
    assert not refused.watched.is_reading


async def test_a_cancellation_by_the_watchdog_is_a_timeout() -> None:
    reading = Reading(part(b"a", more=True))
    task = asyncio.create_task(reading.read())
    await asyncio.sleep(0)
    assert reading.watched is not None
    reading.watched.is_too_slow = True
    task.cancel()
    with pytest.raises(BodyTimeout, match="did not arrive in time"):
        await task
    reading.body.close()
    assert reading.budget.held_bytes == 0


SIZES = st.integers(0, LIMIT_BYTES + 20)
MESSAGES: st.SearchStrategy[Message | Exception] = st.one_of(
    st.builds(lambda size, more: part(bytes(size), more=more), SIZES, st.booleans()),
    st.binary(max_size=40).map(lambda data: part(gzip.compress(data))),
    st.just(GONE),
    st.just(OSError("the connection broke")),
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "content_length": SIZES.map(str) | st.sampled_from(["", "x", "-1", "9" * 19]),
        "content_encoding": st.sampled_from(["gzip", "deflate", "br", "identity"]),
    },
)
CASES = st.tuples(st.lists(MESSAGES, max_size=5), HEADERS)


@given(cases=st.lists(CASES, min_size=1, max_size=4), budget_bytes=st.integers(0, 250))
def test_whatever_happens_the_budget_is_given_back(
    cases: list[tuple[list[Message | Exception], dict[str, str]]], budget_bytes: int
) -> None:
    budget = ByteBudget(budget_bytes)

    async def read(messages: list[Message | Exception], headers: dict[str, str]) -> None:
        reading = Reading(*messages)
        reading.budget = budget
        reading.body = Body(budget, LIMIT_BYTES, POOL, OwnMemory())
        try:
            body = await reading.read(**headers)
            assert len(body) <= LIMIT_BYTES
        except (ServiceError, OSError):
            pass
        finally:
            assert 0 <= budget.held_bytes <= budget_bytes
            reading.body.close()

    async def all_at_once() -> None:
        """Requests that never get their whole body are cancelled in the end."""
        tasks = [asyncio.create_task(read(messages, headers)) for messages, headers in cases]
        for _ in range(8):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(outcome is None or isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)

    asyncio.run(all_at_once())
    assert budget.held_bytes == 0


@pytest.mark.parametrize("header_length", [0, 1, 63, 64, 149])
async def test_a_large_body_of_known_length_is_aligned_behind_its_header(header_length: int) -> None:
    whole = bytes(range(256)) * (IN_PLACE_FROM_BYTES // 256 + 1)
    pieces = [whole[start : start + 70_000] for start in range(0, len(whole), 70_000)]
    messages = [part(piece, more=piece is not pieces[-1]) for piece in pieces]
    reading = Reading(*messages, limit=len(whole), budget=len(whole))
    lengths = {"content_length": str(len(whole)), "inference_header_content_length": str(header_length)}
    body = await reading.read_raw(**lengths)
    assert bytes(body) == whole
    tensor = np.frombuffer(body, np.uint8, offset=header_length)
    assert tensor.ctypes.data % HOST_ALIGNMENT_BYTES == 0


@pytest.mark.parametrize("surplus", [1, 100_000])
async def test_a_large_body_beyond_its_content_length_is_refused(surplus: int) -> None:
    nbytes = IN_PLACE_FROM_BYTES
    reading = Reading(part(bytes(nbytes), more=True), part(bytes(surplus)), limit=10 * nbytes, budget=10 * nbytes)
    with pytest.raises(InvalidInput, match="longer than its Content-Length"):
        await reading.read(content_length=str(nbytes))


async def test_a_header_length_that_is_no_number_aligns_nothing_and_is_left_to_the_parser() -> None:
    nbytes = IN_PLACE_FROM_BYTES
    reading = Reading(part(b"a", more=True), part(bytes(nbytes - 1)), limit=nbytes, budget=nbytes)
    body = await reading.read(content_length=str(nbytes), inference_header_content_length="-1")
    assert len(body) == nbytes


class Lent(NamedTuple):
    host_buffer: NDArray[np.uint8]
    released: list[int]

    def release(self) -> None:
        self.released.append(len(self.host_buffer))


class LentMemory:
    """Memory that must come back."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.released: list[int] = []

    def take_buffer(self, nbytes: int) -> Lent:
        self.taken.append(nbytes)
        return Lent(np.empty(nbytes, np.uint8), self.released)


@pytest.mark.parametrize("is_whole", [True, False])
async def test_a_large_bodys_memory_is_given_back_once(is_whole: bool) -> None:
    memory = LentMemory()
    limit = 2 * IN_PLACE_FROM_BYTES
    body = Body(ByteBudget(limit), limit, POOL, memory)
    messages = [part(b"a" * 10, more=True), part(b"b" * (IN_PLACE_FROM_BYTES - 10)) if is_whole else GONE]
    receive = receive_of(*messages)
    task = asyncio.current_task()
    assert task is not None
    headers = {b"content-length": str(IN_PLACE_FROM_BYTES).encode()}
    with nullcontext() if is_whole else pytest.raises(ClientGone):
        assert len(await body.read(headers, receive, Watched(receive, task, 0))) == IN_PLACE_FROM_BYTES
    assert memory.taken == [IN_PLACE_FROM_BYTES + HOST_ALIGNMENT_BYTES]
    assert memory.released == []
    body.close()
    body.close()
    assert memory.released == memory.taken
