"""Composition root: settings → recorder → registry → routes. Here the sides of every seam meet."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp, Receive, Scope, Send

import service
from service.api.admin import repository_router, settings_router
from service.api.body import ByteBudget, OwnMemory
from service.api.diagnose import Diagnoser, diagnose_router
from service.api.diagnose_probes import probes_router
from service.api.docs_page import docs_router, swagger_folder
from service.api.errors import install_error_handlers
from service.api.gate import ApiKeyGate, ApiKeys
from service.api.index import index_router
from service.api.metrics import metrics_router
from service.api.model_sources import ModelSources
from service.api.oip_metadata import metadata_router
from service.api.openapi import install_openapi
from service.api.page.assets import load_assets
from service.api.page.front import PageFront
from service.api.probe_subjects import Machine, Probing
from service.api.shared_memory import shared_memory_router
from service.backends import machine_peaks, marked, open_backend, open_reference, pci_bus_id
from service.batching.batcher import OnDeviceLost
from service.cards import ModelCard
from service.errors import DeviceError, ServiceError
from service.inference_front import InferenceFront
from service.machine import usable_cores
from service.pipeline.decode import configure_opencv
from service.pipeline.task import compose_task, create_task
from service.probes.runner import ProbeRunner
from service.repository.layout import VersionFolder
from service.repository.loader import ModelLoader
from service.repository.registry import Registry
from service.repository.start_up import OnProgress
from service.runtime.protocol import Backend
from service.settings import Settings
from service.shared_regions.registered import RegionLimits, RegisteredRegions
from service.telemetry.assemble import Surroundings
from service.telemetry.gpu import GpuSampler
from service.telemetry.history import History, Senses
from service.telemetry.host_sampler import HostSampler
from service.telemetry.loop_lag import LoopLagSampler
from service.telemetry.recorder import NullRecorder, Recorder
from service.telemetry.snapshot_probes import Peaks

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


Lifespan: TypeAlias = Callable[[FastAPI], AbstractAsyncContextManager[None]]
"""What begins before an application serves, and ends after."""

BuildPlan = Callable[[ModelCard, VersionFolder, threading.Event], Path]
"""Builds the plan of a version that has none, and says where it is; blocking, for minutes.

