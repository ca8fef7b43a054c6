"""Whether experiments beside the traffic hurt it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from service.telemetry.histogram import Histograms
from service.telemetry.window_load import minus, quantile_s

LEAST_REQUESTS = 200
"""Answered before and since: a 99th percentile of fewer is decided by one or two of them."""

MAX_GROWTH = 1.5
"""Of the 99th percentile. That of some hundred requests varies by as much as a third by itself."""

MAX_BACKLOG_S = 0.05
MAX_BACKLOG_GROWTH = 2.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """A model's traffic at one moment.

    Attributes:
        durations: of the answered requests so far, in nanoseconds; None where nothing is recorded.
        backlog_s: until a lane would reach a new request.
    """

    durations: Histograms | None
    backlog_s: float

    @property
    def answered(self) -> int:
        """Requests that were answered so far, as far as that is recorded."""
        return self.durations.count() if self.durations is not None else 0


@dataclass(frozen=True, slots=True)
class Baseline:
    """A stretch of traffic without experiments: its beginning and its end."""

    began: Traffic
    ended: Traffic


def is_backed_up(baseline: Baseline, now: Traffic) -> bool:
    """Whether requests wait longer than they should, and longer than they did."""
    return now.backlog_s > max(MAX_BACKLOG_S, MAX_BACKLOG_GROWTH * baseline.ended.backlog_s)


def slowed(baseline: Baseline, now: Traffic) -> str:
    """What has become of the latency since the baseline ended, in words; empty as long as nothing bad is certain."""
    began, ended, latest = baseline.began.durations, baseline.ended.durations, now.durations
    if began is None or ended is None or latest is None:
        return ""
    before, since = minus(ended, began), minus(latest, ended)
    before_s, since_s = quantile_s(before, 0.99), quantile_s(since, 0.99)
    if before_s is None or since_s is None or min(before.count(), since.count()) < LEAST_REQUESTS:
        return ""
    if since_s <= MAX_GROWTH * before_s:
        return ""
    return (
        f"the 99th percentile of the traffic's latency went from {before_s * 1e3:.1f} to {since_s * 1e3:.1f} ms; run "
        'the probes in the mode "exclusive", or when there is less traffic'
    )
