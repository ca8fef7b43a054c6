"""Administration by the protocol: the model repository, what is logged, and the settings of tracing.

Bodies are read by hand, because clients of the protocol announce no content type, and are bounded in size and time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from service.api.admin_settings import level_after, log_settings, trace_settings_after
from service.api.oip_metadata import ModelName
from service.api.responses import JsonResponse, read_json_object
from service.api.schemas import (
    ErrorBody,
    LogSettings,
    RepositoryIndexItem,
    RepositoryIndexRequest,
    RepositoryModelRequest,
    TraceSettings,
)
from service.client_text import name_text, value_text
from service.errors import Forbidden, InvalidInput

if TYPE_CHECKING:
    from service.repository.registry import Registry
    from service.repository.served import IndexEntry

Responses = dict[int | str, dict[str, Any]]

BODY_ERRORS: Responses = {
    400: {"model": ErrorBody, "description": "The body is malformed, or asks for what there is not."},
    408: {"model": ErrorBody, "description": "The body did not arrive in time."},
    413: {"model": ErrorBody, "description": "The body is larger than 64 KiB."},
}
MODEL_NOT_FOUND: Responses = {404: {"model": ErrorBody, "description": "No such model."}}
CONTROL_ERRORS: Responses = {
    **BODY_ERRORS,
    403: {"model": ErrorBody, "description": "Loading and unloading are switched off on this server."},
}
LOAD_ERRORS: Responses = {
    **CONTROL_ERRORS,
    **MODEL_NOT_FOUND,
    500: {"model": ErrorBody, "description": "The model in the repository cannot be loaded; the message says why."},
}
TRACE_ERRORS: Responses = {
    **BODY_ERRORS,
    501: {"model": ErrorBody, "description": "Tracing cannot be switched on."},
}

HARMLESS_PARAMETERS = frozenset({"unload_dependents"})


def repository_router(registry: Registry, *, control_enabled: bool, body_timeout_s: float) -> APIRouter:
    """Routes that list, load and unload models; the latter two answer 403 unless `control_enabled`."""
    router = APIRouter(tags=["Repository"])
    _add_index(router, registry, body_timeout_s)

    async def check(request: Request) -> None:
        if not control_enabled:
            raise Forbidden(
                "loading and unloading through the API are switched off; start the server with "
                "INFERLANE_REPOSITORY_CONTROL_ENABLED=true, or change the repository and restart"
            )
        body = await read_json_object(request, timeout_s=body_timeout_s)
        check_control_parameters(body.get("parameters", {}))

    _add_control(router, registry, check)
    return router


def _add_index(router: APIRouter, registry: Registry, body_timeout_s: float) -> None:
    @router.post(
        "/v2/repository/index",
        summary="Models and their states",
        response_model=list[RepositoryIndexItem],
        responses=BODY_ERRORS,
        openapi_extra=body_schema(RepositoryIndexRequest),
    )
    async def index(request: Request) -> Response:
        """Every model of the repository, or the ready ones alone; the body may be empty."""
        body = await read_json_object(request, timeout_s=body_timeout_s)
        ready_alone = body.get("ready", False)
        if type(ready_alone) is not bool:
            raise InvalidInput(f"'ready' must be true or false, got {value_text(ready_alone)}")
        entries = [index_item(entry) for entry in registry.index()]
        return JsonResponse([entry for entry in entries if not ready_alone or entry["state"] == "READY"])


def _add_control(router: APIRouter, registry: Registry, check: Callable[[Request], Awaitable[None]]) -> None:
    @router.post(
        "/v2/repository/models/{model}/load",
        summary="Load a model, or load it again from disk",
        response_class=Response,
        responses=LOAD_ERRORS,
        openapi_extra=body_schema(RepositoryModelRequest),
    )
    async def load(model: ModelName, request: Request) -> Response:
        """Answers 200 with an empty body when the model is ready."""
        await check(request)
        await registry.load(model)
        return Response()

    @router.post(
        "/v2/repository/models/{model}/unload",
        summary="Unload a model",
        response_class=Response,
        responses=CONTROL_ERRORS,
        openapi_extra=body_schema(RepositoryModelRequest),
    )
    async def unload(model: ModelName, request: Request) -> Response:
        """Answers 200 with an empty body when the model is gone; an unknown model is no error."""
        await check(request)
        await registry.unload(model)
        return Response()


def settings_router(registry: Registry, service_logger: logging.Logger, *, body_timeout_s: float) -> APIRouter:
    """Routes for what is logged, which act on `service_logger`, and for tracing, which is off and stays off."""
    router = APIRouter()
    _add_logging(router, service_logger, body_timeout_s)
    _add_tracing(router, registry, body_timeout_s)
    return router


def _add_logging(router: APIRouter, service_logger: logging.Logger, body_timeout_s: float) -> None:
    @router.get("/v2/logging", tags=["Logging"], summary="What is logged", response_model=LogSettings)
    async def get_logging() -> Response:
        return JsonResponse(log_settings(service_logger.getEffectiveLevel()))

    @router.post(
        "/v2/logging",
        tags=["Logging"],
        summary="Change what is logged",
        response_model=LogSettings,
        responses=BODY_ERRORS,
        openapi_extra=body_schema(LogSettings),
    )
    async def set_logging(request: Request) -> Response:
        """Sets the given fields and answers with all of them. File and format cannot be changed over the network."""
        body = await read_json_object(request, timeout_s=body_timeout_s)
        service_logger.setLevel(level_after(service_logger.getEffectiveLevel(), body))
        return JsonResponse(log_settings(service_logger.getEffectiveLevel()))


def _add_tracing(router: APIRouter, registry: Registry, body_timeout_s: float) -> None:
    @router.get("/v2/trace/setting", tags=["Tracing"], summary="Trace settings", response_model=TraceSettings)
    async def get_trace() -> Response:
        return JsonResponse(trace_settings_after({}))

    @router.get(
        "/v2/models/{model}/trace/setting",
        tags=["Tracing"],
        summary="Trace settings of a model",
        response_model=TraceSettings,
        responses=MODEL_NOT_FOUND,
    )
    async def get_model_trace(model: ModelName) -> Response:
        registry.versions(model)
        return JsonResponse(trace_settings_after({}))

    @router.post(
        "/v2/trace/setting",
        tags=["Tracing"],
        summary="Change trace settings",
        response_model=TraceSettings,
        responses=TRACE_ERRORS,
        openapi_extra=body_schema(TraceSettings),
    )
    async def set_trace(request: Request) -> Response:
        """Takes the present settings and null; anything else is 501, because this server writes no Triton traces."""
        return JsonResponse(trace_settings_after(await read_json_object(request, timeout_s=body_timeout_s)))

    @router.post(
        "/v2/models/{model}/trace/setting",
        tags=["Tracing"],
        summary="Change trace settings of a model",
        response_model=TraceSettings,
        responses={**TRACE_ERRORS, **MODEL_NOT_FOUND},
        openapi_extra=body_schema(TraceSettings),
    )
    async def set_model_trace(model: ModelName, request: Request) -> Response:
        """As for the whole server."""
        registry.versions(model)
        return JsonResponse(trace_settings_after(await read_json_object(request, timeout_s=body_timeout_s)))


def index_item(entry: IndexEntry) -> dict[str, str]:
    """One model as the repository index shows it; a version or reason that there is not is left out."""
    item = {"name": entry.name, "version": entry.version, "state": entry.state.value, "reason": entry.reason}
    return {key: value for key, value in item.items() if value}


def check_control_parameters(parameters: object) -> None:
    """Checks the parameters of a load or unload request.

    Raises:
        InvalidInput: no object, an override of configuration or files, or an unknown parameter.
    """
    if not isinstance(parameters, dict):
        raise InvalidInput(f"'parameters' must be a JSON object, got {value_text(parameters)}")
    for name, value in parameters.items():
        if name == "config" or name.startswith("file:"):
            raise InvalidInput(
                f"parameter {name_text(name)} would override what is on disk, which this server does not allow over "
                "the network; change the model's folder in the repository and load it without this parameter"
            )
        if name not in HARMLESS_PARAMETERS:
            raise InvalidInput(f"parameter {name_text(name)} is unknown, allowed are {sorted(HARMLESS_PARAMETERS)}")
        if not isinstance(value, bool):
            raise InvalidInput(f"parameter {name_text(name)} must be true or false, got {value_text(value)}")


def body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """An optional JSON request body for the OpenAPI document of a route that reads its body by hand."""
    return {"requestBody": {"required": False, "content": {"application/json": {"schema": _inline_schema(model)}}}}


def _inline_schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    schema.pop("required", None)
    return schema
