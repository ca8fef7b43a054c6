"""Every HTTP route but inference, on a registry that holds specifications instead of models."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import httpx
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.admin import repository_router, settings_router
from service.api.errors import install_error_handlers
from service.api.gate import ApiKeyGate, ApiKeys
from service.api.index import index_router
from service.api.metrics import metrics_router
from service.api.oip_metadata import metadata_router
from service.api.openapi import install_openapi
from service.api.shared_memory import shared_memory_router
from service.cards import BatchingCard, LanesCard, ModelCard
from service.errors import ModelNotFound, NotReady, Overloaded
from service.models import ModelSpec, build_spec
from service.repository.served import IndexEntry, ModelState
from service.shared_regions.registered import RegisteredRegions
from service.telemetry.recorder import Recorder
from service.tensors import DType, TensorSpec

SPECS = (
    build_spec(
        ModelCard(name="resnet", labels=("cat", "dog"), batching=BatchingCard(max_batch_size=8), lanes=LanesCard()),
        version="3",
        platform="onnxruntime_onnx",
        inputs=(TensorSpec("images", DType.FP32, ("n", 3, "height", "width")),),
        outputs=(TensorSpec("scores", DType.FP32, ("n", 1000)),),
    ),
    build_spec(
        ModelCard(name="two words", batching=BatchingCard(max_batch_size=0)),
        version="1",
        platform="onnxruntime_onnx",
        inputs=(TensorSpec("text", DType.BYTES, (1,)), TensorSpec("mask", DType.BOOL, ("length",))),
        outputs=(TensorSpec("answer", DType.BYTES, ("length",)),),
    ),
)


class SpecRegistry:
    """Serves `SPECS`, one lane each; `load` and `unload` only move a model between the states."""

    def __init__(self) -> None:
        self.specs: dict[str, ModelSpec] = {spec.name: spec for spec in SPECS}
        self.states: dict[str, ModelState] = {name: ModelState.READY for name in self.specs}
        self.unready_reason = ""
        self.fail_load_with: Exception | None = None

    @property
    def is_ready(self) -> bool:
        return not self.unready_reason

    def get(self, name: str, version: str | None = None) -> Any:
        spec = self.specs.get(name)
        if spec is None:
            raise ModelNotFound(f"Request for unknown model: '{name}' is not found")
        if version not in (None, spec.version):
            raise ModelNotFound(f"Request for unknown model: '{name}' version {version} is not found")
        if self.states[name] is not ModelState.READY:
            raise NotReady(f"model '{name}' is not ready", retry_after_s=1.5)
        return SimpleNamespace(spec=spec, batcher=SimpleNamespace(lane_count=2))

    def versions(self, name: str) -> tuple[str, ...]:
        return (self.get(name).spec.version,)

    def served(self) -> tuple[Any, ...]:
        return tuple(self.get(name) for name, state in self.states.items() if state is ModelState.READY)

    def index(self) -> tuple[IndexEntry, ...]:
        return tuple(
            IndexEntry(
                name, spec.version, self.states[name], "" if self.states[name] is ModelState.READY else "unloaded"
            )
            for name, spec in self.specs.items()
        )

    async def load(self, name: str) -> None:
        if self.fail_load_with is not None:
            raise self.fail_load_with
        if name not in self.specs:
            raise ModelNotFound(f"model '{name}' is not in the repository")
        self.states[name] = ModelState.READY

    async def unload(self, name: str) -> None:
        if name in self.specs:
            self.states[name] = ModelState.UNAVAILABLE


@dataclass(frozen=True, slots=True)
class Options:
    api_key: str | None = None
    admin_api_key: str | None = None
    control_enabled: bool = True
    overload_status: int = 503
    body_timeout_s: float = 5.0
    logger_name: str = "inferlane_test"
    regions: RegisteredRegions | None = None


class RawInfer:
    """Stands for the raw inference routes: they take POST and answer 200 to whoever reaches them."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Response(b"inferred")(scope, receive, send)


class ControlPlane:
    """The application and what it stands on."""

    def __init__(self, options: Options | None = None) -> None:
        options = options or Options()
        self.registry = SpecRegistry()
        self.recorder = Recorder(registry=CollectorRegistry(), triton_names_enabled=True)
        self.refusals: list[str] = []
        self.logger = logging.getLogger(options.logger_name)
        self.fastapi = self._fastapi(options)
        self.app = self._gated(options)

    async def request(self, method: str, path: str, *, key: str | None = None, **rest: Any) -> httpx.Response:
        """One request through gate, middleware and routes, in this event loop; `key` becomes the bearer token."""
        headers = {**rest.pop("headers", {}), **({} if key is None else {"Authorization": f"Bearer {key}"})}
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return await client.request(method, path, headers=headers, **rest)

    def _fastapi(self, options: Options) -> FastAPI:
        app = FastAPI(title="Inferlane", redirect_slashes=False)
        install_error_handlers(app, overload_status=options.overload_status)
        registry: Any = self.registry
        for router in (
            index_router(registry, {"API": "/docs", "Metrics": "/metrics"}),
            metadata_router(registry, self.recorder),
            repository_router(registry, control_enabled=options.control_enabled, body_timeout_s=options.body_timeout_s),
            settings_router(registry, self.logger, body_timeout_s=options.body_timeout_s),
            shared_memory_router(options.regions, body_timeout_s=options.body_timeout_s),
            metrics_router(self.recorder),
        ):
            app.include_router(router)
        for root in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
            for verb in ("infer", "predict"):
                app.add_route(f"{root}/{verb}", RawInfer(), methods=["POST"], include_in_schema=False)

        @app.get("/fault/{kind}")
        async def fault(kind: str, request: Request, number: int = 0) -> Response:
            if kind == "overload":
                raise Overloaded("the queue is full", retry_after_s=0.2)
            raise RuntimeError("secret of /etc/inferlane/keys")

        install_openapi(app, keys_enabled=options.api_key is not None or options.admin_api_key is not None)
        return app

    def _gated(self, options: Options) -> ASGIApp:
        keys = ApiKeys.from_secrets(_secret(options.api_key), _secret(options.admin_api_key))
        return ApiKeyGate(self.fastapi, keys, self.refusals.append)


def with_keys(**changes: Any) -> Options:
    return replace(Options(api_key="reader", admin_api_key="keeper"), **changes)


def _secret(key: str | None) -> SecretStr | None:
    return None if key is None else SecretStr(key)
