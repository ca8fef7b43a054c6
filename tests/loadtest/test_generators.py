from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from loadtest.clock import SystemClock
from loadtest.errors import LoadTestError
from loadtest.generators import OnWindow, Processes, generator
from loadtest.limits import Observation
from loadtest.records import Window
from loadtest.scenario import Step
from loadtest.session import Session, StepJob
from loadtest.usage import process_times
from tests.loadtest.tiny_server import Reply, Request, TinyServer, inference_server, reply

STEP = Step(concurrency=3, duration_s=0.5, warm_up_s=0.0, grace_s=10.0)
SEEN = Observation(seconds=1.0, clients=(), servers=(), cores=1, busy_cores=None, lanes={})


def watching(pids: list[int]) -> OnWindow:
    async def watch(window: Window, seen_pids: Sequence[int]) -> Observation:
        pids.extend(seen_pids)
        assert window.measured_ns == 500_000_000
        return SEEN

    return watch


@pytest.mark.parametrize(("count", "concurrency", "used"), [(1, 3, 1), (2, 3, 2), (2, 1, 1)])
async def test_a_step_is_shared_by_the_processes(count: int, concurrency: int, used: int) -> None:
    pids: list[int] = []
    async with TinyServer(inference_server) as server, SystemClock() as clock, generator(count) as sender:
        session = Session(endpoint=server.endpoint, model="m")
        job = StepJob(await session.metadata(clock), replace(STEP, concurrency=concurrency))
        tally, seen = await sender.run(clock, session, job, watching(pids))
        assert len(process_times(pids)) == used
    assert seen is SEEN
    assert tally.failures == {}
    assert tally.due == len(tally.latencies)
    # Besides the metadata's connection, each process opens those of its share.
    assert server.connections == 1 + concurrency


async def test_processes_run_one_step_after_the_other_and_end_with_their_block() -> None:
    pids: list[int] = []
    async with TinyServer(inference_server) as server, SystemClock() as clock, Processes(2) as sender:
        session = Session(endpoint=server.endpoint, model="m")
        job = StepJob(await session.metadata(clock), Step(rate=20, duration_s=0.5, warm_up_s=0.0), 20)
        for _ in range(2):
            tally, _ = await sender.run(clock, session, job, watching(pids))
            assert tally.due == len(tally.lags)
    assert process_times(pids) == {}


async def refusing(request: Request) -> Reply:
    return await inference_server(request) if request.method == "GET" else reply(503, b"queue full")


@pytest.mark.parametrize("count", [1, 2])
async def test_what_a_process_cannot_run_is_told(count: int) -> None:
    async with TinyServer(refusing) as server, SystemClock() as clock, generator(count) as sender:
        session = Session(endpoint=server.endpoint, model="m")
        job = StepJob(await session.metadata(clock), STEP)
        with pytest.raises(LoadTestError, match=r"status 503: queue full"):
            await sender.run(clock, session, job, watching([]))


async def test_a_process_that_dies_is_told() -> None:
    async with TinyServer(inference_server) as server, SystemClock() as clock, Processes(2) as sender:
        session = Session(endpoint=server.endpoint, model="m")
        job = StepJob(await session.metadata(clock), replace(STEP, duration_s=3600))

        async def killing(window: Window, pids: Sequence[int]) -> Observation:
            next(worker for worker in sender._workers if worker.process.pid == pids[1]).process.kill()
            return await asyncio.Future()

        with pytest.raises(LoadTestError, match="ended in the middle of a step"):
            await sender.run(clock, session, job, killing)
