"""The inference endpoint on a held repository: every seam real but the device, the socket and the time of a sweep."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from starlette.types import Receive, Scope, Send

from service.api.body import BodyMemory, ByteBudget, OwnMemory
from service.api.endpoint import Handler, Inference, InferenceEndpoint
from service.api.infer import Infer
from service.api.predict import MediaThreads, Predict
from service.api.shared_tensors import SharedTensors
from service.api.watchdog import Watchdog
from service.cards import BatchingCard
from service.errors import InvalidInput
from service.pipeline.steps import Call, Step, Steps
from service.shared_regions.registered import Regions
from service.tensors import HostArray
from tests.doubles.asgi_call import AsgiCall
from tests.doubles.held_backend import HeldBackend
from tests.doubles.held_repository import WAIT_S, HeldRepository, begun

PATH = "/v2/models/m/infer"
FAR_FUTURE_NS = 1 << 62
MAX_BODY_BYTES = 4096


class KeepingClock:
    """The real clock, which keeps what it told."""

    def __init__(self) -> None:
        self.told_ns: list[int] = []

    def __call__(self) -> int:
        self.told_ns.append(time.monotonic_ns())
        return self.told_ns[-1]


class DigitTask:
    """Media are rows of four digits, such as `1234`; the answer is the outputs' sums, times the option `times`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_rest_quick = True
        self.threads: set[int] = set()
        self.may_prepare = threading.Event()
        self.may_prepare.set()

    def check_options(self, options: Mapping[str, str]) -> None:
        self.calls.append("check_options")
        if set(options) - {"times"}:
            raise InvalidInput("the only option is 'times'")

    def steps(self, body: bytes, content_type: str, options: Mapping[str, str]) -> Steps:
        host_x = self.prepare(body, content_type)
        (outputs,) = yield Step((Call((host_x,), len(host_x)),), is_rest_quick=self.is_rest_quick)
        return self.render(outputs, options)

    def prepare(self, body: bytes, content_type: str) -> np.ndarray:
        self.calls.append(f"prepare {content_type}")
        self.threads.add(threading.get_ident())
        assert self.may_prepare.wait(WAIT_S)
        if not body.isdigit():
            raise InvalidInput("digits, please")
        return np.frombuffer(body, np.uint8).reshape(-1, 4).astype(np.float32) - np.float32(ord("0"))

    def render(self, outputs: tuple[HostArray, ...], options: Mapping[str, str]) -> object:
        self.calls.append("render")
        self.threads.add(threading.get_ident())
        return {"sums": [float(row.sum()) * int(options.get("times", "1")) for row in outputs[0]]}


class InferenceBench:
    """Model `m`, loaded, with a `DigitTask`; after every test each request must have left nothing behind."""

    def __init__(
        self,
        root: Path,
        *,
        batching: BatchingCard | None = None,
        drain_timeout_s: float = WAIT_S,
        max_in_flight_bytes: int = 1 << 20,
        max_preparing: int = 2,
        handlers: Mapping[str, Handler] | None = None,
        regions: Regions | None = None,
        memory: BodyMemory | None = None,
        **options: Any,
    ) -> None:
        self.repository = HeldRepository(root, drain_timeout_s=drain_timeout_s, batching=batching)
        self.registry = self.repository.registry
        self.recorder = self.repository.recorder
        self.task = self.repository.tasks["m"] = DigitTask()
        self.clock = KeepingClock()
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="pipeline")
        self.finishing = ThreadPoolExecutor(1, thread_name_prefix="finishing")
        self.budget = ByteBudget(max_in_flight_bytes)
        self.watchdog = Watchdog(body_timeout_s=60)
        memory, shared = memory or OwnMemory(), None
        if regions is not None:
            shared = SharedTensors(regions, budget=self.budget, memory=memory, limit_bytes=MAX_BODY_BYTES)
        self.passed_on: list[Scope] = []
        default_handlers = {
            "infer": Infer(self.clock, shared),
            "predict": Predict(MediaThreads(self.pool, self.finishing, max_preparing), self.clock),
        }
        self.codec_pool = ThreadPoolExecutor(1)
        inference = Inference(
            registry=self.registry,
            recorder=self.recorder,
            handlers=handlers or default_handlers,
            budget=self.budget,
            memory=memory,
            codec_pool=self.codec_pool,
            watchdog=self.watchdog,
            max_body_bytes=MAX_BODY_BYTES,
            clock=self.clock,
            **{"overload_status": 503, "server_timing_enabled": True, **options},
        )
        self.endpoint = InferenceEndpoint(self._rest, inference)

    async def __aenter__(self) -> InferenceBench:
        self.repository.add("m")
        await self.registry.start(None)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.may_prepare.set()
        await self.repository.__aexit__()
        self.pool.shutdown()
        self.finishing.shutdown()
        self.codec_pool.shutdown()
        assert self.budget.held_bytes == 0
        assert len(self.watchdog) == 0

    async def _rest(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.passed_on.append(scope)

    @property
    def backend(self) -> HeldBackend:
        """The backend that was opened last."""
        return self.repository.backends[-1]

    def call(self, path: str = PATH, **options: Any) -> AsgiCall:
        return AsgiCall(self.endpoint, path, **options)

    def post(self, body: bytes | None = None, path: str = PATH, **options: Any) -> AsgiCall:
        """A request whose body is whole; one of the model's own unless told otherwise."""
        return self.call(path, **options).says(infer_body() if body is None else body)

    async def occupy(self) -> AsgiCall:
        """Holds the lane and gives it a request, so that what follows waits in the queue."""
        self.repository.hold(self.backend)
        running = self.post()
        await begun(self.backend)
        return running

    def records(self) -> tuple[int, list[str]]:
        """Recorded answers, and the reasons of recorded failures."""
        return self.recorder.requests, self.recorder.failures

    def sweep_late(self) -> None:
        self.watchdog.sweep(FAR_FUTURE_NS)


def infer_body(rows: int = 1, fill: float = 1.0, **parameters: Any) -> bytes:
    tensor = {"name": "x", "shape": [rows, 4], "datatype": "FP32", "data": [fill] * 4 * rows}
    return json.dumps({"inputs": [tensor], "parameters": parameters}).encode()