Once the event is set nobody wants the plan any more. Raises ModelLoadFailed, BuilderMissing where something that
building needs is not installed, and any other ServiceError where the event ended it.
"""


def _log_loss(error: DeviceError) -> None:
    _log.critical("the GPU is lost to this process, which must be ended and started again: %s", error.message)


class Watch:
    """What looks at the server while it serves, beside the requests themselves. On the event loop.

    Args:
        settings: what is wanted.
        registry: the models.
        recorder: told of the event loop's lateness.
        gpus: the GPUs that models use.
        runner: runs probes, in which a diagnosis looks at no traffic.

    Attributes:
        history: what a diagnosis looks back on; None where it is off, or nothing is recorded that it could look at.
    """

    def __init__(
        self, settings: Settings, registry: Registry, recorder: Recorder, gpus: GpuSampler, runner: ProbeRunner
    ) -> None:
        self._lag = LoopLagSampler(recorder.record_loop_lag)
        self._gpus = gpus
        self._gpus_enabled = settings.metrics_enabled and settings.gpu_metrics_enabled
        self._host = HostSampler()
        self.history: History | None = None
        if settings.diagnosis_enabled and settings.metrics_enabled:
            senses = Senses(
                loop_lag=recorder.loop_lag,
                front_ends=recorder.front_ends.moments,
                host=self._host.counters,
                gpus=gpus.figures,
                experiments=runner.exclusive_runs,
            )
            self.history = History(ModelSources(registry, recorder), senses, length_s=settings.diagnosis_history_s)

    def start(self) -> None:
        """Begins to look."""
        self._lag.start()
        if self._gpus_enabled:
            self._gpus.start()
        if self.history is not None:
            self._host.start()
            self.history.start()

    def stop(self) -> None:
        """Ends it; idempotent."""
        if self.history is not None:
            self.history.stop()
        self._host.stop()
        self._lag.stop()
        self._gpus.stop()


@dataclass(frozen=True, slots=True)
class Composition:
    """The whole server, wired.

    Attributes:
        app: as an ASGI application.
        registry: its models.
        recorder: its figures.
        loader: opens models.
        regions: of clients' shared memory; None where that is off.
    """

    app: FastAPI
    registry: Registry
    recorder: Recorder
    loader: ModelLoader
    regions: RegisteredRegions | None


def create_app(
    settings: Settings,
    *,
    on_progress: OnProgress,
    on_started: OnStarted,
    build_plan: BuildPlan | None = None,
    on_device_lost: OnDeviceLost = _log_loss,
    budget: ByteBudget | None = None,
) -> FastAPI:
    """The whole server as an ASGI application; see `compose_server`."""
    return compose_server(
        settings,
        on_progress=on_progress,
        on_started=on_started,
        build_plan=build_plan,
        on_device_lost=on_device_lost,
        budget=budget,
    ).app


def compose_server(
    settings: Settings,
    *,
    on_progress: OnProgress,
    on_started: OnStarted,
    build_plan: BuildPlan | None = None,
    on_device_lost: OnDeviceLost = _log_loss,
    budget: ByteBudget | None = None,
) -> Composition:
    """The whole server: its application, and what a process that has front ends apart needs beside it.

    Its lifespan begins to load the models and returns: the port opens at once, and `/v2/health/ready` turns to 200
    when all are warm. At its end it finishes the accepted requests and frees the models.

    Args:
        settings: of the server.
        on_progress: told of every step of a load, on a worker thread.
        on_started: told when every model was tried.
        build_plan: builds plans that are missing; None serves what is there.
        on_device_lost: told once, on the event loop, that a device is lost. Every request has ended then; the process
            must end too, and nothing that uses the device may be freed before.
        budget: bytes that all requests together may hold, where connections that the caller makes hold some of them
            too; by default one of its own.
    """
    gpus = GpuSampler()
    recorder = _recorder(settings, gpus)
    threads = settings.resolved_cpu_threads
    loader = _loader(settings, recorder, gpus, threads, build_plan if settings.build_plans_enabled else None)
    registry = Registry(
        settings.repository,
        loader,
        recorder,
        drain_timeout_s=settings.drain_timeout_s,
        on_progress=on_progress,
        needs_all=settings.exit_on_error,
    )
    regions = _regions(settings)
    front = InferenceFront.create(
        settings,
        registry,
        recorder,
        budget=budget or ByteBudget(settings.max_in_flight_bytes),
        memory=OwnMemory(),
        regions=regions,
    )
    probing = _probing(settings, registry, recorder)
    watch = Watch(settings, registry, recorder, gpus, probing.runner)
    parts = _Parts(registry, recorder, regions, front, probing, watch)
    app = _application(settings, parts, _lifespan(settings, parts, on_started, on_device_lost))
    return Composition(app, registry, recorder, loader, regions)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What routes are made of, and what begins and ends with the server."""

    registry: Registry
    recorder: Recorder
    regions: RegisteredRegions | None
    front: InferenceFront
    probing: Probing
    watch: Watch


def _lifespan(settings: Settings, parts: _Parts, on_started: OnStarted, on_device_lost: OnDeviceLost) -> Lifespan:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        configure_opencv()
        parts.watch.start()
        starting = asyncio.create_task(_start(parts.registry, settings.models, on_started))
        watching = asyncio.create_task(_watch(parts.registry, on_device_lost))
        yield
        watching.cancel()
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting
        await parts.probing.stop()
        await parts.registry.stop()
        parts.watch.stop()
        parts.front.close()
        if parts.regions is not None:
            parts.regions.close()

    return lifespan


