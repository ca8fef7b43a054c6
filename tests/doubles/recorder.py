"""A recorder that keeps what it is told."""

from __future__ import annotations

from service.buckets import Bucket
from service.requests import BatchTimings, StageTimings


class KeepingRecorder:
    def __init__(self) -> None:
        self.requests: list[tuple[StageTimings, int]] = []
        self.failures: list[str] = []
        self.batches: list[tuple[Bucket, int, int]] = []

    def record_request(self, timings: StageTimings, rows: int) -> None:
        self.requests.append((timings, rows))

    def record_failure(self, reason: str) -> None:
        self.failures.append(reason)

    def record_batch(self, bucket: Bucket, size: int, request_count: int, timings: BatchTimings, lane_id: int) -> None:
        self.batches.append((bucket, size, request_count))
