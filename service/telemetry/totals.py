"""What has been counted so far, as frozen values; folding rows into them is a pure function.

A row is what the hot path wrote down for one request or one batch: plain 64-bit integers, in the order below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.requests import BatchFacts, RequestFacts
from service.telemetry.histogram import Histograms
from service.telemetry.idle_gaps import GAP_CAUSES, are_gaps, gaps_ns
from service.telemetry.metrics import FILL_RATIO_BOUNDS, LANE_STAGES, LATENCY_BOUNDS_NS, SIZE_BOUNDS, STAGES

Rows = NDArray[np.int64]

REQUEST_FACTS = RequestFacts._fields
BATCH_FACTS = (*BatchFacts._fields, "is_timed", "h2d", "wait", "d2h", "enqueue")
"""`BatchFacts`, then `DeviceTimings` after whether there are any."""

REQUEST_ROW = Struct(f"{len(STAGES) + len(REQUEST_FACTS) + 1}q")
"""The stages in nanoseconds, then `REQUEST_FACTS`, then the request's rows."""

BATCH_ROW = Struct(f"{9 + len(BATCH_FACTS)}q")
"""Bucket's index, size, padded size, requests, lane; then started, copied_in, computed, copied_out in nanoseconds; then
`BATCH_FACTS`."""

FINE_RATIO = 1.05
FINE_BOUNDS_NS = tuple(int(20_000 * FINE_RATIO**step) for step in range(317))
"""From 20 microseconds to 100 seconds: fine enough for a percentile to be compared with another one."""

_FACTS_FROM = 9

_QUEUED, _HANDED_OVER = (_FACTS_FROM + BATCH_FACTS.index(name) for name in ("queued", "handed_over"))
_GAP_COLUMNS = [_FACTS_FROM + BATCH_FACTS.index(name) for name in ("kept_open", "handed_over", "h2d")]

_BOUNDS_ROWS = tuple(int(bound) for bound in SIZE_BOUNDS)


