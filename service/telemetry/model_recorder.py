"""Records the requests and batches of one model version at almost no cost.

The hot path only appends packed integers to a `bytearray`; a fold turns them into totals with NumPy. Folds happen when
somebody asks (a scrape, `/stats`) and when `FOLD_ROWS` rows have gathered, few enough not to delay the event loop.

Threads: the event loop alone appends, each row in one call, at the end. A fold may run on any thread; it copies what
stands in the buffer, then deletes exactly that many bytes from its front, each in one call. The interpreter lock makes
each of these calls atomic, so an append lands before or after them, whole, and never in what is deleted. Folds exclude
each other by a lock that an append never waits for: while a scrape folds, rows stay for the next fold. Totals are
frozen values which a fold replaces, so readers share them freely.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from struct import Struct
from typing import Protocol

from service.buckets import Bucket, DimSizes, Form
from service.requests import (
    NO_BATCH_FACTS,
    NO_FACTS,
    BatchFacts,
    BatchTimings,
    DeviceTimings,
    RequestFacts,
    StageTimings,
)
from service.telemetry.device_totals import NO_TOTALS, DeviceTotals, device_bytes, graphs_missing
from service.telemetry.figures import ModelFigures, ModelGauges
from service.telemetry.metrics import INTERNAL, MAX_BUCKET_LABELS, OTHER_BUCKETS, REASONS
from service.telemetry.totals import BATCH_ROW, REQUEST_ROW, BatchTotals, RequestTotals, Rows, as_rows

FOLD_ROWS = 512
"""Rows that a buffer gathers before they are folded: the fold then costs each row little and takes well below 1 ms."""

_pack_request = REQUEST_ROW.pack
_pack_batch = BATCH_ROW.pack
_MAX_REQUEST_BYTES = FOLD_ROWS * REQUEST_ROW.size
_MAX_BATCH_BYTES = FOLD_ROWS * BATCH_ROW.size


_NO_DEVICE = (0, 0, 0, 0, 0)


def _device_columns(device: DeviceTimings) -> tuple[int, int, int, int, int]:
    return 1, device.h2d, device.wait, device.d2h, device.enqueue


class ModelRecorder(Protocol):
    """Where the requests and batches of one model version are recorded; used on the event loop alone."""

    def record_request(self, timings: StageTimings, rows: int, facts: RequestFacts = NO_FACTS) -> None:
        """Counts a request that was answered with 200.

        Args:
            timings: its stages, in nanoseconds.
            rows: its rows.
            facts: what a diagnosis wants to know beside them.
        """

    def record_failure(self, reason: str) -> None:
        """Counts a request that failed or was refused; `reason` is its `ServiceError.reason`."""

    def record_batch(
        self,
        bucket: Bucket,
        size: int,
        request_count: int,
        timings: BatchTimings,
        lane_id: int,
        facts: BatchFacts = NO_BATCH_FACTS,
    ) -> None:
        """Counts a batch that ran; those of one lane come in the order in which they ended.

        Args:
            bucket: the padded shape it ran in.
            size: its rows, padding not counted.
            request_count: the requests that it joined.
            timings: its moments on the lane.
            lane_id: the lane.
            facts: what a diagnosis wants to know beside them.
        """


class PackedRecorder(Protocol):
    """Where requests of one model version are recorded that another process answered; on the event loop alone."""

    def record_packed(self, rows: bytes) -> None:
        """Counts requests that were answered with 200, each a packed `REQUEST_ROW`."""

    def record_failure(self, reason: str) -> None:
        """Counts a request that failed or was refused, as `ModelRecorder.record_failure`."""


class NullModelRecorder:
    """A `ModelRecorder` that records nothing: metrics are off."""

    def record_request(self, timings: StageTimings, rows: int, facts: RequestFacts = NO_FACTS) -> None:
        """Does nothing."""

    def record_packed(self, rows: bytes) -> None:
        """Does nothing."""

    def record_failure(self, reason: str) -> None:
        """Does nothing."""

    def record_batch(
        self,
        bucket: Bucket,
        size: int,
        request_count: int,
        timings: BatchTimings,
        lane_id: int,
        facts: BatchFacts = NO_BATCH_FACTS,
    ) -> None:
        """Does nothing."""


class BufferedModelRecorder:
    """A `ModelRecorder` that gathers rows and folds them.

    Args:
        name: the model's name.
        version: its version.
        clock_unix_ms: tells milliseconds since 1970.
    """

    def __init__(self, name: str, version: str, clock_unix_ms: Callable[[], int]) -> None:
        self._name = name
        self._version = version
        self._clock_unix_ms = clock_unix_ms
        self._fold_lock = threading.Lock()
        self._request_buffer = bytearray()
        self._batch_buffer = bytearray()
        self._requests = RequestTotals.empty()
        self._batches = BatchTotals.empty()
        self._failures = dict.fromkeys(REASONS, 0)
        self._bucket_indices: dict[tuple[int, DimSizes, Form], int] = {}
        self._bucket_labels: list[str] = []
        self._buckets: list[Bucket | None] = []
        self._last_inference_unix_ms = 0

    def record_request(self, timings: StageTimings, rows: int, facts: RequestFacts = NO_FACTS) -> None:
        """See `ModelRecorder`."""
        buffer = self._request_buffer
        buffer.extend(_pack_request(*timings, *facts, rows))
        if len(buffer) >= _MAX_REQUEST_BYTES:
            self._fold_unless_folding()

    def record_packed(self, rows: bytes) -> None:
        """See `PackedRecorder`."""
        self._request_buffer.extend(rows)
        if len(self._request_buffer) >= _MAX_REQUEST_BYTES:
            self._fold_unless_folding()

    def record_failure(self, reason: str) -> None:
        """See `ModelRecorder`."""
        self._failures[reason if reason in self._failures else INTERNAL] += 1

    def record_batch(
        self,
        bucket: Bucket,
        size: int,
        request_count: int,
        timings: BatchTimings,
        lane_id: int,
        facts: BatchFacts = NO_BATCH_FACTS,
    ) -> None:
        """See `ModelRecorder`."""
        padded_size = bucket.padded_size
        # A tuple is hashed and compared in C, a bucket in Python.
        index = self._bucket_indices.get((padded_size, bucket.dims, bucket.form))
        if index is None:
            index = self._add_bucket(bucket)
        buffer = self._batch_buffer
        buffer.extend(
            _pack_batch(
                index,
                size,
                padded_size,
                request_count,
                lane_id,
                timings.started,
                timings.copied_in,
                timings.computed,
                timings.copied_out,
                *facts,
                *(_NO_DEVICE if (device := timings.device) is None else _device_columns(device)),
            )
        )
        self._last_inference_unix_ms = self._clock_unix_ms()
        if len(buffer) >= _MAX_BATCH_BYTES:
            self._fold_unless_folding()

    def figures(self, gauges: ModelGauges | None, retired: DeviceTotals = NO_TOTALS) -> ModelFigures:
        """Everything recorded so far, on any thread; waits for a fold that another thread is at.

        Args:
            gauges: the model's present state, handed on.
            retired: what lanes of earlier loads did on their device.
        """
        lanes = gauges.lane_figures() if gauges else ()
        with self._fold_lock:
            self._fold()
            batches = self._batches
            return ModelFigures(
                name=self._name,
                version=self._version,
                requests=self._requests,
                failures=self._failures.copy(),
                batches=batches,
                # The event loop may have met a bucket whose first batch is not folded yet.
                bucket_labels=tuple(self._bucket_labels[: len(batches.bucket_dispatches)]),
                buckets=tuple(self._buckets[: len(batches.bucket_dispatches)]),
                last_inference_unix_ms=self._last_inference_unix_ms,
                device=retired.plus(DeviceTotals.of(lanes)),
                graphs_missing=graphs_missing(lanes),
                device_bytes=device_bytes(lanes, gauges.weights_bytes() if gauges else 0),
                gauges=gauges,
            )

    def _add_bucket(self, bucket: Bucket) -> int:
        index = min(len(self._bucket_labels), MAX_BUCKET_LABELS)
        if index == len(self._bucket_labels):
            self._bucket_labels.append(bucket.label if index < MAX_BUCKET_LABELS else OTHER_BUCKETS)
            self._buckets.append(bucket if index < MAX_BUCKET_LABELS else None)
        if index < MAX_BUCKET_LABELS:
            self._bucket_indices[bucket.padded_size, bucket.dims, bucket.form] = index
        return index

    def _fold_unless_folding(self) -> None:
        if self._fold_lock.acquire(blocking=False):
            try:
                self._fold()
            finally:
                self._fold_lock.release()

    def _fold(self) -> None:
        requests = _take_rows(self._request_buffer, REQUEST_ROW)
        if len(requests):
            self._requests = self._requests.plus(requests)
        batches = _take_rows(self._batch_buffer, BATCH_ROW)
        if len(batches):
            self._batches = self._batches.plus(batches)


def _take_rows(buffer: bytearray, layout: Struct) -> Rows:
    taken = buffer[:]
    del buffer[: len(taken)]
    return as_rows(taken, layout)
