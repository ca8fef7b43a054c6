"""How a metric is declared."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class MetricKind(Enum):
    """Prometheus' metric types."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One declared metric.

    Attributes:
        name: as it is exposed; a histogram's samples add `_bucket`, `_count` and `_sum`.
        kind: its type.
        help: what it counts or measures, and its unit.
        labels: names of its labels.
        bounds: ascending inclusive upper bounds of a histogram, in the unit of its name, `+Inf` left out.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
