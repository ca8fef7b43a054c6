"""The figures of one model version in the shape of the protocol's statistics extension."""

from __future__ import annotations

from dataclasses import dataclass

from service.telemetry.figures import ModelFigures

JsonValue = int | str | dict[str, "JsonValue"] | list["JsonValue"]


@dataclass(frozen=True, slots=True)
class DurationStatistics:
    """How often something happened and how long it took altogether, in nanoseconds."""

    count: int = 0
    ns: int = 0

    def to_json(self) -> dict[str, JsonValue]:
        """The protocol's form."""
        return {"count": self.count, "ns": self.ns}


@dataclass(frozen=True, slots=True)
class BatchStatistics:
    """Batches of one size, in rows; unlike the model's own durations these count batches, not requests."""

    batch_size: int
    compute_input: DurationStatistics
    compute_infer: DurationStatistics
    compute_output: DurationStatistics

    def to_json(self) -> dict[str, JsonValue]:
        """The protocol's form."""
        return {
            "batch_size": self.batch_size,
            "compute_input": self.compute_input.to_json(),
            "compute_infer": self.compute_infer.to_json(),
            "compute_output": self.compute_output.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatistics:
    """What `/v2/models/{m}/stats` says of one model version; all zero for one that was never used.

    Attributes:
        last_inference_unix_ms: when the latest batch ended, in milliseconds since 1970; 0 if none did.
        inference_count: rows of answered requests.
        execution_count: batches that ran.
        success: answered requests, from first byte to the response sent.
        fail: failed requests and refused ones; their time is not measured, so its `ns` is 0.
        queue: per answered request the time from the queue to the lane's start.
        compute_input: per answered request the time of copying its batch in.
        compute_infer: per answered request the time of running its batch.
        compute_output: per answered request the time of copying its batch out.
        batch_stats: per batch size that ran, ascending.
    """

    last_inference_unix_ms: int = 0
    inference_count: int = 0
    execution_count: int = 0
    success: DurationStatistics = DurationStatistics()
    fail: DurationStatistics = DurationStatistics()
    queue: DurationStatistics = DurationStatistics()
    compute_input: DurationStatistics = DurationStatistics()
    compute_infer: DurationStatistics = DurationStatistics()
    compute_output: DurationStatistics = DurationStatistics()
    batch_stats: tuple[BatchStatistics, ...] = ()

    @classmethod
    def of(cls, figures: ModelFigures) -> ModelStatistics:
        """The statistics that the figures amount to."""
        requests, batches = figures.requests, figures.batches

        def per_request(*stages: str) -> DurationStatistics:
            return DurationStatistics(requests.count, sum(requests.stage_ns(stage) for stage in stages))

        return cls(
            last_inference_unix_ms=figures.last_inference_unix_ms,
            inference_count=requests.rows,
            execution_count=batches.count,
            success=DurationStatistics(requests.count, requests.duration_ns),
            fail=DurationStatistics(sum(figures.failures.values())),
            queue=per_request("queue", "dispatch"),
            compute_input=per_request("h2d"),
            compute_infer=per_request("compute"),
            compute_output=per_request("d2h"),
            batch_stats=tuple(
                BatchStatistics(
                    size,
                    DurationStatistics(totals.batches, totals.h2d_ns),
                    DurationStatistics(totals.batches, totals.compute_ns),
                    DurationStatistics(totals.batches, totals.d2h_ns),
                )
                for size, totals in sorted(batches.executions.items())
            ),
        )

    def to_json(self, name: str, version: str) -> dict[str, JsonValue]:
        """One element of the protocol's `model_stats`, with every member that perf_analyzer insists on."""
        return {
            "name": name,
            "version": version,
            "last_inference": self.last_inference_unix_ms,
            "inference_count": self.inference_count,
            "execution_count": self.execution_count,
            "inference_stats": {
                "success": self.success.to_json(),
                "fail": self.fail.to_json(),
                "queue": self.queue.to_json(),
                "compute_input": self.compute_input.to_json(),
                "compute_infer": self.compute_infer.to_json(),
                "compute_output": self.compute_output.to_json(),
                "cache_hit": DurationStatistics().to_json(),
                "cache_miss": DurationStatistics().to_json(),
            },
            "response_stats": {},
            "batch_stats": [batch.to_json() for batch in self.batch_stats],
            "memory_usage": [],
        }
