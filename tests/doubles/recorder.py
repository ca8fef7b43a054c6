"""A recorder that keeps what it is told."""

from __future__ import annotations

from service.buckets import Bucket
from service.requests import NO_BATCH_FACTS, NO_FACTS, BatchFacts, BatchTimings, RequestFacts, StageTimings


class KeepingRecorder:
    def __init__(self) -> None:
        self.requests: list[tuple[StageTimings, int]] = []
        self.failures: list[str] = []
        self.batches: list[tuple[Bucket, int, int]] = []
        self.request_facts: list[RequestFacts] = []
        self.batch_facts: list[BatchFacts] = []

    def record_request(self, timings: StageTimings, rows: int, facts: RequestFacts = NO_FACTS) -> None:
        self.requests.append((timings, rows))
        self.request_facts.append(facts)

    def record_failure(self, reason: str) -> None:
        self.failures.append(reason)

    def record_batch(
        self,
        bucket: Bucket,
        size: int,
        request_count: int,
        timings: BatchTimings,
        lane_id: int,
        facts: BatchFacts = NO_BATCH_FACTS,
    ) -> None:
        self.batches.append((bucket, size, request_count))
        self.batch_facts.append(facts)