def _application(settings: Settings, parts: _Parts, lifespan: Lifespan) -> FastAPI:
    app = FrontedApp(
        title="Inferlane",
        version=service.__version__,
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    app.include_router(docs_router(app.title, swagger_folder()))
    _include_routes(app, settings, parts.registry, parts.recorder)
    app.include_router(shared_memory_router(parts.regions, body_timeout_s=settings.body_timeout_s))
    _include_diagnosis(app, settings, parts.watch, parts.probing)
    install_error_handlers(app, overload_status=settings.overload_status)
    app.put_in_front(parts.front.before)
    keys = ApiKeys.from_secrets(settings.api_key, settings.admin_api_key)
    if keys.is_enabled:
        app.put_in_front(lambda inner: ApiKeyGate(inner, keys, parts.recorder.record_unattributed))
    app.put_in_front(partial(PageFront, assets=load_assets(), has_report=parts.watch.history is not None))
    install_openapi(app, keys_enabled=keys.is_enabled)
    return app


async def _start(registry: Registry, names: tuple[str, ...] | None, on_started: OnStarted) -> None:
    failures: Mapping[str, ServiceError]
    try:
        failures = await registry.start(names)
    except ServiceError as error:
        failures = {"repository": error}
    if not registry.has_lost_device:  # or there is another thing to be told, and by `_watch`
        on_started(failures)


async def _watch(registry: Registry, on_device_lost: OnDeviceLost) -> None:
    on_device_lost(await registry.device_lost())


def _regions(settings: Settings) -> RegisteredRegions | None:
    if not settings.system_shared_memory_enabled:
        return None
    limits = RegionLimits(max_regions=settings.max_shared_regions, max_bytes=settings.max_shared_region_bytes)
    return RegisteredRegions(limits)


def _loader(
    settings: Settings, recorder: Recorder, gpus: GpuSampler, threads: int, build_plan: BuildPlan | None
) -> ModelLoader:
    def open_watched(card: ModelCard, version: VersionFolder, is_cut_off: threading.Event) -> Backend:
        build = build_plan and partial(build_plan, card, version, is_cut_off)
        opened = open_backend(card, version, cpu_threads=threads, build_plan=build, kernel_cache=settings.kernel_cache)
        return _watched(gpus, marked(opened) if settings.nvtx_enabled else opened)

    return ModelLoader(
        open_backend=open_watched,
        open_reference=partial(open_reference, cpu_threads=threads),
        make_task=partial(create_task, max_image_pixels=settings.max_image_pixels),
        compose_task=partial(compose_task, max_image_pixels=settings.max_image_pixels),
        recorder=recorder,
    )


def _watched(gpus: GpuSampler, backend: Backend) -> Backend:
    """The backend, whose GPU is sampled from now on if it uses one."""
    with suppress(DeviceError):  # then the metrics lack a GPU, and the model has worse news soon
        place = pci_bus_id(backend)
        if place is not None:
            gpus.watch(place)
    return backend


def _recorder(settings: Settings, gpus: GpuSampler) -> Recorder:
    if not settings.metrics_enabled:
        return NullRecorder()
    return Recorder(
        registry=CollectorRegistry(), triton_names_enabled=settings.triton_metrics_enabled, gpus=gpus.figures
    )


def _probing(settings: Settings, registry: Registry, recorder: Recorder) -> Probing:
    def peaks(backend: Backend) -> Peaks:
        threads, cache = settings.resolved_cpu_threads, settings.kernel_cache
        return machine_peaks(backend, cpu_threads=threads, kernel_cache=cache).peaks

    api_key = settings.api_key.get_secret_value() if settings.api_key is not None else None
    return Probing(registry, recorder, Machine(peaks=peaks, api_key=api_key))


def _include_diagnosis(app: FastAPI, settings: Settings, watch: Watch, probing: Probing) -> None:
    if watch.history is None:
        return
    threads, cores, runner = settings.resolved_cpu_threads * max(1, settings.frontends), usable_cores(), probing.runner

    def surroundings(model: str) -> Surroundings:
        layers, figures = runner.latest_layers(model), runner.latest(model)
        return Surroundings(pool_threads=threads, cpu_count=cores, layers=layers, probes=figures)

    app.include_router(diagnose_router(Diagnoser(watch.history, surroundings)))
    enabled, timeout_s = settings.probes_enabled, settings.body_timeout_s
    app.include_router(probes_router(runner, probing.subjects, is_enabled=enabled, body_timeout_s=timeout_s))


def _include_routes(app: FastAPI, settings: Settings, registry: Registry, recorder: Recorder) -> None:
    links = {"API documentation": "/docs", "Repository index (POST)": "/v2/repository/index"}
    offered = settings.system_shared_memory_enabled
    app.include_router(metadata_router(registry, recorder, system_shared_memory_enabled=offered))
    app.include_router(
        repository_router(
            registry,
            control_enabled=settings.repository_control_enabled,
            body_timeout_s=settings.body_timeout_s,
        )
    )
    logger = logging.getLogger("service")
    app.include_router(settings_router(registry, logger, body_timeout_s=settings.body_timeout_s))
    if settings.metrics_enabled and settings.diagnosis_enabled:
        links["Diagnosis"] = "/diagnose"
        if settings.probes_enabled:
            links["Probes (POST)"] = "/diagnose/probes"
    if settings.metrics_enabled:
        links["Prometheus metrics"] = "/metrics"
        app.include_router(metrics_router(recorder))
    app.include_router(index_router(registry, links))
