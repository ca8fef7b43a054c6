"""What a server keeps of its diagnoses: the reports that a later one can be held against, and what reviews found."""

from __future__ import annotations

from collections import OrderedDict

from service.client_text import name_text
from service.diagnosis.review import Baseline, Review, track_records
from service.diagnosis.track_record import TrackRecords
from service.errors import InvalidInput

MAX_KEPT = 4096
"""Two hours of a page that asks every two seconds. Each takes some hundred bytes: rates, latencies, predictions."""


MAX_REVIEWS = 256
"""Changes that were reviewed; what held long ago says little of the models of today."""


class KeptReports:
    """Baselines by the ids of their reports, and reviews by what they look back on; the oldest gives way.

    Belongs to the event loop.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Baseline] = OrderedDict()
        self._reviews: OrderedDict[str, Review] = OrderedDict()

    def keep(self, baseline: Baseline) -> None:
        """Keeps one more."""
        self._kept[baseline.id] = baseline
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)

    def keep_review(self, review: Review) -> None:
        """Keeps what came of a report's predictions; a later look at the same report takes the place of an earlier."""
        self._reviews[review.since] = review
        self._reviews.move_to_end(review.since)
        while len(self._reviews) > MAX_REVIEWS:
            self._reviews.popitem(last=False)

    def records(self) -> TrackRecords:
        """How far the predictions of each class have held."""
        return track_records(self._reviews.values())

    def get(self, report_id: str) -> Baseline:
        """The baseline of a report.

        Raises:
            InvalidInput: there is none, or no longer.
        """
        baseline = self._kept.get(report_id)
        if baseline is None:
            raise InvalidInput(
                f"no report {name_text(report_id)} is kept, the server keeps its latest {MAX_KEPT} until it ends; "
                "GET /diagnose makes one, and `id` in it is what ?since= takes"
            )
        return baseline
