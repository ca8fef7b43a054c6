"""`/diagnose/probes`: experiments that the server runs on itself when it is asked to.

They cost the traffic something, so the gate lets only the admin key begin or end them; their results are read with GET.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from service.api.admin import BODY_ERRORS, MODEL_NOT_FOUND, body_schema
from service.api.probe_schemas import ProbeRunDocument, ProbesRequest
from service.api.probe_subjects import Subjects
from service.api.responses import JsonResponse, read_json_object
from service.api.schemas import ErrorBody
from service.client_text import name_text, value_text
from service.errors import Forbidden, InvalidInput
from service.probes.catalogue import EVERY, kinds_named
from service.probes.document import run_to_json
from service.probes.pacing import MAX_PAUSE_S, Mode
from service.probes.runner import Order, ProbeRunner

LEAST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 10.0
FIELDS = frozenset({"model", "probes", "mode", "max_pause_s"})

RunId = Annotated[str, Path(description="`id` of the run.", max_length=64)]
UNKNOWN_RUN: dict[int | str, dict[str, Any]] = {
    404: {"model": ErrorBody, "description": "No such run is remembered."},
}
START_ERRORS: dict[int | str, dict[str, Any]] = {
    **BODY_ERRORS,
    **MODEL_NOT_FOUND,
    403: {"model": ErrorBody, "description": "Probes are switched off on this server."},
    409: {"model": ErrorBody, "description": "A run is under way, or has only just ended."},
}


def probes_router(runner: ProbeRunner, subjects: Subjects, *, is_enabled: bool, body_timeout_s: float) -> APIRouter:
    """Routes that begin, show and end runs; beginning one answers 403 unless `is_enabled`."""
    router = APIRouter(tags=["Diagnosis"])

    @router.post(
        "/diagnose/probes",
        status_code=202,
        summary="Begin experiments on a model",
        response_model=ProbeRunDocument,
        responses=START_ERRORS,
        openapi_extra=body_schema(ProbesRequest),
    )
    async def start(request: Request) -> Response:
        """Answers at once with the run's `id`; its results become part of later diagnoses of the model."""
        if not is_enabled:
            raise Forbidden(
                "probes are switched off; start the server with INFERLANE_PROBES_ENABLED=true, or go without"
            )
        body = await read_json_object(request, timeout_s=body_timeout_s)
        name, order = parse_order(body)
        known = runner.start(subjects.of(name, _own_address(request)), order)
        return JsonResponse(run_to_json(known), 202, {"Location": f"/diagnose/probes/{known.id}"})

    @router.get(
        "/diagnose/probes/{run}",
        summary="How far experiments have come, and what they found",
        response_model=ProbeRunDocument,
        responses=UNKNOWN_RUN,
    )
    async def show(run: RunId) -> Response:
        return JsonResponse(run_to_json(runner.get(run)), headers={"Cache-Control": "no-store"})

    @router.delete(
        "/diagnose/probes/{run}",
        summary="End experiments",
        response_model=ProbeRunDocument,
        responses=UNKNOWN_RUN,
    )
    async def cancel(run: RunId) -> Response:
        """The round in hand is finished; what is done already stays. A run that is over stays as it is."""
        return JsonResponse(run_to_json(runner.cancel(run)))

    return router


def parse_order(body: dict[str, Any]) -> tuple[str | None, Order]:
    """The model's name, and what is to be run.

    Raises:
        InvalidInput: a field is unknown, or has a value that is not allowed.
    """
    unknown = sorted(body.keys() - FIELDS)
    if unknown:
        raise InvalidInput(f"field {name_text(unknown[0])} is unknown, allowed are {', '.join(sorted(FIELDS))}")
    name = body.get("model")
    if name is not None and not isinstance(name, str):
        raise InvalidInput(f"'model' must be a model's name, got {value_text(name)}")
    wanted = body.get("probes", EVERY)
    names = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise InvalidInput(f"'probes' must be a list of names, or \"{EVERY}\", got {value_text(wanted)}")
    modes = {mode.value: mode for mode in Mode}
    mode = body.get("mode", Mode.SHADOW.value)
    if not isinstance(mode, str) or mode not in modes:
        got = name_text(mode) if isinstance(mode, str) else value_text(mode)
        raise InvalidInput(f"'mode' must be one of {', '.join(modes)}, got {got}")
    return name, Order(kinds=kinds_named(names), mode=modes[mode], max_pause_s=_pause_s(body.get("max_pause_s")))


def _own_address(request: Request) -> tuple[str, int] | None:
    """Where the request reached this server, as its own socket has it, never as the client says; None if not by TCP."""
    host, port = request.scope.get("server") or ("", None)
    return (host, port) if port is not None else None


def _pause_s(value: object) -> float:
    if value is None:
        return MAX_PAUSE_S
    if isinstance(value, bool) or not isinstance(value, int | float) or not LEAST_PAUSE_S <= value <= LONGEST_PAUSE_S:
        raise InvalidInput(
            f"'max_pause_s' must be a number of seconds from {LEAST_PAUSE_S:g} to {LONGEST_PAUSE_S:g}, got "
            f"{value_text(value)}"
        )
    return float(value)
