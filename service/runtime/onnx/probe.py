"""Times the nodes of an ONNX model on the CPU, on sessions that no lane uses."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from service.buckets import Bucket
from service.errors import ExecutionFailed
from service.models import ModelSpec
from service.requests import Clock
from service.runtime.layer_trace import LayerTrace
from service.runtime.onnx.buffers import HostScratch
from service.runtime.onnx.node_times import node_times
from service.runtime.onnx.runs import BoundRun, BucketRun, TextRun, has_text
from service.runtime.onnx.session import open_session, without_paths
from service.runtime.synthetic import SEED, synthetic_values

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

WARM_RUNS = 2
"""Before those that count: the first run of a session allocates, and finds cold caches."""


class OnnxLayerProbe:
    """One bucket on two sessions, one of them with the profiler. Implements `runtime.probe.LayerProbe`.

    Args:
        model_path: the ONNX file.
        spec: the model.
        bucket: a known one, of tensors.
        threads: intra-op threads, as a lane's.
        clock: monotonic nanoseconds.
    """

    def __init__(
        self, model_path: Path, spec: ModelSpec, bucket: Bucket, *, threads: int, clock: Clock = time.perf_counter_ns
    ) -> None:
        self._model_path = model_path
        self._spec = spec
        self._bucket = bucket
        self._threads = threads
        self._clock = clock

    def layers(self, runs: int) -> LayerTrace:
        """Runs the model `runs` times with the profiler, and as often without it, in turns.

        The profiler's file lies in a folder of the system's for temporary files until it is read.

        Raises:
            ModelLoadFailed: ONNX Runtime refuses the model.
            ExecutionFailed: the model does not run in this bucket, or the profiler's file cannot be read.
        """
        with tempfile.TemporaryDirectory(prefix="inferlane-layers-") as folder:
            session = open_session(self._model_path, threads=self._threads, profile_prefix=f"{folder}/layers")
            profiled = self._run(session)
            plain = self._run(open_session(self._model_path, threads=self._threads))
            spans_ns = []
            try:
                for _ in range(WARM_RUNS + runs):
                    spans_ns.append(self._timed(plain))
                    self._timed(profiled)
            finally:
                report = Path(session.end_profiling())
            layers = node_times(_events(report), WARM_RUNS)
        return LayerTrace(span_s=statistics.median(spans_ns[WARM_RUNS:]) / 1e9, layers=layers, runs=runs)

    def close(self) -> None:
        """Nothing is kept between calls; idempotent."""

    def _run(self, session: InferenceSession) -> BucketRun:
        run: BucketRun
        if has_text(self._spec):
            run = TextRun(session, self._spec, self._bucket)
        else:
            run = BoundRun(session, self._spec, self._bucket, HostScratch())
        rng = np.random.default_rng(SEED)
        for tensor, host in zip(self._spec.inputs, run.host_inputs, strict=True):
            host[...] = synthetic_values(rng, tensor.dtype, host.shape)
        return run

    def _timed(self, run: BucketRun) -> int:
        begun_ns = self._clock()
        try:
            run.execute()
        except Exception as error:
            raise ExecutionFailed(
                f"the layers of model '{self._spec.name}' cannot be timed: ONNX Runtime failed on synthetic values in "
                f"bucket {self._bucket.label}: {without_paths(str(error), self._model_path)}"
            ) from error
        return self._clock() - begun_ns


def _events(report: Path) -> list[dict[str, object]]:
    try:
        events = json.loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ExecutionFailed(
            f"what ONNX Runtime's profiler wrote cannot be read: {error}; make room where temporary files lie, or set "
            "TMPDIR to another folder"
        ) from error
    return [event for event in events if isinstance(event, dict)]
