"""`GET /diagnose`: what limits the server now, on what evidence, what the fix would gain, and how to check it.

The moment is taken on the event loop; everything else runs on a thread, one diagnosis after another, however many are
asked for at once. Like `/metrics` it needs the inference key where there is one: it is read with GET and tells figures,
and names of models and buckets, but nothing of what was inferred.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import PlainTextResponse, Response

from service.api.kept_reports import KeptReports
from service.api.responses import JsonResponse
from service.diagnosis.document import JsonValue, to_json
from service.diagnosis.report import Report
from service.diagnosis.report import diagnose as diagnose_snapshot
from service.diagnosis.review import baseline_of, review, review_to_json
from service.diagnosis.track_record import TrackRecords
from service.diagnosis_text.report import to_text
from service.telemetry.assemble import Surroundings, take_snapshot

if TYPE_CHECKING:
    from service.telemetry.history import History, Span

DEFAULT_WINDOW_S = 60.0
MAX_WINDOW_S = 3600.0
PLAIN_TEXT, JSON = "text/plain", "application/json"


class Diagnoser:
    """Makes reports, one at a time. Belongs to the event loop.

    Args:
        history: what was counted.
        surroundings: what is known beside it, asked for each report by the model's name.
        report_id: gives each report its name.
    """

    def __init__(
        self,
        history: History,
        surroundings: Callable[[str], Surroundings],
        *,
        report_id: Callable[[], str] = lambda: secrets.token_hex(4),
    ) -> None:
        self._history = history
        self._surroundings = surroundings
        self._report_id = report_id
        self._kept = KeptReports()
        self._turn = asyncio.Semaphore()

    async def report(self, model: str | None, window_s: float) -> Report:
        """Diagnoses a window that ends now, and keeps what a review will need.

        Raises:
            ModelNotFound, NotReady: as `History.span`.
        """
        async with self._turn:
            span = self._history.span(model, window_s)
            surroundings, records = self._surroundings(span.model), self._kept.records()
            made = await asyncio.to_thread(_diagnose, span, surroundings, self._report_id(), records)
        self._kept.keep(baseline_of(made))
        return made

    async def review(self, since: str, window_s: float) -> dict[str, JsonValue]:
        """Holds an earlier report against a new one of its model, and keeps what came of it: confidence is earned.

        Raises:
            InvalidInput: no such report is kept.
            ModelNotFound, NotReady: as `report`.
        """
        baseline = self._kept.get(since)
        made = review(baseline, await self.report(baseline.model, window_s))
        self._kept.keep_review(made)
        return review_to_json(made)


def diagnose_router(diagnoser: Diagnoser) -> APIRouter:
    """The route `/diagnose`."""
    router = APIRouter(tags=["Diagnosis"])

    @router.get("/diagnose", summary="What limits the server, and what would mend it", response_model=None)
    async def diagnose(
        request: Request,
        model: Annotated[str | None, Query(description="A model's name; by default the busiest one.")] = None,
        window: Annotated[
            float, Query(ge=1, le=MAX_WINDOW_S, description="Seconds to look back, as far as any are kept.")
        ] = DEFAULT_WINDOW_S,
        since: Annotated[
            str | None, Query(description="`id` of a report before a change: what it predicted is held against now.")
        ] = None,
    ) -> Response:
        """JSON by `docs/diagnose.schema.json`, or a report for a terminal where `Accept` names `text/plain`."""
        if since is not None:
            document = await diagnoser.review(since, window)
        else:
            document = to_json(await diagnoser.report(model, window))
        headers = {"Vary": "Accept", "Cache-Control": "no-store"}
        accept = request.headers.get("accept", "")
        if PLAIN_TEXT in accept and JSON not in accept:
            return PlainTextResponse(await asyncio.to_thread(to_text, document), headers=headers)
        return JsonResponse(document, headers=headers)

    return router


def _diagnose(span: Span, surroundings: Surroundings, report_id: str, records: TrackRecords) -> Report:
    return diagnose_snapshot(take_snapshot(span, surroundings), report_id=report_id, records=records)
