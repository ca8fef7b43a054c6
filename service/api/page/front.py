"""Answers browsers with the page, in front of everything else, and passes on what programs ask.

Promises: what is answered here holds no figure of the server, so it needs no API key; the page asks for its figures
like any other client, with the key that its user gives. Nothing of the disk can be had but the page's own files.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable
from contextlib import suppress
from types import MappingProxyType
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.page.assets import CHARTS, Asset, Assets, compressed_charts
from service.api.page.negotiation import wants_page
from service.api.page.shell import DASHBOARD, DIAGNOSIS, View, render_shell

PREFIX = "/page/"
SHELL = "shell.html"

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "frame-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""No script, style or connection but the server's own, nothing inline, and no frame around the page."""

SAFETY = MappingProxyType(
    {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
)

FORMATS = MappingProxyType({"json": b"application/json", "text": b"text/plain"})
"""What `?format=` stands for: links cannot set `Accept`."""

FOREVER = "public, max-age=31536000, immutable"
ASK_AGAIN = "no-cache"


class PageFront:
    """Pure ASGI: answers the page and its files, passes on everything else. Belongs to the event loop.

    Args:
        inner: what answers everything else.
        assets: the page's files.
        has_report: whether the server diagnoses; without it `/diagnose` is not answered here.
    """

    def __init__(self, inner: ASGIApp, assets: Assets, *, has_report: bool) -> None:
        self._inner = inner
        self._assets = assets
        self._has_report = has_report
        self._views: dict[str, View] = {"/": DASHBOARD} | ({"/diagnose": DIAGNOSIS} if has_report else {})
        self._charts: Asset | None = None
        self._reading_charts = asyncio.Lock()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serves one connection; no coroutine of its own lies in the way of what is passed on."""
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            return self._inner(scope, receive, send)
        path: str = scope["path"]
        if path.startswith(PREFIX):
            return self._send_file(scope, receive, send)
        view = self._views.get(path)
        return self._inner(scope, receive, send) if view is None else self._send_view(view, scope, receive, send)

    async def _send_view(self, view: View, scope: Scope, receive: Receive, send: Send) -> None:
        query = scope["query_string"].decode("latin-1")
        wanted = FORMATS.get(parse_qs(query).get("format", [""])[-1])
        if wanted is not None:
            await self._inner(_with_accept(scope, wanted), receive, send)
            return
        if not wants_page(Headers(scope=scope).get("accept", "")):
            await self._inner(scope, receive, send)
            return
        page = render_shell(
            self._assets.files[SHELL].content.decode(),
            view,
            base=f"{PREFIX.strip('/')}/{self._assets.digest}",
            has_charts=self._assets.charts_path is not None,
            has_report=self._has_report,
            query=query,
        ).encode()
        etag = f'"{hashlib.sha256(page).hexdigest()[:16]}"'
        headers = {"Cache-Control": ASK_AGAIN, "Vary": "Accept"}
        await _respond(Asset(page, "text/html; charset=utf-8", etag), headers, scope, receive, send)

    async def _send_file(self, scope: Scope, receive: Receive, send: Send) -> None:
        digest, _, name = scope["path"][len(PREFIX) :].partition("/")
        asset = self._assets.files.get(name) if name != SHELL else None
        if name == CHARTS and self._assets.charts_path is not None:
            asset = await self._compressed_charts()
        if asset is None:
            await PlainTextResponse("the page has no such file\n", 404, headers=SAFETY)(scope, receive, send)
            return
        caching = FOREVER if digest == self._assets.digest else ASK_AGAIN
        await _respond(asset, {"Cache-Control": caching}, scope, receive, send)

    async def _compressed_charts(self) -> Asset | None:
        async with self._reading_charts:
            if self._charts is None and self._assets.charts_path is not None:
                with suppress(OSError):  # it was removed under the running server: the page does without
                    self._charts = await asyncio.to_thread(compressed_charts, self._assets.charts_path)
        return self._charts


async def _respond(asset: Asset, headers: dict[str, str], scope: Scope, receive: Receive, send: Send) -> None:
    headers = {**SAFETY, **headers, "ETag": asset.etag}
    if asset.encoding:
        headers["Content-Encoding"] = asset.encoding
    if asset.etag in Headers(scope=scope).get("if-none-match", ""):
        await Response(status_code=304, headers=headers)(scope, receive, send)
        return
    headers |= {"Content-Type": asset.content_type, "Content-Length": str(len(asset.content))}
    content = b"" if scope["method"] == "HEAD" else asset.content
    await Response(content, headers=headers)(scope, receive, send)


def _with_accept(scope: Scope, media_type: bytes) -> Scope:
    others = [(name, value) for name, value in scope["headers"] if name != b"accept"]
    return {**scope, "headers": [*others, (b"accept", media_type)]}
