"""The same endpoint as in one process, over a mirror: tensors and media, plain and composed, real ONNX models."""

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from onnx import TensorProto
from prometheus_client import CollectorRegistry

from service.api.body import ByteBudget
from service.api.endpoint import Inference, InferenceEndpoint
from service.api.infer import Infer
from service.api.predict import MediaThreads, Predict
from service.api.watchdog import Watchdog
from service.backends import open_backend
from service.repository.composed import ComposedModel
from service.repository.loader import ModelLoader
from service.repository.registry import Registry
from service.telemetry.recorder import Recorder
from tests.doubles.asgi_call import AsgiCall
from tests.doubles.held_repository import HeldRepository, begun, until
from tests.doubles.inference_bench import DigitTask, infer_body
from tests.doubles.onnx_models import make_data_dependent, make_identity, make_scaled, make_string
from tests.doubles.pair_task import PairTask
from tests.doubles.transport_bench import TransportBench


class HotRoute:
    """The endpoint of a front end."""

    def __init__(self, front_end):
        self.pools = [ThreadPoolExecutor(1) for _ in range(3)]
        clock = time.monotonic_ns
        predict = Predict(MediaThreads(self.pools[0], self.pools[1], 8), clock)
        self.endpoint = InferenceEndpoint(
            None,
            Inference(
                registry=front_end.mirror,
                recorder=front_end.recorder,
                handlers={"infer": Infer(clock), "predict": predict},
                budget=ByteBudget(1 << 20),
                memory=front_end.room,
                codec_pool=self.pools[2],
                watchdog=Watchdog(body_timeout_s=60),
                max_body_bytes=1 << 20,
                overload_status=503,
                server_timing_enabled=True,
                clock=clock,
            ),
        )

    def post(self, path, body, **headers):
        return AsgiCall(self.endpoint, path, headers=headers).says(body)

    def close(self):
        for pool in self.pools:
            pool.shutdown()


@pytest.fixture
async def repository(tmp_path):
    async with HeldRepository(tmp_path) as held:
        held.add("m")
        held.add("det")
        held.add("rec")
        held.add_composed("pair", detector="det", recognizer="rec")
        held.tasks["pair"] = PairTask()
        await held.registry.start(None)
        yield held


@pytest.fixture
async def bench(repository):
    tasks = {"pair": PairTask(), "m": DigitTask()}
    async with TransportBench(repository.registry, tasks=tasks) as bench:
        yield bench


@pytest.fixture
async def front_end(bench):
    return await bench.front_end().serves("m", "pair")


@pytest.fixture
def route(front_end):
    route = HotRoute(front_end)
    yield route
    route.close()


async def test_tensors_are_inferred(route):
    call = await route.post("/v2/models/m/infer", infer_body(rows=2, fill=3.0)).done()
    (output,) = json.loads(call.body)["outputs"]
    assert (call.status, output["data"]) == (200, [6.0] * 8)
    assert "compute;dur=" in call.headers["server-timing"]


async def test_media_are_prepared_here_and_inferred_there(route):
    call = await route.post("/v2/models/m/predict", b"12345678").done()
    assert (call.status, json.loads(call.body)) == (200, {"sums": [20.0, 52.0]})


async def test_a_composed_model_asks_its_members(route, front_end):
    for _ in range(2):
        call = await route.post("/v2/models/pair/predict", b"12345678").done()
        assert (call.status, json.loads(call.body)) == (200, {"rows": [[4, 8, 12, 16], [20, 24, 28, 32]]})
    assert front_end.room.held_bytes == 0


async def test_a_member_that_is_replaced_serves_the_requests_that_need_it(repository, bench, route, front_end):
    before = front_end.mirror.get("pair")
    assert isinstance(before, ComposedModel)
    (recognizer,) = [each for each in repository.backends if each.spec.name == "rec"]
    repository.hold(recognizer)
    call = route.post("/v2/models/pair/predict", b"1234")
    await begun(recognizer)
    loading = asyncio.create_task(repository.registry.load("rec"))
    await until(lambda: front_end.mirror.get("pair") is not before)
    assert not loading.done()
    recognizer.let(4)
    await call.done()
    assert (call.status, json.loads(call.body)) == (200, {"rows": [[4, 8, 12, 16]]})
    await asyncio.wait_for(loading, 10)


async def test_a_client_that_leaves_takes_its_request_out_of_the_queue(repository, front_end, route):
    backend = next(each for each in repository.backends if each.spec.name == "m")
    repository.hold(backend)
    running = route.post("/v2/models/m/infer", infer_body())
    await begun(backend)
    leaving = route.post("/v2/models/m/infer", infer_body())
    batcher = repository.batcher("m")
    await until(lambda: batcher.queued_requests == 1)
    leaving.task.cancel()
    await until(lambda: batcher.queued_requests == 0)
    backend.let()
    await running.done()
    await until(lambda: not front_end.room.held_bytes)


async def test_an_engine_that_is_away_is_503(bench, front_end, route):
    await bench.vanish()
    await until(lambda: not front_end.link.is_up)
    call = await route.post("/v2/models/m/infer", infer_body()).done()
    assert call.status == 503
    assert "engine process" in call.error
    assert call.headers["retry-after"]


async def test_what_is_no_model_is_404(route):
    call = await route.post("/v2/models/other/infer", infer_body()).done()
    assert call.status == 404


async def test_real_models_of_texts_of_data_dependent_and_of_large_outputs(tmp_path):
    makers = {
        "text": make_string,
        "top": make_data_dependent,
        "wide": partial(make_scaled, factor=2.0, dims=("batch", 40_000)),
        "ints": partial(make_identity, element_type=TensorProto.INT8),
    }
    for name, make in makers.items():
        (tmp_path / name / "1").mkdir(parents=True)
        make(tmp_path / name / "1" / "model.onnx")
        (tmp_path / name / "model.toml").write_text("[batching]\nmax_batch_size = 2\n", encoding="utf-8")
    recorder = Recorder(registry=CollectorRegistry(), triton_names_enabled=False)
    loader = ModelLoader(
        open_backend=lambda card, version, is_cut_off: open_backend(card, version, cpu_threads=1),
        make_task=lambda spec: None,
        recorder=recorder,
    )
    registry = Registry(tmp_path, loader, recorder, drain_timeout_s=10, on_progress=lambda progress: None)
    assert not await registry.start(None)
    async with TransportBench(registry, recorder=recorder) as bench:
        front_end = await bench.front_end().serves(*makers)
        route = HotRoute(front_end)
        texts = ["", "caf\u00e9"]
        assert await _infer(route, "text", "x", "BYTES", [1, 2], texts) == texts
        assert await _infer(route, "top", "x", "FP32", [1, 4], [1, 5, 2, 0]) == [1.0] * 5
        wide = np.arange(40_000) % 1000
        assert await _infer(route, "wide", "x", "FP32", [1, 40_000], wide.tolist()) == (2.0 * wide).tolist()
        assert await _infer(route, "ints", "x", "INT8", [1, 16], list(range(-8, 8))) == list(range(-8, 8))
        route.close()
        assert front_end.room.held_bytes == 0
        front_end.link.send_records()
        await until(lambda: recorder.model_figures("text", "1").requests.rows == 1)
    await registry.stop()


async def _infer(route, model, name, datatype, shape, data):
    tensor = {"name": name, "shape": shape, "datatype": datatype, "data": data}
    call = await route.post(f"/v2/models/{model}/infer", json.dumps({"inputs": [tensor]}).encode()).done()
    assert call.status == 200, call.body
    (output,) = json.loads(call.body)["outputs"]
    return output["data"]
