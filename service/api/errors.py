"""The one place where an error becomes an HTTP answer: always `{"error": "..."}`, never a path or a traceback.

`error_response` serves raw ASGI code and the handlers alike. What nobody foresaw is answered by `ErrorBoundary` with a
neutral text and an identifier under which the log holds the traceback.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from http import HTTPStatus

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.client_text import name_text
from service.errors import InvalidInput, Overloaded, ServiceError, ShuttingDown, Unauthorized

logger = logging.getLogger(__name__)

MAX_VALIDATION_ERRORS = 5
MAX_ECHO_CHARACTERS = 200
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def status_of(exc: ServiceError, overload_status: int) -> int:
    """The HTTP status of an error; `overload_status` (503 or 429) is that of a refusal for overload."""
    return overload_status if isinstance(exc, Overloaded) else exc.status


def error_body(exc: ServiceError) -> bytes:
    """The JSON body of an error, as every client of the protocol expects it."""
    return _json_error(exc.message)


def error_headers(exc: ServiceError) -> dict[str, str]:
    """Headers that an error carries besides its type: `Retry-After` in whole seconds, `WWW-Authenticate`."""
    headers: dict[str, str] = {}
    if exc.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(exc.retry_after_s)))
    if isinstance(exc, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    return headers


def error_response(exc: ServiceError, overload_status: int) -> Response:
    """The answer to an error. A `Response` is an ASGI application: raw code awaits it with scope, receive and send."""
    return Response(error_body(exc), status_of(exc, overload_status), error_headers(exc), "application/json")


def install_error_handlers(app: FastAPI, *, overload_status: int) -> None:
    """Makes every error of `app` a JSON answer: the service's own, the router's, FastAPI's, and the unforeseen."""

    async def on_service_error(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, ServiceError), "registered for ServiceError alone"
        return error_response(exc, overload_status)

    async def on_validation_error(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, RequestValidationError), "registered for RequestValidationError alone"
        return error_response(InvalidInput(_validation_text(exc)), overload_status)

    app.add_exception_handler(ServiceError, on_service_error)
    app.add_exception_handler(RequestValidationError, on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_middleware(ErrorBoundary)


class ErrorBoundary:
    """Answers 500 where an application raised what nobody foresaw, and logs the traceback once.

    Only the server cancels a request, when its drain timeout is over: that is an answer too, and no traceback.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the application; once its answer has started, only the server's closing of the connection is left."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_started = False

        async def watched_send(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        try:
            await self._app(scope, receive, watched_send)
        except asyncio.CancelledError:
            if not is_started:
                stopped = ShuttingDown("the server stopped before this request was answered; send it again")
                await error_response(stopped, stopped.status)(scope, receive, send)
        except Exception as error:
            incident = secrets.token_hex(4)
            route = name_text(f"{scope['method']} {scope['path']}")
            logger.error("%s failed, incident %s", route, incident, exc_info=error)
            if is_started:
                return
            body = _json_error(f"internal error; the server's log has the details of incident {incident}")
            await Response(body, 500, media_type="application/json")(scope, receive, send)


async def _on_http_exception(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException), "registered for HTTPException alone"
    headers = dict(exc.headers or {})
    text = str(exc.detail)
    route = name_text(f"{request.method} {request.scope['path']}")
    if exc.status_code == 405:
        allowed = _allowed_methods(request)
        headers["Allow"] = ", ".join(allowed)
        text = f"method not allowed: {route}; this route takes {' and '.join(allowed)}"
    elif exc.status_code == 404 and text == HTTPStatus.NOT_FOUND.phrase:
        text = f"no such route: {route}; GET /docs lists the routes"
    return Response(_json_error(text), exc.status_code, headers, "application/json")


def _allowed_methods(request: Request) -> list[str]:
    """Methods that some route takes at the request's path; each route by itself knows its own alone."""
    scope = {key: request.scope[key] for key in ("type", "path", "root_path", "headers", "query_string")}
    return [
        method
        for method in METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in request.app.routes)
    ]


def _validation_text(exc: RequestValidationError) -> str:
    problems = []
    for error in exc.errors()[:MAX_VALIDATION_ERRORS]:
        place = ".".join(str(part) for part in error["loc"])
        got = repr(error.get("input"))[:MAX_ECHO_CHARACTERS]
        problems.append(f"{place}: got {got}, {error['msg'][:1].lower()}{error['msg'][1:]}")
    return "; ".join(problems)


def _json_error(text: str) -> bytes:
    # A library's message may hold a file name with undecodable bytes, which orjson refuses.
    return orjson.dumps({"error": text.encode("utf-8", "replace").decode()})
