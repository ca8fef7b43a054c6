"""Tasks of several steps, calls and models: which thread runs what, and what is recorded where."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.cards import BatchingCard
from service.errors import ExecutionFailed
from tests.doubles.held_repository import begun, until
from tests.doubles.inference_bench import InferenceBench
from tests.doubles.pair_task import PairTask

PATH = "/v2/models/pair/predict"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[InferenceBench]:
    """The bench with the models `det` and `rec` beside its own, and `pair` of both."""
    async with InferenceBench(tmp_path) as bench:
        await add_pair(bench)
        yield bench


async def add_pair(bench: InferenceBench) -> None:
    bench.repository.add("det")
    bench.repository.add("rec")
    bench.repository.add_composed("pair", detector="det", recognizer="rec")
    bench.repository.tasks["pair"] = PairTask()
    await bench.registry.load("pair")


async def test_every_row_goes_through_both_members(bench: InferenceBench) -> None:
    call = await bench.post(b"12345678", PATH).done()
    assert (call.status, json.loads(call.body)) == (200, {"rows": [[4, 8, 12, 16], [20, 24, 28, 32]]})
    models = bench.recorder.models
    assert [rows for _, rows in models["pair", "1"].requests] == [2]
    assert [rows for _, rows in models["det", "1"].requests] == [2]
    assert [rows for _, rows in models["rec", "1"].requests] == [1, 1]


async def test_its_stages_are_those_of_all_steps(bench: InferenceBench) -> None:
    await bench.post(b"1234", PATH).done()
    models = bench.recorder.models
    ((whole, _),) = models["pair", "1"].requests
    parts = [timings for name in ("det", "rec") for timings, _ in models[name, "1"].requests]
    for stage in ("queue", "dispatch", "h2d", "compute", "d2h", "complete"):
        assert getattr(whole, stage) == sum(getattr(timings, stage) for timings in parts)
    assert all(timings.read == timings.parse == timings.prepare == timings.render == 0 for timings in parts)


async def test_what_has_begun_runs_on_threads_of_its_own(bench: InferenceBench) -> None:
    await bench.post(b"1234", PATH).done()
    task = bench.repository.tasks["pair"]
    assert isinstance(task, PairTask)
    assert task.threads == ["pipeline", "finishing", "finishing"]


async def test_deadline_and_priority_are_those_of_the_composed_model_and_of_the_member(bench: InferenceBench) -> None:
    await bench.post(b"1234", PATH).done()
    card = bench.registry.get("pair").spec.card.batching
    for name in ("det", "rec"):
        (backend,) = [backend for backend in bench.repository.backends if backend.spec.name == name]
        request = backend.batches[-1].requests[0]
        assert request.deadline_ns == request.stamps.read + card.default_timeout_ns
        assert request.priority == backend.spec.card.batching.default_priority


async def test_a_refusal_of_a_member_is_recorded_with_both(bench: InferenceBench) -> None:
    (backend,) = [backend for backend in bench.repository.backends if backend.spec.name == "rec"]
    bench.repository.hold(backend)
    running = bench.post(None, "/v2/models/rec/infer")
    await begun(backend)
    call = bench.post(b"1234", PATH)
    await until(lambda: bench.repository.batcher("rec").queued_requests == 1)
    call.leaves()
    bench.sweep_late()
    await call.done()
    backend.let(10)
    await running.done()
    assert bench.recorder.models["rec", "1"].failures == ["cancelled"]
    assert bench.recorder.models["pair", "1"].failures == ["cancelled"]


async def test_one_of_several_calls_that_fails_is_one_answer_and_one_failure_of_each(bench: InferenceBench) -> None:
    (backend,) = [backend for backend in bench.repository.backends if backend.spec.name == "rec"]
    backend.fails_on = lambda request: ExecutionFailed("no") if request.inputs[0][0, 0] == 10 else None
    call = await bench.post(b"123456789012", PATH).done()
    assert call.status == 500
    models = bench.recorder.models
    assert models["rec", "1"].failures == models["pair", "1"].failures == ["execution"]
    assert [rows for _, rows in models["det", "1"].requests] == [3]
    assert models["pair", "1"].requests == []
    await until(lambda: bench.repository.batcher("rec").dispatched_requests == 0)
    assert bench.repository.batcher("rec").queued_requests == 0
    assert (await bench.post(b"1111", PATH).done()).status == 200


async def test_a_step_of_more_calls_than_a_queue_takes_is_run_in_portions(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path, batching=BatchingCard(max_queued_requests=2)) as bench:
        await add_pair(bench)
        call = await bench.post(b"12345678" * 4, PATH).done()
        assert call.status == 200, call.error
        assert json.loads(call.body) == {"rows": [[4, 8, 12, 16], [20, 24, 28, 32]] * 4}
        models = bench.recorder.models
        assert [rows for _, rows in models["rec", "1"].requests] == [1] * 8
        ((whole, _),) = models["pair", "1"].requests
        assert whole.compute >= sum(timings.compute for timings, _ in models["det", "1"].requests)
        assert min(whole) >= 0


async def test_a_member_that_is_replaced_meanwhile_costs_nobody_an_answer(bench: InferenceBench) -> None:
    (backend,) = [backend for backend in bench.repository.backends if backend.spec.name == "det"]
    bench.repository.hold(backend)
    call = bench.post(b"1234", PATH)
    await begun(backend)
    await bench.registry.load("rec")
    backend.let(10)
    assert (await call.done()).status == 200


async def test_tensors_are_sent_to_the_members(bench: InferenceBench) -> None:
    call = await bench.post(None, "/v2/models/pair/infer").done()
    assert call.status == 400
    assert "model 'pair' is composed of det, rec and has no tensors of its own" in call.error


async def test_an_answer_that_is_not_quick_is_made_off_the_event_loop(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        bench.task.is_rest_quick = False
        answers = [bench.post(b"1234", "/v2/models/m/predict") for _ in range(2)]
        await asyncio.gather(*(call.done() for call in answers))
        assert [call.status for call in answers] == [200] * 2
        assert len(bench.task.threads) == 2
        assert threading.get_ident() not in bench.task.threads
