"""The protocol's shared-memory routes: regions of system memory where they are enabled, and none of CUDA's.

Clients ask for the status and unregister everything as a matter of course, so both succeed where there are no regions.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from service.api.admin import BODY_ERRORS, body_schema
from service.api.responses import JsonResponse, read_json_object
from service.api.schemas import ErrorBody, RegisterRegionRequest
from service.client_text import value_text
from service.errors import InvalidInput, Unsupported
from service.shared_regions.region import RegionSpec, SharedRegion
from service.shared_regions.registered import RegisteredRegions

SYSTEM = "/v2/systemsharedmemory"
CUDA = "/v2/cudasharedmemory"
TAG = "Shared memory"

_INSTEAD = "send tensors in the body with the binary tensor data extension"


def shared_memory_router(regions: RegisteredRegions | None, *, body_timeout_s: float) -> APIRouter:
    """Routes for both kinds of shared memory, for all regions and for one.

    Args:
        regions: of system shared memory; None where that is switched off.
        body_timeout_s: how long a body may take to arrive.
    """
    router = APIRouter(tags=[TAG])
    if regions is None:
        text = (
            f"this server registers no client memory; {_INSTEAD}, or start it with "
            "INFERLANE_SYSTEM_SHARED_MEMORY_ENABLED=true"
        )
        _add_refused(router, SYSTEM, text)
    else:
        _add_status(router, regions)
        _add_registration(router, regions, body_timeout_s)
    _add_refused(router, CUDA, f"this server registers no memory of CUDA; {_INSTEAD}, or use system shared memory")
    return router


def _add_status(router: APIRouter, regions: RegisteredRegions) -> None:
    @router.get(f"{SYSTEM}/status", summary="Registered regions")
    async def status() -> Response:
        return JsonResponse([_region_json(region) for region in regions.all])

    @router.get(
        f"{SYSTEM}/region/{{region}}/status",
        summary="One registered region",
        responses={400: {"model": ErrorBody, "description": "No such region."}},
    )
    async def region_status(region: str) -> Response:
        return JsonResponse([_region_json(regions.get(region))])


def _add_registration(router: APIRouter, regions: RegisteredRegions, body_timeout_s: float) -> None:
    @router.post(
        f"{SYSTEM}/region/{{region}}/register",
        summary="Register a region of a POSIX shared memory object",
        responses=BODY_ERRORS,
        openapi_extra=body_schema(RegisterRegionRequest),
    )
    async def register(region: str, request: Request) -> Response:
        """Answers 200 with an empty body when requests may name the region."""
        body = await read_json_object(request, timeout_s=body_timeout_s)
        await regions.register(_region_spec(region, body))
        return Response()

    @router.post(f"{SYSTEM}/region/{{region}}/unregister", summary="Unregister a region, if there is one")
    async def unregister_region(region: str) -> Response:
        await regions.unregister(region)
        return Response()

    @router.post(f"{SYSTEM}/unregister", summary="Unregister all regions")
    async def unregister() -> Response:
        await regions.unregister_all()
        return Response()


def _add_refused(router: APIRouter, root: str, text: str) -> None:
    """Routes of a kind of memory of which no region is ever registered."""

    async def status() -> Response:
        return JsonResponse([])

    async def region_status(region: str) -> Response:
        return JsonResponse([])

    async def unregister() -> Response:
        return Response()

    async def unregister_region(region: str) -> Response:
        return Response()

    async def register(region: str) -> Response:
        raise Unsupported(text)

    one = f"{root}/region/{{region}}"
    router.add_api_route(f"{root}/status", status, methods=["GET"], summary="Registered regions: none")
    router.add_api_route(f"{one}/status", region_status, methods=["GET"], summary="A region's registrations: none")
    router.add_api_route(f"{root}/unregister", unregister, methods=["POST"], summary="Unregister all: nothing to do")
    router.add_api_route(
        f"{one}/unregister", unregister_region, methods=["POST"], summary="Unregister a region: nothing to do"
    )
    router.add_api_route(
        f"{one}/register",
        register,
        methods=["POST"],
        summary="Register a region: not offered",
        status_code=501,
        responses={501: {"model": ErrorBody, "description": "Not offered."}},
    )


def _region_json(region: SharedRegion) -> dict[str, Any]:
    spec = region.spec
    return {"name": spec.name, "key": spec.key, "offset": spec.offset, "byte_size": spec.nbytes}


def _region_spec(name: str, body: dict[str, Any]) -> RegionSpec:
    """What a client asks to register.

    Raises:
        InvalidInput: something is missing or out of range.
    """
    key = body.get("key")
    if type(key) is not str:
        raise InvalidInput(f"'key' must be the name of a POSIX shared memory object, got {value_text(key)}")
    offset, nbytes = body.get("offset", 0), body.get("byte_size")
    if type(offset) is not int or offset < 0:
        raise InvalidInput(f"'offset' must be a non-negative integer of bytes, got {value_text(offset)}")
    if type(nbytes) is not int or nbytes < 1:
        raise InvalidInput(f"'byte_size' must be a positive integer of bytes, got {value_text(nbytes)}")
    return RegionSpec(name, key, offset, nbytes)
