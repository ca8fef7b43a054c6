"""Composition root: settings → recorder → registry → routes. The only module that knows both sides of every seam."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp, Receive, Scope, Send

import service
from service.api.admin import repository_router, settings_router
from service.api.body import ByteBudget
from service.api.endpoint import Inference, InferenceEndpoint
from service.api.errors import ErrorBoundary, install_error_handlers
from service.api.gate import ApiKeyGate, ApiKeys
from service.api.index import index_router
from service.api.infer import Infer
from service.api.metrics import metrics_router
from service.api.oip_metadata import metadata_router
from service.api.openapi import install_openapi
from service.api.predict import Predict
from service.api.shared_memory import shared_memory_router
from service.api.watchdog import Watchdog
from service.cards import ModelCard
from service.errors import ModelLoadFailed, ServiceError
from service.machine import default_threads
from service.pipeline.decode import configure_opencv
from service.pipeline.task import create_task
from service.repository.layout import ONNX_FILE, PLAN_SUFFIX, VersionFolder
from service.repository.loader import ModelLoader, OnProgress
from service.repository.registry import Registry
from service.runtime.protocol import Backend
from service.settings import Settings
from service.telemetry.loop_lag import LoopLagSampler
from service.telemetry.recorder import NullRecorder, Recorder

MAX_PREPARING_PER_THREAD = 128

_log = logging.getLogger(__name__)

OnStarted = Callable[[Mapping[str, ServiceError]], None]
"""Told once, on the event loop, when every model has been tried: the errors of those that failed, by name."""


class FrontedApp(FastAPI):
    """FastAPI behind raw ASGI layers: a request that a layer answers itself never meets FastAPI's own machinery."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._front: ASGIApp = super().__call__

    def put_in_front(self, layer: Callable[[ASGIApp], ASGIApp]) -> None:
        """Lets `layer` see every request before all that is there already."""
        self._front = layer(self._front)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection, or the lifespan."""
        await self._front(scope, receive, send)


def create_app(settings: Settings, *, on_progress: OnProgress, on_started: OnStarted) -> FastAPI:
    """The whole server as an ASGI application.

    Its lifespan begins to load the models and returns: the port opens at once, and `/v2/health/ready` turns to 200
    when all are warm. At its end it finishes the accepted requests and frees the models.
    """
    recorder = _recorder(settings)
    threads = settings.cpu_threads or default_threads()
    loader = ModelLoader(
        open_backend=lambda card, version, is_cut_off: open_backend(card, version, cpu_threads=threads),
        make_task=lambda spec: create_task(spec, max_image_pixels=settings.max_image_pixels),
        recorder=recorder,
    )
    registry = Registry(
        settings.repository,
        loader,
        recorder,
        drain_timeout_s=settings.drain_timeout_s,
        on_progress=on_progress,
        needs_all=settings.exit_on_error,
    )
    media_pool = ThreadPoolExecutor(threads, thread_name_prefix="media")
    codec_pool = ThreadPoolExecutor(threads, thread_name_prefix="codec")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        configure_opencv()
        lag = LoopLagSampler(recorder.record_loop_lag)
        lag.start()
        starting = asyncio.create_task(_start(registry, settings.models, on_started))
        yield
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting
        await registry.stop()
        lag.stop()
        media_pool.shutdown()
        codec_pool.shutdown()

    app = FrontedApp(title="Inferlane", version=service.__version__, lifespan=lifespan, redirect_slashes=False)
    _include_routes(app, settings, registry, recorder)
    install_error_handlers(app, overload_status=settings.overload_status)
    predict = Predict(media_pool, threads * MAX_PREPARING_PER_THREAD, time.monotonic_ns)
    inference = _inference(settings, registry, recorder, predict, codec_pool)
    app.put_in_front(lambda inner: ErrorBoundary(InferenceEndpoint(inner, inference)))
    keys = ApiKeys.from_secrets(settings.api_key, settings.admin_api_key)
    if keys.is_enabled:
        app.put_in_front(lambda inner: ApiKeyGate(inner, keys, recorder.record_unattributed))
    install_openapi(app, keys_enabled=keys.is_enabled)
    return app


def open_backend(card: ModelCard, version: VersionFolder, *, cpu_threads: int) -> Backend:
    """The backend that a card asks for; its library is imported only here.

    `auto` means TensorRT where there is a plan and this machine can run TensorRT, else ONNX Runtime. A plan that
    TensorRT refuses is an error all the same: a model that silently ran on the CPU would be slow and nobody knew why.

    Raises:
        ModelLoadFailed: this machine has no such backend, or the model does not open.
        CardError: the card contradicts the model.
        DeviceError: the GPU cannot be used.
    """
    if card.backend != "onnxruntime" and version.plan is not None:
        try:
            tensorrt = _tensorrt()
        except ModelLoadFailed as error:
            if card.backend == "tensorrt" or version.onnx is None:
                raise ModelLoadFailed(f"model '{card.name}' has a plan for TensorRT. {error.message}") from error
            _log.warning("model '%s' runs on ONNX Runtime although it has a plan: %s", card.name, error.message)
        else:
            return tensorrt(card, version.version, version.plan)
    if version.onnx is None:
        raise ModelLoadFailed(
            f"model '{card.name}' has a plan and no {ONNX_FILE}, but its card asks for ONNX Runtime; "
            'put the ONNX model beside the plan, or set backend = "tensorrt"'
        )
    if card.backend == "tensorrt":
        raise ModelLoadFailed(
            f"model '{card.name}' asks for TensorRT, but version {version.version} has no *{PLAN_SUFFIX} file; "
            f'build a plan from its {ONNX_FILE} and put it beside that, or set backend = "auto"'
        )
    from service.runtime.onnx.backend import OnnxBackend  # noqa: PLC0415

    return OnnxBackend.open(card, version=version.version, model_path=version.onnx, cpu_threads=cpu_threads)


@functools.cache
def _tensorrt() -> Callable[[ModelCard, str, Path], Backend]:
    """What opens a plan on this machine; made once, because all models of a process share one view of CUDA.

    Raises:
        ModelLoadFailed: TensorRT, CUDA or a GPU is missing.
    """
    from service.runtime.cuda.device import Cuda  # noqa: PLC0415
    from service.runtime.trt.backend import TensorRTBackend  # noqa: PLC0415
    from service.runtime.trt.flavour import find_flavour  # noqa: PLC0415

    flavour, cuda = find_flavour(), Cuda.load()
    return lambda card, version, plan: TensorRTBackend.open(
        card, version=version, plan_path=plan, flavour=flavour, cuda=cuda
    )


async def _start(registry: Registry, names: tuple[str, ...] | None, on_started: OnStarted) -> None:
    try:
        on_started(await registry.start(names))
    except ServiceError as error:
        on_started({"repository": error})


def _recorder(settings: Settings) -> Recorder:
    if not settings.metrics_enabled:
        return NullRecorder()
    return Recorder(registry=CollectorRegistry(), triton_names_enabled=settings.triton_metrics_enabled)


def _inference(
    settings: Settings, registry: Registry, recorder: Recorder, predict: Predict, codec_pool: ThreadPoolExecutor
) -> Inference:
    clock = time.monotonic_ns
    return Inference(
        registry=registry,
        recorder=recorder,
        handlers={"infer": Infer(clock), "predict": predict},
        budget=ByteBudget(settings.max_in_flight_bytes),
        codec_pool=codec_pool,
        watchdog=Watchdog(body_timeout_s=settings.body_timeout_s, clock=clock),
        max_body_bytes=settings.max_body_bytes,
        overload_status=settings.overload_status,
        server_timing_enabled=settings.server_timing_enabled,
        clock=clock,
    )


def _include_routes(app: FastAPI, settings: Settings, registry: Registry, recorder: Recorder) -> None:
    links = {"API documentation": "/docs", "Repository index (POST)": "/v2/repository/index"}
    app.include_router(metadata_router(registry, recorder))
    app.include_router(
        repository_router(
            registry,
            control_enabled=settings.repository_control_enabled,
            body_timeout_s=settings.body_timeout_s,
        )
    )
    logger = logging.getLogger("service")
    app.include_router(settings_router(registry, logger, body_timeout_s=settings.body_timeout_s))
    app.include_router(shared_memory_router())
    if settings.metrics_enabled:
        links["Prometheus metrics"] = "/metrics"
        app.include_router(metrics_router(recorder))
    app.include_router(index_router(registry, links))
