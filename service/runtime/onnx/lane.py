"""A lane on the CPU: one session, one thread, one batch at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from service.buckets import Bucket
from service.device_figures import LaneFigures
from service.errors import ExecutionFailed, InvalidInput, ModelLoadFailed
from service.models import ModelSpec
from service.requests import Batch, BatchResult, BatchTimings
from service.runtime.onnx.buffers import HostScratch
from service.runtime.onnx.in_place import InPlaceRun, fits_in_place
from service.runtime.onnx.runs import BoundRun, BucketRun, TextRun, has_text, joinable
from service.runtime.onnx.session import without_paths
from service.runtime.protocol import Ticket
from service.runtime.rows import gather, input_plans, misfit, output_plans, scatter
from service.tensors import HostArray

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


@dataclass(frozen=True, slots=True)
class _InFlight:
    batch: Batch
    run: BucketRun
    started: int
    copied_in: int


class OnnxLane:
    """Runs batches on a session of its own. Implements `runtime.protocol.Lane`; depth 1.

    After `warm_up` a bucket's inputs and outputs stay bound to the lane's scratch, and a batch allocates nothing
    but its results. One large request that fills its bucket is not copied at all. Buckets that cannot be known
    beforehand (exact sizes), and models with BYTES tensors, get memory per batch and keep none.
    """

    def __init__(
        self,
        session: InferenceSession,
        spec: ModelSpec,
        *,
        model_path: Path,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._session: InferenceSession | None = session
        self._spec = spec
        self._model_path = model_path
        self._clock_ns = clock_ns
        self._input_plans = input_plans(spec)
        self._output_plans = output_plans(spec)
        self._has_text = has_text(spec)
        self._host_input_scratch = HostScratch()
        self._host_output_scratch = HostScratch()
        self._runs: dict[Bucket, BucketRun] = {}

    def warm_up(self, bucket: Bucket) -> None:
        """Allocates the bucket's buffers and runs the model once in its shape, on padding alone.

        Raises:
            ExecutionFailed: the model cannot run in this shape.
            ModelLoadFailed: it runs, but its outputs are not one row per row of the batch.
        """
        run = self._make_run(bucket, self._host_input_scratch)
        for plan, host in zip(self._input_plans, run.host_inputs, strict=True):
            host[...] = plan.pad
        host_outputs = self._execute(run, bucket)
        problem = misfit(self._spec, bucket, [host.shape for host in host_outputs])
        if problem is not None:
            raise ModelLoadFailed(problem)
        if isinstance(run, BoundRun):
            run.keep_outputs(host_outputs, self._host_output_scratch)
            self._runs[bucket] = run

    def enqueue(self, batch: Batch) -> Ticket:
        """Copies the rows in; the model runs in `sync`, because the CPU that would overlap is the same."""
        started = self._clock_ns()
        run = self._runs.get(batch.bucket)
        if run is None:
            run = self._make_run(batch.bucket, HostScratch())
        if isinstance(run, BoundRun) and run.has_known_outputs and fits_in_place(batch):
            run = InPlaceRun(self._session, self._spec, batch.bucket, batch.requests[0])
            return _InFlight(batch, run, started, self._clock_ns())
        gather(batch, self._input_plans, run.host_inputs)
        return _InFlight(batch, run, started, self._clock_ns())

    def sync(self, ticket: Ticket) -> BatchResult:
        """Runs the model with the GIL released and copies every request's rows out.

        Raises:
            InvalidInput: an operator refused a value of the one request, such as an index out of bounds.
            ExecutionFailed: ONNX Runtime failed on this batch otherwise. After either the lane goes on working.
        """
        flight = cast(_InFlight, ticket)
        batch = flight.batch
        try:
            host_outputs = self._execute(flight.run, batch.bucket)
        except ExecutionFailed as error:
            if len(batch.requests) == 1 and flight.run.is_refused():
                raise InvalidInput(f"values that the model cannot take: {error.message}") from error
            raise
        computed = self._clock_ns()
        shapes = [host.shape for host in host_outputs]
        problem = misfit(self._spec, batch.bucket, shapes)
        if problem is not None:
            raise ExecutionFailed(problem)
        if len(batch.requests) > 1 and not joinable(self._spec, batch.bucket, flight.run.proven_shapes, shapes):
            raise ExecutionFailed(
                f"outputs of model '{self._spec.name}' have shapes {shapes} in bucket {batch.bucket.label}, which "
                "depend on the values: requests cannot share a batch"
            )
        results = self._results(flight, host_outputs)
        return BatchResult(results, BatchTimings(flight.started, flight.copied_in, computed, self._clock_ns()))

    def figures(self) -> LaneFigures:
        """Nothing: there is no device."""
        return LaneFigures()

    def close(self) -> None:
        """Drops the session and its buffers; idempotent."""
        self._runs.clear()
        self._session = None

    def _results(self, flight: _InFlight, host_outputs: tuple[HostArray, ...]) -> tuple[tuple[HostArray, ...], ...]:
        if isinstance(flight.run, InPlaceRun):
            return (tuple([host_outputs[index] for index in flight.batch.requests[0].outputs]),)
        return scatter(flight.batch, self._output_plans, host_outputs)

    def _make_run(self, bucket: Bucket, host_scratch: HostScratch) -> BucketRun:
        if self._has_text:
            return TextRun(self._session, self._spec, bucket)
        return BoundRun(self._session, self._spec, bucket, host_scratch)

    def _execute(self, run: BucketRun, bucket: Bucket) -> tuple[HostArray, ...]:
        try:
            return run.execute()
        except Exception as error:
            raise ExecutionFailed(
                f"ONNX Runtime failed on a batch of model '{self._spec.name}' in bucket {bucket.label}: "
                f"{without_paths(str(error), self._model_path)}"
            ) from error
