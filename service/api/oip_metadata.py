"""The protocol's questions about the server and its models: health, metadata, configuration, statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel
from starlette.responses import Response

import service
from service.api.oip_config import model_config
from service.api.responses import JsonResponse
from service.api.schemas import ErrorBody, ModelConfiguration, ModelMetadata, ModelStatisticsList, ServerMetadata
from service.client_text import name_text
from service.errors import ModelNotFound, NotReady
from service.repository.composed import ComposedModel
from service.tensors import TensorSpec

if TYPE_CHECKING:
    from service.repository.registry import Registry
    from service.telemetry.recorder import Recorder

SERVER_NAME = "inferlane"
EXTENSIONS = (
    "classification",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "logging",
)
"""What every server offers of the protocol's extensions. Not among them: tracing, sequences, CUDA's shared memory."""

SYSTEM_SHARED_MEMORY = "system_shared_memory"

ModelName = Annotated[str, Path(description="Name of the model; percent-encode what a URL cannot hold.")]
ModelVersion = Annotated[str, Path(description="Version of the model, a number.", examples=["1"])]

MODEL_ERRORS: dict[int | str, dict[str, Any]] = {
    404: {"model": ErrorBody, "description": "No such model or version."},
    503: {"model": ErrorBody, "description": "The model is not ready, or no longer."},
}

Answer = Callable[[str, str | None], Response]
"""Answers a question about a model, by name and version; None asks for the latest version."""


def metadata_router(registry: Registry, recorder: Recorder, *, system_shared_memory_enabled: bool = False) -> APIRouter:
    """Routes that tell what the server is, what it serves and how that has gone so far; none changes anything."""
    router = APIRouter()
    _add_health(router, registry)
    _add_server_metadata(router, (*EXTENSIONS, SYSTEM_SHARED_MEMORY) if system_shared_memory_enabled else EXTENSIONS)

    # Before the routes with a name in the path, of which this one would else be a model called "stats".
    @router.get(
        "/v2/models/stats",
        tags=["Statistics"],
        summary="Statistics of every served model",
        response_model=ModelStatisticsList,
    )
    async def all_statistics() -> Response:
        served = [(model.spec.name, model.spec.version) for model in registry.served()]
        return _statistics(recorder, served)

    _add_model_routes(router, registry, recorder)
    return router


def _add_health(router: APIRouter, registry: Registry) -> None:
    @router.get("/v2/health/live", tags=["Health"], summary="Whether the server runs", response_class=Response)
    async def live() -> Response:
        """200 with an empty body as long as the process answers."""
        return Response()

    @router.get(
        "/v2/health/ready",
        tags=["Health"],
        summary="Whether the server takes inference requests",
        response_class=Response,
        responses={503: {"model": ErrorBody, "description": "Models are loading, the server drains, or lost its GPU."}},
    )
    async def ready() -> Response:
        """200 with an empty body once every model asked for at start-up is ready, until shut-down begins."""
        if not registry.is_ready:
            raise NotReady(
                f"the server is not ready: {registry.unready_reason}; "
                "POST /v2/repository/index tells each model's state"
            )
        return Response()


def _add_server_metadata(router: APIRouter, extensions: tuple[str, ...]) -> None:
    @router.get("/v2", tags=["Metadata"], summary="Name, version and extensions", response_model=ServerMetadata)
    async def server_metadata() -> Response:
        return JsonResponse({"name": SERVER_NAME, "version": service.__version__, "extensions": extensions})


def _add_model_routes(router: APIRouter, registry: Registry, recorder: Recorder) -> None:
    def metadata(name: str, version: str | None) -> Response:
        spec = registry.get(name, version).spec
        body = {
            "name": spec.name,
            "versions": registry.versions(name),
            "platform": spec.platform,
            "inputs": [_tensor_metadata(tensor) for tensor in spec.inputs],
            "outputs": [_tensor_metadata(tensor) for tensor in spec.outputs],
        }
        return JsonResponse(body)

    def ready(name: str, version: str | None) -> Response:
        registry.get(name, version)
        return Response()

    def config(name: str, version: str | None) -> Response:
        model = registry.get(name, version)
        lane_count = 0 if isinstance(model, ComposedModel) else model.batcher.lane_count
        return JsonResponse(model_config(model.spec, lane_count=lane_count))

    def statistics(name: str, version: str | None) -> Response:
        if version is None:
            return _statistics(recorder, [(name, served) for served in registry.versions(name)])
        registry.get(name, version)
        return _statistics(recorder, [(name, version)])

    _add_by_version(router, "", metadata, ("Metadata", "Tensors and versions of a model"), ModelMetadata)
    _add_by_version(router, "/ready", ready, ("Health", "Whether a model takes inference requests"), None)
    _add_by_version(router, "/config", config, ("Metadata", "Configuration of a model"), ModelConfiguration)
    _add_by_version(router, "/stats", statistics, ("Statistics", "Statistics of a model"), ModelStatisticsList)


def _add_by_version(
    router: APIRouter, suffix: str, answer: Answer, labels: tuple[str, str], body: type[BaseModel] | None
) -> None:
    """Adds one question with and without a version in its path; `labels` are its tag and summary."""

    async def of_latest(model: ModelName) -> Response:
        return answer(model, None)

    async def of_version(model: ModelName, version: ModelVersion) -> Response:
        if not version.isdigit():
            raise ModelNotFound(f"version {name_text(version)} of model {name_text(model)}: a version is a number")
        return answer(model, version)

    tag, summary = labels
    for path, endpoint, which in (
        ("/v2/models/{model}", of_latest, ""),
        ("/v2/models/{model}/versions/{version}", of_version, ", one version"),
    ):
        router.add_api_route(
            path + suffix,
            endpoint,
            methods=["GET"],
            tags=[tag],
            summary=summary + which,
            response_model=body,
            response_class=Response if body is None else JsonResponse,
            responses=MODEL_ERRORS,
        )


def _tensor_metadata(tensor: TensorSpec) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.dtype.value, "shape": tensor.wire_shape}


def _statistics(recorder: Recorder, versions: list[tuple[str, str]]) -> Response:
    stats = [recorder.statistics(name, version).to_json(name, version) for name, version in versions]
    return JsonResponse({"model_stats": stats})
