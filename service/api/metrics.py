"""`GET /metrics`: the recorder's figures in the format that the scraper asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

if TYPE_CHECKING:
    from service.telemetry.recorder import Recorder


def metrics_router(recorder: Recorder) -> APIRouter:
    """The route that Prometheus scrapes; answered on a thread, because a scrape takes milliseconds."""
    router = APIRouter(tags=["Metrics"])

    @router.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
    def metrics(request: Request) -> Response:
        """Prometheus text, or OpenMetrics where `Accept` asks for `application/openmetrics-text`."""
        content, content_type = recorder.expose(request.headers.get("accept", ""))
        return Response(content, headers={"Content-Type": content_type})

    return router
