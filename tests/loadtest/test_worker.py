from __future__ import annotations

import io
import time

from loadtest.connection import Endpoint
from loadtest.figures import Tally
from loadtest.metadata import ModelMetadata, TensorMetadata
from loadtest.orders import Failed, Order, Ready, packed, read_message
from loadtest.processes import free_port
from loadtest.records import Window
from loadtest.scenario import Step
from loadtest.session import Session, StepJob
from loadtest.worker import work
from tests.loadtest.tiny_server import METADATA, TinyServer, inference_server

MODEL = ModelMetadata(
    "m",
    tuple(TensorMetadata(t["name"], t["datatype"], tuple(t["shape"])) for t in METADATA["inputs"]),  # type: ignore[index]
    tuple(TensorMetadata(t["name"], t["datatype"], tuple(t["shape"])) for t in METADATA["outputs"]),  # type: ignore[index]
)
STEP = Step(concurrency=1, duration_s=0.05, warm_up_s=0)


def order(endpoint: Endpoint) -> bytes:
    return packed(Order(Session(endpoint=endpoint, model="m"), StepJob(MODEL, STEP)))


def window() -> bytes:
    return packed(Window(time.monotonic_ns(), 0, 50_000_000, 10_000_000_000))


def answers(sink: io.BytesIO) -> list[object]:
    stream = io.BytesIO(sink.getvalue())
    found = []
    while (message := read_message(stream)) is not None:
        found.append(message)
    return found


async def test_an_order_is_prepared_and_then_run_and_so_is_the_next() -> None:
    sink = io.BytesIO()
    async with TinyServer(inference_server) as server:
        source = io.BytesIO((order(server.endpoint) + window()) * 2)
        await work(source, sink)
    ready, first, _, second = answers(sink)
    assert isinstance(ready, Ready)
    for tally in (first, second):
        assert isinstance(tally, Tally)
        assert tally.failures == {}
        assert tally.measured_ns == 50_000_000


async def test_a_step_that_cannot_be_prepared_is_refused_with_the_reason() -> None:
    sink = io.BytesIO()
    await work(io.BytesIO(order(Endpoint("127.0.0.1", free_port()))), sink)
    (failed,) = answers(sink)
    assert isinstance(failed, Failed)
    assert "failed:" in failed.reason


async def test_the_end_of_orders_ends_a_prepared_step() -> None:
    sink = io.BytesIO()
    async with TinyServer(inference_server) as server:
        await work(io.BytesIO(order(server.endpoint)), sink)
    ready, failed = answers(sink)
    assert isinstance(ready, Ready)
    assert failed == Failed("the step was given up before it began")
