"""The protocol's shared-memory routes: no region is ever registered, and registering one answers 501.

Clients ask for the status and unregister everything as a matter of course, so both succeed.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from service.api.responses import JsonResponse
from service.api.schemas import ErrorBody
from service.errors import Unsupported

KINDS = ("systemsharedmemory", "cudasharedmemory")


def shared_memory_router() -> APIRouter:
    """Routes for both kinds of shared memory, for all regions and for one."""
    router = APIRouter(tags=["Shared memory"])
    for kind in KINDS:
        _add_kind(router, kind)
    return router


def _add_kind(router: APIRouter, kind: str) -> None:
    async def status() -> Response:
        return JsonResponse([])

    async def region_status(region: str) -> Response:
        return JsonResponse([])

    async def unregister() -> Response:
        return Response()

    async def unregister_region(region: str) -> Response:
        return Response()

    async def register(region: str) -> Response:
        raise Unsupported(
            "this server registers no client memory; send tensors in the body with the binary tensor data extension"
        )

    root, one = f"/v2/{kind}", f"/v2/{kind}/region/{{region}}"
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
