from __future__ import annotations

import gc
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.arrivals import Arrivals
from loadtest.clock import SystemClock
from loadtest.connection import Endpoint
from loadtest.errors import LoadTestError
from loadtest.loops import StepRun
from loadtest.processes import free_port
from loadtest.scenario import Step
from loadtest.session import WHOLE, Session, Share, StepJob
from tests.loadtest.tiny_server import Handler, Reply, Request, TinyServer, inference_server, reply

SHORT = Step(concurrency=2, duration_s=0.1, warm_up_s=0.02, grace_s=1.0)


async def run(session: Session, clock: SystemClock, step: Step = SHORT) -> StepRun:
    return await session.run_step(clock, StepJob(await session.metadata(clock), step, step.rate))


@given(total=st.integers(0, 5000), count=st.integers(1, 64))
def test_shares_are_even_and_together_the_whole(total: int, count: int) -> None:
    shares = [Share(index, count).of(total) for index in range(count)]
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1
    assert WHOLE.of(total) == total


async def test_a_closed_loop_keeps_its_requests_in_flight() -> None:
    async with TinyServer(inference_server) as server, SystemClock() as clock:
        done = await run(Session(endpoint=server.endpoint, model="m"), clock)
    assert done.records
    assert all(record.failure is None for record in done.records)
    assert gc.isenabled()


async def test_processes_take_the_send_times_of_an_open_loop_in_turns() -> None:
    step = Step(rate=500, arrivals=Arrivals.CONSTANT, duration_s=0.02, warm_up_s=0)
    due: list[int] = []
    async with TinyServer(inference_server) as server, SystemClock() as clock:
        session = Session(endpoint=server.endpoint, model="m", max_connections=2)
        metadata = await session.metadata(clock)
        for index in range(3):
            done = await session.run_step(clock, StepJob(metadata, step, 500, Share(index, 3)))
            start_ns = done.window.start_ns
            assert {(record.intended_ns - start_ns) // 2_000_000 % 3 for record in done.records} == {index}
            due += [record.intended_ns - start_ns for record in done.records]
    assert sorted(due) == [index * 2_000_000 for index in range(10)]


async def test_headers_go_with_every_request() -> None:
    async with TinyServer(inference_server) as server, SystemClock() as clock:
        session = Session(endpoint=server.endpoint, model="m", headers=(("Authorization", "Bearer k"),))
        await run(session, clock)
    assert {request.headers.get("authorization") for request in server.requests} == {"Bearer k"}


async def refused_infer(request: Request) -> Reply:
    return await inference_server(request) if request.method == "GET" else reply(400, b'{"error": "bad rows"}')


async def wrong_infer(request: Request) -> Reply:
    if request.method == "GET":
        return await inference_server(request)
    return reply(200, json.dumps({"outputs": []}).encode())


async def no_model(request: Request) -> Reply:
    return reply(404, b'{"error": "no model m"}')


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (refused_infer, r"rows=1 failed: status 400: .*bad rows"),
        (wrong_infer, r"wrong answer: outputs \['y'\] are missing"),
        (no_model, r"no metadata of model 'm': status 404: .*no model m"),
    ],
)
async def test_nothing_is_measured_that_does_not_work(handler: Handler, said: str) -> None:
    async with TinyServer(handler) as server, SystemClock() as clock:
        with pytest.raises(LoadTestError, match=said):
            await run(Session(endpoint=server.endpoint, model="m"), clock)


async def test_no_server() -> None:
    async with SystemClock() as clock:
        with pytest.raises(LoadTestError, match="is the server running"):
            await run(Session(endpoint=Endpoint("127.0.0.1", free_port()), model="m"), clock)
