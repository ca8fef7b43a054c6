"""One answer and one record for every request, whatever becomes of it: the ASGI endpoint, driven by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from service.cards import BatchingCard
from service.errors import ExecutionFailed
from service.requests import StageTimings
from tests.doubles.asgi_call import AsgiCall
from tests.doubles.held_repository import until
from tests.doubles.inference_bench import MAX_BODY_BYTES, PATH, InferenceBench, infer_body
from tests.doubles.stub_handler import StubHandler

PREDICT = "/v2/models/m/predict"


async def test_an_answer(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        call = await bench.post(infer_body(rows=2, fill=3.0)).done()
        assert call.is_complete
        assert call.status == 200
        assert json.loads(call.body)["outputs"][0]["data"] == [6.0] * 8
        assert call.headers["content-type"] == "application/json"
        (recorded,) = bench.recorder.models["m", "1"].requests
        assert recorded[1] == 2
        assert bench.records() == (1, [])


async def test_stages_are_contiguous_and_sum_to_the_whole(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        call = await bench.post().done()
        ((timings, _),) = bench.recorder.models["m", "1"].requests
        assert isinstance(timings, StageTimings)
        assert all(stage_ns >= 0 for stage_ns in timings)
        assert sum(timings) == bench.clock.told_ns[-1] - bench.clock.told_ns[0]
        sent = dict(entry.split(";dur=") for entry in call.headers["server-timing"].split(", "))
        assert list(sent) == [*StageTimings._fields[:-1], "total"]
        for name, stage_ns in zip(StageTimings._fields[:-1], timings, strict=False):
            assert float(sent[name]) == pytest.approx(stage_ns / 1e6, abs=0.0006)
        assert float(sent["total"]) == pytest.approx(sum(timings[:-1]) / 1e6, abs=0.0006)


async def test_server_timing_can_be_switched_off(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path, server_timing_enabled=False) as bench:
        call = await bench.post().done()
        assert call.status == 200
        assert "server-timing" not in call.headers
        assert bench.records() == (1, [])


async def to_an_unknown_model(bench: InferenceBench) -> AsgiCall:
    return bench.call("/v2/models/nope/infer")


async def to_an_unknown_version(bench: InferenceBench) -> AsgiCall:
    return bench.call("/v2/models/m/versions/7/infer")


async def to_an_unloaded_model(bench: InferenceBench) -> AsgiCall:
    await bench.registry.unload("m")
    return bench.call()


async def malformed(bench: InferenceBench) -> AsgiCall:
    return bench.post(b"{")


async def with_a_bad_length(bench: InferenceBench) -> AsgiCall:
    return bench.call(headers={"Content-Length": "x"})


async def too_large(bench: InferenceBench) -> AsgiCall:
    return bench.call(headers={"Content-Length": str(MAX_BODY_BYTES + 1)})


async def with_an_unknown_encoding(bench: InferenceBench) -> AsgiCall:
    return bench.post(headers={"Content-Encoding": "br"})


async def too_slow(bench: InferenceBench) -> AsgiCall:
    call = bench.call().says(b"{", more=True)
    await until(lambda: bench.budget.held_bytes == 1)
    bench.sweep_late()
    return call


async def over_the_budget(bench: InferenceBench) -> AsgiCall:
    bench.budget.take((1 << 20) - 10)
    call = bench.post()
    await call.done()
    bench.budget.give_back((1 << 20) - 10)
    return call


async def to_a_full_queue(bench: InferenceBench) -> AsgiCall:
    first = await bench.occupy()
    second = bench.post()
    await until(lambda: bench.repository.batcher("m").queued_requests == 1)
    refused = await bench.post().done()
    bench.backend.let(2)
    await asyncio.gather(first.done(), second.done())
    bench.recorder.models["m", "1"].requests.clear()
    return refused


async def past_its_deadline(bench: InferenceBench) -> AsgiCall:
    first = await bench.occupy()
    late = await bench.post(infer_body(timeout=20_000)).done()
    bench.backend.let()
    await first.done()
    bench.recorder.models["m", "1"].requests.clear()
    return late


async def that_breaks_the_model(bench: InferenceBench) -> AsgiCall:
    bench.backend.fails_on = lambda request: ExecutionFailed("the model broke")
    return bench.post()


async def for_a_task_that_is_not_there(bench: InferenceBench) -> AsgiCall:
    del bench.repository.tasks["m"]
    await bench.registry.load("m")
    return bench.post(b"1234", PREDICT)


async def with_media_that_are_none(bench: InferenceBench) -> AsgiCall:
    return bench.post(b"word", PREDICT)


@pytest.mark.parametrize(
    ("send", "status", "reason"),
    [
        (to_an_unknown_model, 404, "not_found"),
        (to_an_unknown_version, 404, "not_found"),
        (to_an_unloaded_model, 503, "not_ready"),
        (malformed, 400, "invalid"),
        (with_a_bad_length, 400, "invalid"),
        (too_large, 413, "too_large"),
        (with_an_unknown_encoding, 501, "unsupported"),
        (too_slow, 408, "slow_body"),
        (over_the_budget, 503, "overloaded"),
        (to_a_full_queue, 503, "overloaded"),
        (past_its_deadline, 504, "timeout"),
        (that_breaks_the_model, 500, "execution"),
        (for_a_task_that_is_not_there, 400, "invalid"),
        (with_media_that_are_none, 400, "invalid"),
    ],
)
async def test_every_failure_is_one_answer_and_one_record(
    tmp_path: Path, send: Callable[[InferenceBench], Awaitable[AsgiCall]], status: int, reason: str
) -> None:
    async with InferenceBench(tmp_path, batching=BatchingCard(max_batch_size=8, max_queued_requests=1)) as bench:
        call = await (await send(bench)).done()
        assert call.is_complete
        assert call.status == status
        assert call.error
        assert bench.records() == (0, [reason])
        is_attributed = reason in bench.recorder.models["m", "1"].failures
        assert is_attributed is (reason not in {"not_found", "not_ready"})
        bench.backend.fails_on = lambda request: None


async def test_overload_has_the_status_that_the_settings_give_it(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path, overload_status=429, max_in_flight_bytes=10) as bench:
        call = await bench.post().done()
        assert call.status == 429
        assert call.headers["retry-after"] == "1"


async def test_what_nobody_foresaw_is_recorded_once_and_left_to_the_error_boundary(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path, handlers={"infer": StubHandler(RuntimeError("oops"))}) as bench:
        call = bench.post()
        with pytest.raises(RuntimeError, match="oops"):
            await call.done()
        assert call.sent == []
        assert bench.records() == (0, ["internal"])


@pytest.mark.parametrize("parts", [0, 1])
async def test_a_client_that_leaves_before_its_body_is_whole(tmp_path: Path, parts: int) -> None:
    async with InferenceBench(tmp_path) as bench:
        call = bench.call()
        for _ in range(parts):
            call.says(b"{", more=True)
        call.leaves()
        await call.done()
        assert call.sent == []
        assert bench.records() == (0, ["cancelled"])


async def test_a_client_that_leaves_while_it_waits_is_not_run(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        running = await bench.occupy()
        waiting = bench.post()
        batcher = bench.repository.batcher("m")
        await until(lambda: batcher.queued_requests == 1)
        bench.sweep_late()
        waiting.leaves()
        await waiting.done()
        assert waiting.sent == []
        assert batcher.queued_requests == 0
        bench.backend.let()
        await running.done()
        assert bench.records() == (1, ["cancelled"])


async def test_a_client_that_leaves_while_it_is_run_counts_as_answered(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        running = await bench.occupy()
        bench.sweep_late()
        running.leaves()
        for _ in range(3):
            await asyncio.sleep(0)
        bench.backend.let()
        await running.done()
        assert running.answers == 1
        assert bench.records() == (1, [])


async def test_a_connection_that_breaks_while_it_is_answered_is_one_record(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        call = bench.post()
        call.send_fails = OSError("broken pipe")
        with pytest.raises(OSError, match="broken pipe"):
            await call.done()
        assert bench.records() == (0, ["internal"])


async def test_a_request_that_the_stopping_server_ends_is_told_so(tmp_path: Path) -> None:
    """Servers cancel what outlives the drain timeout."""
    async with InferenceBench(tmp_path) as bench:
        running = await bench.occupy()
        waiting = bench.post()
        await until(lambda: bench.repository.batcher("m").queued_requests == 1)
        waiting.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting.done()
        assert waiting.is_complete
        assert waiting.status == 503
        assert "the server stopped" in waiting.error
        assert bench.repository.batcher("m").queued_requests == 0
        bench.backend.let()
        await running.done()
        assert bench.records() == (1, ["shutting_down"])


async def test_a_request_that_is_ended_while_it_is_answered_gets_no_second_answer(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        call = bench.post()
        call.may_send.clear()
        await until(lambda: len(bench.recorder.models["m", "1"].batches) == 1)
        for _ in range(5):
            await asyncio.sleep(0)
        call.task.cancel()
        call.may_send.set()
        with pytest.raises(asyncio.CancelledError):
            await call.done()
        assert call.answers == 0
        assert bench.records() == (0, ["shutting_down"])


async def test_a_slow_reader_of_an_error_is_not_cut_off_as_a_slow_sender(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        call = bench.post(b"x" * (MAX_BODY_BYTES + 1))
        call.may_send.clear()
        await until(lambda: bench.recorder.failures == ["too_large"])
        bench.sweep_late()
        call.may_send.set()
        await call.done()
        assert call.status == 413
        assert bench.records() == (0, ["too_large"])


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", [PATH, "/v2/models/nope/versions/1/predict"])
async def test_other_methods_are_told_which_is_right(tmp_path: Path, method: str, path: str) -> None:
    async with InferenceBench(tmp_path) as bench:
        call = await bench.call(path, method=method).done()
        assert call.answers == 1
        assert call.status == 405
        assert call.headers["allow"] == "POST"
        assert f"method not allowed: '{method}' on /" in call.error
        assert bench.records() == (0, ["invalid"])


@pytest.mark.parametrize("path", ["/", "/v2/models/m", "/v2/models/m/infer/", "/v2/models/m/versions/x/infer"])
async def test_every_other_path_is_passed_on(tmp_path: Path, path: str) -> None:
    async with InferenceBench(tmp_path) as bench:
        call = await bench.call(path).done()
        assert [scope["path"] for scope in bench.passed_on] == [path]
        assert call.sent == []


async def test_what_is_no_http_is_passed_on(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        call = AsgiCall(bench.endpoint, PATH)
        await call.says(infer_body()).done()
        await bench.endpoint({"type": "lifespan"}, call._receive, call._send)
        assert bench.passed_on == [{"type": "lifespan"}]


async def test_many_at_once_each_get_their_own(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        good = [bench.post(infer_body(fill=float(index))) for index in range(40)]
        bad = [bench.post(b"{") for _ in range(20)]
        gone = [bench.call() for _ in range(10)]
        for call in gone:
            call.leaves()
        await asyncio.gather(*(call.done() for call in (*good, *bad, *gone)))
        for index, call in enumerate(good):
            assert json.loads(call.body)["outputs"][0]["data"] == [2.0 * index] * 4
        assert all(call.status == 400 for call in bad)
        answers, reasons = bench.records()
        assert answers == 40
        assert sorted(reasons) == ["cancelled"] * 10 + ["invalid"] * 20
