"""The reports that a later one can be held against, the latest ones of a server."""

from __future__ import annotations

from collections import OrderedDict

from service.client_text import name_text
from service.diagnosis.review import Baseline
from service.errors import InvalidInput

MAX_KEPT = 4096
"""Two hours of a page that asks every two seconds. Each takes some hundred bytes: rates, latencies, predictions."""


class KeptReports:
    """Baselines by the ids of their reports; the oldest gives way. Belongs to the event loop."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Baseline] = OrderedDict()

    def keep(self, baseline: Baseline) -> None:
        """Keeps one more."""
        self._kept[baseline.id] = baseline
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)

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
