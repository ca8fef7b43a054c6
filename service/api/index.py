"""`GET /`: what this server is and what it serves. People get a page in its stead, from `service.api.page`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response

import service
from service.api.admin import index_item
from service.api.oip_metadata import SERVER_NAME
from service.api.responses import JsonResponse
from service.api.schemas import ServerIndex

if TYPE_CHECKING:
    from service.repository.registry import Registry


def index_router(registry: Registry, links: dict[str, str]) -> APIRouter:
    """The route `/`; `links` maps a title to the path of each further page that this server offers."""
    router = APIRouter(tags=["Metadata"])

    @router.get("/", summary="What this server is and serves", response_model=ServerIndex)
    async def index() -> Response:
        """JSON; browsers, whose `Accept` names `text/html`, get the live dashboard."""
        content = {
            "name": SERVER_NAME,
            "version": service.__version__,
            "is_ready": registry.is_ready,
            "models": [index_item(entry) for entry in registry.index()],
            "links": links,
        }
        return JsonResponse(content, headers={"Vary": "Accept"})

    return router
