"""`GET /`: what this server is and what it serves, as a page for people and as JSON for everything else."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

import service
from service.api.admin import index_item
from service.api.oip_metadata import SERVER_NAME
from service.api.responses import JsonResponse
from service.api.schemas import ServerIndex

if TYPE_CHECKING:
    from service.repository.registry import Registry

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{name} {version}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 48rem; margin: 3rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8884; }}
</style>
<h1>{name} <small>{version}</small></h1>
<p>{readiness}</p>
<table>
<thead><tr><th>Model</th><th>Version</th><th>State</th><th>Reason</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
<p>{links}</p>
</html>
"""


def index_router(registry: Registry, links: dict[str, str]) -> APIRouter:
    """The route `/`; `links` maps a title to the path of each further page that this server offers."""
    router = APIRouter(tags=["Metadata"])

    @router.get("/", summary="What this server is and serves", response_model=ServerIndex)
    async def index(request: Request) -> Response:
        """JSON, or a page where `Accept` names `text/html`."""
        content = {
            "name": SERVER_NAME,
            "version": service.__version__,
            "is_ready": registry.is_ready,
            "models": [index_item(entry) for entry in registry.index()],
            "links": links,
        }
        headers = {"Vary": "Accept"}
        if "text/html" in request.headers.get("accept", ""):
            return HTMLResponse(render_page(content), headers=headers)
        return JsonResponse(content, headers=headers)

    return router


def render_page(content: dict[str, Any]) -> str:
    """The page for the content of the JSON answer; every text in it is escaped."""
    rows = [
        "".join(f"<td>{escape(model.get(key, ''))}</td>" for key in ("name", "version", "state", "reason"))
        for model in content["models"]
    ]
    links = (f'<a href="{escape(path)}">{escape(title)}</a>' for title, path in content["links"].items())
    return PAGE.format(
        name=escape(content["name"]),
        version=escape(content["version"]),
        readiness="Ready for inference." if content["is_ready"] else "Not ready.",
        rows="\n".join(f"<tr>{row}</tr>" for row in rows),
        links=" · ".join(links),
    )
