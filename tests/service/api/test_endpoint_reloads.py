"""Requests whose model is loaded again, unloaded or stopped meanwhile: each still gets its one answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.doubles.held_repository import until
from tests.doubles.inference_bench import InferenceBench, infer_body

PREDICT = "/v2/models/m/predict"


async def test_a_request_that_a_reload_overtakes_in_the_queue_runs_on_the_new_model(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path, drain_timeout_s=0.01) as bench:
        running = await bench.occupy()
        old = bench.backend
        waiting = bench.post(infer_body(fill=5.0))
        await until(lambda: bench.repository.batcher("m").queued_requests == 1)
        bench.repository.add("m", "2")
        await bench.registry.load("m")
        await waiting.done()
        assert waiting.is_complete
        assert json.loads(waiting.body)["model_version"] == "2"
        assert json.loads(waiting.body)["outputs"][0]["data"] == [10.0] * 4
        ((timings, _),) = bench.recorder.models["m", "2"].requests
        assert all(stage_ns >= 0 for stage_ns in timings)
        old.let()
        assert json.loads((await running.done()).body)["model_version"] == "1"
        assert bench.records() == (2, [])


async def test_a_request_that_a_reload_overtakes_while_it_is_prepared_runs_on_the_new_model(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        bench.task.may_prepare.clear()
        call = bench.post(b"1234", PREDICT)
        await until(lambda: "prepare " in bench.task.calls)
        await bench.registry.load("m")
        await until(lambda: bench.repository.backends[0].is_closed)
        bench.task.may_prepare.set()
        await call.done()
        assert call.is_complete
        assert json.loads(call.body) == {"sums": [20.0]}
        assert bench.task.calls.count("prepare ") == 2
        assert bench.records() == (1, [])


async def test_a_request_whose_model_is_unloaded_meanwhile_is_refused(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        call = bench.call().says(b"", more=True)
        await asyncio.sleep(0)
        await bench.registry.unload("m")
        await call.says(infer_body()).done()
        assert call.is_complete
        assert call.status == 503
        assert call.error == "model 'm' is not ready: unloaded"
        assert bench.records() == (0, ["not_ready"])


async def test_a_stopping_server_refuses(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        running = await bench.occupy()
        stopping = asyncio.create_task(bench.registry.stop())
        await until(lambda: not bench.registry.is_ready)
        await asyncio.sleep(0)
        refused = await bench.post().done()
        assert refused.is_complete
        assert refused.status == 503
        bench.backend.let()
        await asyncio.gather(running.done(), stopping)
        assert running.status == 200
        assert bench.records() == (1, ["shutting_down"])
