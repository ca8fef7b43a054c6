"""`/docs`: the OpenAPI document in Swagger UI, whose files come out of the package `fastapi-offline`.

Where that is not installed they come from a public host, and the page says so for as long as they have not come. The
package is found without being imported: what it has beside the files is an application class of its own.
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import FileResponse, HTMLResponse, Response

DOCS = "/docs"
SCRIPT = "swagger-ui-bundle.js"
STYLE = "swagger-ui.css"
FILES = {SCRIPT: "text/javascript", STYLE: "text/css"}

_PACKAGE = "fastapi_offline"
_PLACE = '<div id="swagger-ui">'
_NOTE = (
    "<p>This page loads Swagger UI from a public host, which your browser seems not to reach. "
    "Install <code>inferlane[dashboard]</code> where the server runs to have it served from here, or read "
    '<a href="openapi.json">the document itself</a>.</p>'
)


def swagger_folder() -> Path | None:
    """Where Swagger UI's files are installed; None where they are not."""
    found = find_spec(_PACKAGE)
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / "static"
    return folder if all((folder / name).is_file() for name in FILES) else None


def docs_router(title: str, folder: Path | None) -> APIRouter:
    """The page, and its files.

    Args:
        title: of the page.
        folder: Swagger UI's files; None leaves them to a public host.
    """
    router = APIRouter(include_in_schema=False)
    page = docs_page(title, is_local=folder is not None)

    @router.get(DOCS)
    async def docs() -> Response:
        return HTMLResponse(page)

    if folder is not None:
        for name in FILES:
            _add_file(router, folder, name)
    return router


def docs_page(title: str, *, is_local: bool) -> str:
    """The page as HTML.

    Args:
        title: of the page.
        is_local: whether its files are this server's.
    """
    render = partial(get_swagger_ui_html, openapi_url="openapi.json", title=title, swagger_favicon_url="data:,")
    if not is_local:
        return _html(render()).replace(_PLACE, _PLACE + _NOTE)
    return _html(render(swagger_js_url=f"docs/{SCRIPT}", swagger_css_url=f"docs/{STYLE}"))


def _html(rendered: HTMLResponse) -> str:
    return bytes(rendered.body).decode()


def _add_file(router: APIRouter, folder: Path, name: str) -> None:
    async def file() -> Response:
        return FileResponse(folder / name, media_type=FILES[name])

    router.add_api_route(f"{DOCS}/{name}", file, methods=["GET"])
