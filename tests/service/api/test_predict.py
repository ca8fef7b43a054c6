"""Media in, meaning out: what runs where, in which order, and how many at once."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import numpy as np
import pytest

from service.cards import BatchingCard
from tests.doubles.held_repository import until
from tests.doubles.inference_bench import InferenceBench

PATH = "/v2/models/m/predict"
VERSION_PATH = "/v2/models/m/versions/1/predict"


@pytest.mark.parametrize("path", [PATH, VERSION_PATH])
async def test_an_answer(tmp_path: Path, path: str) -> None:
    async with InferenceBench(tmp_path) as bench:
        call = await bench.post(b"12345678", path, query=b"times=10", headers={"Content-Type": "text/digits"}).done()
        assert call.is_complete
        assert call.status == 200
        assert call.headers["content-type"] == "application/json"
        assert json.loads(call.body) == {"sums": [200.0, 520.0]}
        assert bench.task.calls == ["check_options", "prepare text/digits", "render"]
        assert bench.recorder.models["m", "1"].requests[0][1] == 2


async def test_media_are_decoded_off_the_event_loop_and_answers_do_not_wait_there(tmp_path: Path) -> None:
    """An answer takes microseconds to make; behind the decoding of other requests it would wait for milliseconds."""
    async with InferenceBench(tmp_path) as bench:
        await bench.post(b"1234", PATH).done()
        assert len(bench.task.threads) == 2
        assert threading.get_ident() in bench.task.threads


async def test_what_the_queue_gets(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        await bench.post(b"12345678", PATH).done()
        request = bench.backend.batches[-1].requests[0]
        np.testing.assert_array_equal(request.inputs[0], np.float32([[1, 2, 3, 4], [5, 6, 7, 8]]))
        card = bench.registry.get("m").spec.card.batching
        assert request.rows == 2
        assert request.nbytes == 32
        assert request.outputs == (0,)
        assert request.priority == card.default_priority
        assert request.deadline_ns == request.stamps.read + card.default_timeout_ns
        assert request.stamps.read <= request.stamps.parsed <= request.stamps.prepared <= request.stamps.dispatched


@pytest.mark.parametrize("query", [b"other=1", b"times", b"times=1&times=2"])
async def test_bad_options_are_found_before_anything_is_decoded(tmp_path: Path, query: bytes) -> None:
    async with InferenceBench(tmp_path) as bench:
        call = await bench.post(b"1234", PATH, query=query).done()
        assert call.status == 400
        assert not any(entry.startswith("prepare") for entry in bench.task.calls)


async def test_a_model_without_a_task_says_what_it_takes(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        bench.repository.tasks.clear()
        await bench.registry.load("m")
        call = await bench.post(b"1234", PATH, query=b"&").done()
        assert call.status == 400
        assert "model 'm' has no task" in call.error
        assert "/v2/models/m/infer" in call.error


async def test_more_than_the_pool_may_hold_are_refused_at_once(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path, max_preparing=2) as bench:
        bench.task.may_prepare.clear()
        admitted = [bench.post(b"1234", PATH) for _ in range(2)]
        await until(lambda: len(bench.task.calls) >= 3)
        refused = await bench.post(b"1234", PATH).done()
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        assert "2 media requests are being decoded or wait for it, 2 may" in refused.error
        assert bench.task.calls.count("prepare ") == 1
        bench.task.may_prepare.set()
        await asyncio.gather(*(call.done() for call in admitted))
        assert [call.status for call in admitted] == [200, 200]
        assert (await bench.post(b"1234", PATH).done()).status == 200
        assert bench.records() == (3, ["overloaded"])


async def test_failures_and_cancellations_free_their_place(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path, max_preparing=1) as bench:
        for _ in range(3):
            assert (await bench.post(b"word", PATH).done()).status == 400
        bench.task.may_prepare.clear()
        ended = bench.post(b"1234", PATH)
        await until(lambda: bench.task.calls.count("prepare ") == 4)
        ended.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ended.done()
        bench.task.may_prepare.set()
        assert (await bench.post(b"1234", PATH).done()).status == 200


async def test_requests_that_wait_for_the_model_take_no_place(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path, max_preparing=1) as bench:
        running = await bench.occupy()
        calls = []
        for count in range(1, 4):
            calls.append(bench.post(b"1234", PATH))
            await until(lambda count=count: bench.repository.batcher("m").queued_requests == count)
        bench.backend.let(10)
        await asyncio.gather(*(call.done() for call in (running, *calls)))
        assert [call.status for call in calls] == [200] * 3


async def test_what_is_late_before_it_is_decoded_is_not_decoded(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path, batching=BatchingCard(default_timeout_ns=1)) as bench:
        call = await bench.post(b"1234", PATH).done()
        assert call.status == 504
        assert "Request timeout expired" in call.error
        assert not any(entry.startswith("prepare") for entry in bench.task.calls)
        assert bench.records() == (0, ["timeout"])
