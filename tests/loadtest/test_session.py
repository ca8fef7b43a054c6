from __future__ import annotations

import dataclasses
import gc
import json

import pytest

from loadtest.clock import SystemClock
from loadtest.connection import Endpoint
from loadtest.errors import LoadTestError
from loadtest.payloads import Wire
from loadtest.processes import free_port
from loadtest.scenario import Step
from loadtest.session import Session
from tests.loadtest.tiny_server import Handler, Reply, Request, TinyServer, inference_server, reply

SHORT = Step(concurrency=2, duration_s=0.1, warm_up_s=0.02, grace_s=1.0)


async def test_steps_run_one_after_the_other_on_both_wires() -> None:
    steps = [SHORT, dataclasses.replace(SHORT, wire=Wire.JSON, rows=(1, 3))]
    async with TinyServer(inference_server) as server, SystemClock() as clock:
        reports = await Session(endpoint=server.endpoint, model="m").run(clock, steps)
    assert [report.step for report in reports] == steps
    for report in reports:
        assert report.rate is None
        assert report.summary.succeeded == report.summary.requests > 0
        assert report.summary.stages_ms == {"queue": 0.5, "compute": 2.0}
    assert reports[1].summary.throughput_rows_per_s > reports[1].summary.throughput_per_s
    assert gc.isenabled()


async def test_a_rate_can_be_a_fraction_of_the_capacity_found() -> None:
    steps = [SHORT, dataclasses.replace(SHORT, concurrency=None, capacity_fraction=0.25)]
    async with TinyServer(inference_server) as server, SystemClock() as clock:
        closed, opened = await Session(endpoint=server.endpoint, model="m").run(clock, steps)
    assert opened.rate == closed.summary.throughput_per_s * 0.25


async def test_a_fraction_of_nothing_is_refused() -> None:
    step = Step(capacity_fraction=0.5)
    async with TinyServer(inference_server) as server, SystemClock() as clock:
        with pytest.raises(LoadTestError, match="put a step with concurrency first"):
            await Session(endpoint=server.endpoint, model="m").run(clock, [step])


async def test_headers_go_with_every_request() -> None:
    async with TinyServer(inference_server) as server, SystemClock() as clock:
        session = Session(endpoint=server.endpoint, model="m", headers=(("Authorization", "Bearer k"),))
        await session.run(clock, [SHORT])
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
            await Session(endpoint=server.endpoint, model="m").run(clock, [SHORT])


async def test_no_server() -> None:
    async with SystemClock() as clock:
        with pytest.raises(LoadTestError, match="is the server running"):
            await Session(endpoint=Endpoint("127.0.0.1", free_port()), model="m").run(clock, [SHORT])