def as_rows(packed: bytearray, layout: Struct) -> Rows:
    """Packed rows as int64[n, columns], sharing their memory."""
    return np.frombuffer(packed, np.int64).reshape(-1, layout.size // 8)


@dataclass(frozen=True, slots=True, eq=False)
class RequestTotals:
    """Answered requests.

    Attributes:
        durations: nanoseconds; a column per stage in the order of `STAGES`, then one for the whole request.
        rows: sum of their rows.
        facts: int64[REQUEST_FACTS] sum of each.
        fine: the durations of whole requests once more, in intervals of `FINE_BOUNDS_NS`.
    """

    durations: Histograms
    rows: int
    facts: NDArray[np.int64]
    fine: Histograms

    @classmethod
    def empty(cls) -> RequestTotals:
        """No requests yet."""
        return cls(
            Histograms.empty(LATENCY_BOUNDS_NS, len(STAGES) + 1),
            0,
            np.zeros(len(REQUEST_FACTS), np.int64),
            Histograms.empty(FINE_BOUNDS_NS),
        )

    def plus(self, rows: Rows) -> RequestTotals:
        """These totals and more requests.

        Args:
            rows: int64[n, columns] as `REQUEST_ROW` packs them.
        """
        durations = rows[:, : len(STAGES) + 1].copy()
        durations[:, -1] = rows[:, : len(STAGES)].sum(axis=1)
        return RequestTotals(
            self.durations.plus(durations),
            self.rows + int(rows[:, -1].sum()),
            self.facts + rows[:, len(STAGES) : -1].sum(axis=0),
            self.fine.plus(durations[:, -1:]),
        )

    @property
    def count(self) -> int:
        """Answered requests."""
        return self.durations.count()

    @property
    def duration_ns(self) -> int:
        """Sum of their durations, in nanoseconds."""
        return int(self.durations.sums[-1])

    def stage_ns(self, stage: str) -> int:
        """Sum of their times in a stage, in nanoseconds."""
        return int(self.durations.sums[STAGES.index(stage)])


class ExecutionTotals(NamedTuple):
    """Batches of one size: how many, and the sums of their phases in nanoseconds."""

    batches: int = 0
    h2d_ns: int = 0
    compute_ns: int = 0
    d2h_ns: int = 0


class LaneTotals(NamedTuple):
    """One lane, or all as one: nanoseconds during which it was busy, and the moment at which the latest batch ended."""

    busy_ns: int = 0
    last_end_ns: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class BatchTotals:
    """Batches that ran.

    Attributes:
        sizes: rows per batch.
        request_counts: requests per batch.
        fill_ratios: rows per batch divided by the rows of its bucket.
        bucket_dispatches: int64[buckets] batches per bucket index.
        bucket_rows: int64[buckets] rows per bucket index, padding not counted.
        bucket_padded_rows: int64[buckets] rows per bucket index with padding.
        bucket_stages_ns: int64[buckets, 3] per bucket index the nanoseconds in each of `LANE_STAGES`.
        bucket_facts: int64[buckets, BATCH_FACTS] per bucket index the sum of each.
        bucket_cold_ns: int64[buckets] per bucket index the nanoseconds in `compute` of the cold ones.
        computing: over all lanes, nanoseconds during which some batch was computed.
        gaps_ns: int64[GAP_CAUSES] nanoseconds during which none was although requests waited.
        lanes: per lane id.
        executions: per size of the batch in rows.
    """

    sizes: Histograms
    request_counts: Histograms
    fill_ratios: Histograms
    bucket_dispatches: NDArray[np.int64]
    bucket_rows: NDArray[np.int64]
    bucket_padded_rows: NDArray[np.int64]
    bucket_stages_ns: NDArray[np.int64]
    bucket_facts: NDArray[np.int64]
    bucket_cold_ns: NDArray[np.int64]
    computing: LaneTotals
    gaps_ns: NDArray[np.int64]
    lanes: Mapping[int, LaneTotals]
    executions: Mapping[int, ExecutionTotals]

    @classmethod
    def empty(cls) -> BatchTotals:
        """No batches yet."""
        return cls(
            Histograms.empty(_BOUNDS_ROWS),
            Histograms.empty(_BOUNDS_ROWS),
            Histograms.empty(FILL_RATIO_BOUNDS),
            np.zeros(0, np.int64),
            np.zeros(0, np.int64),
            np.zeros(0, np.int64),
            np.zeros((0, len(LANE_STAGES)), np.int64),
            np.zeros((0, len(BATCH_FACTS)), np.int64),
            np.zeros(0, np.int64),
            LaneTotals(),
            np.zeros(len(GAP_CAUSES), np.int64),
            {},
            {},
        )

    def plus(self, rows: Rows) -> BatchTotals:
        """These totals and more batches.

        Args:
            rows: int64[n, columns] as `BATCH_ROW` packs them, in the order in which the batches ended.
        """
        bucket, size, padded_size = rows[:, 0], rows[:, 1], rows[:, 2]
        stages_ns = np.diff(rows[:, 5:_FACTS_FROM], axis=1)
        facts = rows[:, _FACTS_FROM:]
        cold_ns = stages_ns[:, LANE_STAGES.index("compute")] * facts[:, BATCH_FACTS.index("is_cold")]
        by_start = np.argsort(rows[:, 6], kind="stable")
        return BatchTotals(
            self.sizes.plus(rows[:, 1:2]),
            self.request_counts.plus(rows[:, 3:4]),
            self.fill_ratios.plus((size / padded_size)[:, np.newaxis]),
            _add_per_index(self.bucket_dispatches, bucket, np.ones_like(size)),
            _add_per_index(self.bucket_rows, bucket, size),
            _add_per_index(self.bucket_padded_rows, bucket, padded_size),
            _add_per_index(self.bucket_stages_ns, bucket, stages_ns),
            _add_per_index(self.bucket_facts, bucket, facts),
            _add_per_index(self.bucket_cold_ns, bucket, cold_ns),
            _add_union(self.computing, rows[by_start, 6], rows[by_start, 7]),
            self.gaps_ns + _gaps_ns(self.computing, rows, by_start),
            _add_lanes(self.lanes, rows[:, 4], rows[:, 5], rows[:, 8]),
            _add_executions(self.executions, size, stages_ns),
        )

    @property
    def count(self) -> int:
        """Batches that ran."""
        return self.sizes.count()

    @property
    def busy_ns(self) -> int:
        """Nanoseconds during which lanes held a batch, added over lanes."""
        return sum(lane.busy_ns for lane in self.lanes.values())


def _add_per_index(totals: NDArray[np.int64], index: Rows, amount: Rows) -> NDArray[np.int64]:
    added = np.zeros((max(len(totals), int(index.max(initial=-1)) + 1), *totals.shape[1:]), np.int64)
    np.add.at(added, index, amount)
    added[: len(totals)] += totals
    return added


def _add_lanes(lanes: Mapping[int, LaneTotals], lane: Rows, started: Rows, ended: Rows) -> dict[int, LaneTotals]:
    added = dict(lanes)
    for lane_id in np.unique(lane).tolist():
        own = lane == lane_id
        added[lane_id] = _add_union(added.get(lane_id, LaneTotals()), started[own], ended[own])
    return added


def _gaps_ns(before: LaneTotals, rows: Rows, by_start: Rows) -> Rows:
    """Of batches in the order in which they began to be computed; those that nobody waited for are left out first."""
    started, computing = rows[by_start, 5], rows[by_start, 6]
    free = np.maximum.accumulate(np.concatenate(([before.last_end_ns], rows[by_start[:-1], 7])))[: len(rows)]
    queued_at = started - rows[by_start, _HANDED_OVER] - rows[by_start, _QUEUED]
    gaps = are_gaps(free, queued_at, computing)
    if not gaps.any():
        return np.zeros(len(GAP_CAUSES), np.int64)
    waits = rows[by_start[gaps]][:, _GAP_COLUMNS]
    return gaps_ns(free[gaps], started[gaps], computing[gaps], waits)


def _add_union(before: LaneTotals, started: Rows, ended: Rows) -> LaneTotals:
    """Adds the union of intervals: where two overlap, the second counts from the end of the first."""
    free_from = np.maximum.accumulate(np.concatenate(([before.last_end_ns], ended)))
    busy_ns = np.maximum(ended - np.maximum(started, free_from[:-1]), 0).sum()
    return LaneTotals(before.busy_ns + int(busy_ns), int(free_from[-1]))


def _add_executions(executions: Mapping[int, ExecutionTotals], size: Rows, phases: Rows) -> dict[int, ExecutionTotals]:
    sizes, group = np.unique(size, return_inverse=True)
    columns = np.zeros((len(sizes), len(ExecutionTotals._fields)), np.int64)
    np.add.at(columns, group, np.column_stack((np.ones(len(size), np.int64), phases)))
    added = dict(executions)
    for executed_size, more in zip(sizes.tolist(), columns.tolist(), strict=True):
        before = added.get(executed_size, ExecutionTotals())
        added[executed_size] = ExecutionTotals(*(a + b for a, b in zip(before, more, strict=True)))
    return added
