"""Sweeps at times that the test chooses, over tasks and batchers that are real."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from starlette.types import Message

from service.api import watchdog as watchdog_module
from service.api.body import Body, ByteBudget, OwnMemory
from service.api.watchdog import LISTEN_AFTER_NS, Watchdog, Watched
from service.batching.batcher import Batcher
from service.batching.pending import Pending
from service.errors import BodyTimeout, ClientGone
from service.units import NS_PER_MS
from tests.doubles.clock import ManualClock
from tests.doubles.held_backend import HeldBackend
from tests.doubles.held_repository import WAIT_S, begun, until
from tests.doubles.recorder import KeepingRecorder
from tests.doubles.requests import linear_costs, make_request, make_spec

BODY_TIMEOUT_MS = 1000


class Client:
    """A request that has signed in; `said` are its messages, and its task ends when the test lets it."""

    def __init__(self, watchdog: Watchdog, since_ns: int) -> None:
        self.said: asyncio.Queue[Message] = asyncio.Queue()
        self.received = 0
        self.may_end = asyncio.Event()
        self.signed_in = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._run(watchdog, since_ns))

    async def _run(self, watchdog: Watchdog, since_ns: int) -> None:
        watched = watchdog.sign_in(self._receive, since_ns)
        self.signed_in.set_result(watched)
        try:
            await self.may_end.wait()
        finally:
            watchdog.sign_out(watched)

    async def _receive(self) -> Message:
        self.received += 1
        return await self.said.get()

    async def watched(self) -> Watched:
        return await self.signed_in

    async def ends(self) -> None:
        self.may_end.set()
        await asyncio.wait_for(self.task, WAIT_S)


class Queue:
    """A batcher whose only lane is busy, so that what is submitted waits."""

    def __init__(self) -> None:
        spec = make_spec()
        self.backend = HeldBackend(spec, clock=time.monotonic_ns)
        self.batcher = Batcher(self.backend, on_device_lost=lambda error: None)

    async def __aenter__(self) -> Queue:
        await asyncio.to_thread(self.batcher.pool.grow, 1)
        self.batcher.start(linear_costs(make_spec(), fixed_us=1, row_us=1), KeepingRecorder())
        self.running = self.submit()
        await begun(self.backend)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.backend.let(1000)
        await self.batcher.drain(WAIT_S)
        await asyncio.to_thread(self.batcher.close)

    def submit(self) -> Pending:
        return self.batcher.submit(make_request(deadline_ns=1 << 62))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def watchdog(clock: ManualClock) -> Watchdog:
    return Watchdog(body_timeout_s=BODY_TIMEOUT_MS / 1000, clock=clock)


async def test_a_slow_body_is_cut_off_once_and_becomes_a_timeout(watchdog: Watchdog, clock: ManualClock) -> None:
    budget = ByteBudget(100)
    client: list[Watched] = []

    async def silence() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("never")

    async def request() -> None:
        watched = watchdog.sign_in(silence, clock())
        client.append(watched)
        body = Body(budget, 100, ThreadPoolExecutor(1), OwnMemory())
        try:
            await body.read({b"content-length": b"10"}, silence, watched)
        finally:
            body.close()
            watchdog.sign_out(watched)

    task = asyncio.create_task(request())
    await asyncio.sleep(0)
    watchdog.sweep(clock() + BODY_TIMEOUT_MS * NS_PER_MS)
    await asyncio.sleep(0)
    assert not task.done()
    for _ in range(3):
        watchdog.sweep(clock() + BODY_TIMEOUT_MS * NS_PER_MS + 1)
    with pytest.raises(BodyTimeout):
        await task
    assert client[0].is_too_slow
    assert len(watchdog) == 0
    assert budget.held_bytes == 0


async def test_a_cut_off_request_is_cancelled_only_once(watchdog: Watchdog, clock: ManualClock) -> None:
    """A second cancellation would end the answer to the first."""
    client = Client(watchdog, clock())
    watched = await client.watched()
    watched.is_reading = True
    late_ns = clock() + BODY_TIMEOUT_MS * NS_PER_MS + 1
    watchdog.sweep(late_ns)
    with pytest.raises(asyncio.CancelledError):
        await client.task
    answering = asyncio.create_task(asyncio.sleep(0))
    watched.task = answering
    watchdog._watched.add(watched)
    watchdog.sweep(late_ns)
    await answering
    watchdog.sign_out(watched)


async def test_a_request_that_reads_nothing_is_never_too_slow(watchdog: Watchdog, clock: ManualClock) -> None:
    client = Client(watchdog, clock())
    watched = await client.watched()
    watchdog.sweep(clock() + 100 * BODY_TIMEOUT_MS * NS_PER_MS)
    await asyncio.sleep(0)
    assert not watched.is_too_slow
    assert not client.task.done()
    await client.ends()


async def test_nobody_listens_to_a_young_request(watchdog: Watchdog, clock: ManualClock) -> None:
    async with Queue() as queue:
        client = Client(watchdog, clock())
        watched = await client.watched()
        watched.on_gone = partial(queue.batcher.cancel, queue.submit())
        watchdog.sweep(clock() + LISTEN_AFTER_NS)
        assert watched.listener is None
        watchdog.sweep(clock() + LISTEN_AFTER_NS + 1)
        assert watched.listener is not None
        await client.ends()


async def test_nobody_listens_to_a_request_that_waits_for_no_answer(watchdog: Watchdog, clock: ManualClock) -> None:
    client = Client(watchdog, clock())
    watched = await client.watched()
    for watched.is_reading in (True, False):
        watchdog.sweep(clock() + LISTEN_AFTER_NS + 1)
        assert watched.listener is None
    await asyncio.sleep(0)
    assert client.received == 0
    await client.ends()


async def test_a_client_that_leaves_takes_its_request_out_of_the_queue(watchdog: Watchdog, clock: ManualClock) -> None:
    async with Queue() as queue:
        client = Client(watchdog, clock())
        watched = await client.watched()
        waiting, neighbour = queue.submit(), queue.submit()
        watched.on_gone = partial(queue.batcher.cancel, waiting)
        for _ in range(3):
            watchdog.sweep(clock() + LISTEN_AFTER_NS + 1)
        await until(lambda: client.received == 1)
        assert not waiting.future.done()
        client.said.put_nowait({"type": "http.disconnect"})
        with pytest.raises(ClientGone):
            await waiting.future
        assert client.received == 1
        assert queue.batcher.queued_requests == 1
        await client.ends()
        queue.backend.let(2)
        await asyncio.gather(queue.running.future, neighbour.future)


async def test_a_client_that_leaves_while_its_request_runs_changes_nothing(
    watchdog: Watchdog, clock: ManualClock
) -> None:
    async with Queue() as queue:
        client = Client(watchdog, clock())
        watched = await client.watched()
        watched.on_gone = partial(queue.batcher.cancel, queue.running)
        watchdog.sweep(clock() + LISTEN_AFTER_NS + 1)
        client.said.put_nowait({"type": "http.disconnect"})
        assert watched.listener is not None
        await watched.listener
        assert not queue.running.future.done()
        queue.backend.let()
        assert (await queue.running.future)[0].shape == (1, 4)
        await client.ends()


async def test_signing_out_ends_the_listening(watchdog: Watchdog, clock: ManualClock) -> None:
    async with Queue() as queue:
        client = Client(watchdog, clock())
        watched = await client.watched()
        watched.on_gone = partial(queue.batcher.cancel, queue.running)
        watchdog.sweep(clock() + LISTEN_AFTER_NS + 1)
        await until(lambda: client.received == 1)
        assert watched.listener is not None
        assert not watched.listener.done()
        await client.ends()
        with pytest.raises(asyncio.CancelledError):
            await watched.listener
        assert len(watchdog) == 0


async def test_signing_out_twice_is_no_error(watchdog: Watchdog, clock: ManualClock) -> None:
    client = Client(watchdog, clock())
    watched = await client.watched()
    watchdog.sign_out(watched)
    await client.ends()
    assert len(watchdog) == 0


async def test_the_timer_sweeps_as_long_as_there_is_something_to_watch(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    monkeypatch.setattr(watchdog_module, "SWEEP_INTERVAL_S", 0.0)
    watchdog = Watchdog(body_timeout_s=1, clock=clock)
    swept: list[int] = []
    sweep = watchdog.sweep

    def counted(now_ns: int) -> None:
        swept.append(now_ns)
        sweep(now_ns)

    monkeypatch.setattr(watchdog, "sweep", counted)
    await asyncio.sleep(0)
    assert swept == []
    first, second = Client(watchdog, clock()), Client(watchdog, clock())
    await until(lambda: len(swept) >= 2)
    await first.ends()
    clock.advance_ms(7)
    await until(lambda: clock.now_ns in swept)
    await second.ends()
    await until(lambda: watchdog._timer is None)
    count = len(swept)
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(swept) == count
    third = Client(watchdog, clock())
    await until(lambda: len(swept) > count)
    await third.ends()
    await until(lambda: watchdog._timer is None)
