"""A spare place on the device where one bucket is timed by itself: no lane, no queue, no request takes part."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType

from service.buckets import Form
from service.models import ModelSpec
from service.requests import Clock
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.memory import DeviceBuffer
from service.runtime.cuda.stream import Event, Stream
from service.runtime.layer_trace import LayerTrace
from service.runtime.probe import LaunchTimes
from service.runtime.trt.buffers import BufferSet, Layout, MediaBytes
from service.runtime.trt.chain import Chain, Run
from service.runtime.trt.context import scratch_bytes
from service.runtime.trt.device_kernels import DeviceKernels
from service.runtime.trt.engine import Engine
from service.runtime.trt.layer_times import Subject, trace_layers, with_onnx
from service.runtime.trt.media.run import MediaRun, media_bytes
from service.runtime.trt.profiles import BucketShapes
from service.runtime.trt.runs import BucketRun

SPAN_LAUNCHES = 5
"""Launches without the profiler between two runs with it: enough that the launch itself does not count."""

ROUND_LAUNCHES = 50
"""Launches between two syncs: few enough for the driver's queue, which makes a launch wait once it is full."""


class TensorRTProbe:
    """One bucket with a context, buffers and a graph of its own. Implements `runtime.probe.Probe`.

    Attributes:
        graph_miss: why the bucket has no graph, or None.
        onnx_path: the ONNX model that the plan was built from, which says more of the layers; None where it is not
            at hand.
    """

    def __init__(
        self, run: Run, chain: Chain, subject: Subject, events: tuple[Event, Event], stack: ExitStack, clock: Clock
    ) -> None:
        self._run = run
        self._subject = subject
        self._chain = chain
        self._stream = chain.stream
        self._begun, self._ended = events
        self._stack = stack
        self._clock = clock
        self.graph_miss: str | None = None
        self.onnx_path: Path | None = None

    @classmethod
    def open(
        cls,
        cuda: Cuda,
        engine: Engine,
        spec: ModelSpec,
        shapes: BucketShapes,
        *,
        kernels: DeviceKernels | None = None,
        clock: Clock = time.perf_counter_ns,
    ) -> TensorRTProbe:
        """Allocates everything, runs the bucket once and captures its graph, on the device that the thread uses.

        Args:
            cuda: the process's CUDA.
            engine: what is executed.
            spec: the model.
            shapes: the bucket.
            kernels: as a lane's; a bucket of media needs its task's.
            clock: nanoseconds that only grow, for the host's times.

        Raises:
            ModelLoadFailed, ExecutionFailed, DeviceError: as a lane's warm-up.
        """
        needed_bytes = scratch_bytes(engine, shapes.profile)
        kernels = kernels or DeviceKernels()
        media = kernels.media if shapes.bucket.form is Form.MEDIA else None
        with ExitStack() as stack:
            stream = stack.enter_context(Stream(cuda))
            events = [stack.enter_context(Event(cuda, timing_enabled=True, blocking_sync=False)) for _ in range(2)]
            scratch = stack.enter_context(DeviceBuffer(cuda, needed_bytes)) if needed_bytes else None
            buffers = BufferSet(
                cuda,
                input_bytes=Layout.of(spec.inputs, shapes.inputs).nbytes,
                output_bytes=max(1, Layout.of(spec.outputs, shapes.buffered_outputs).nbytes),
                media=media_bytes(media.task, spec, [shapes]) if media is not None else MediaBytes(),
            )
            stack.callback(buffers.close)
            engine_run = BucketRun(cuda, engine, spec, shapes, buffers)
            stack.callback(engine_run.close)
            engine_run.bind(scratch, stream=stream)
            run: Run = engine_run
            if media is not None:
                run = media_run = MediaRun(cuda, spec, media, shapes, engine_run)
                media_run.bind(stream=stream)
            chain = Chain(cuda, run, stream=stream, rework=kernels.rework)
            stack.callback(chain.close_graph)
            miss = chain.warm_up()
            subject = Subject(cuda, engine, spec, shapes, buffers, scratch, stream)
            probe = cls(run, chain, subject, (events[0], events[1]), stack.pop_all(), clock)
        probe.graph_miss = None if miss is None else miss.detail
        return probe

    def replay(self, launches: int) -> LaunchTimes | None:
        """Times replays of the bucket's graph, one after another; None where it has none."""
        return None if self._chain.graph is None else self._timed(self._chain.replay, launches)

    def eager(self, launches: int) -> LaunchTimes:
        """Times enqueues without the graph, one after another."""
        return self._timed(self._chain.execute_eagerly, launches)

    def h2d(self, launches: int) -> LaunchTimes:
        """Times uploads of the bucket's inputs from pinned memory."""
        return self._timed(partial(self._run.upload, stream=self._stream), launches)

    def d2h(self, launches: int) -> LaunchTimes:
        """Times downloads of the bucket's outputs to pinned memory."""
        return self._timed(partial(self._run.download, stream=self._stream), launches)

    def layers(self, runs: int) -> LayerTrace:
        """Times the engine's layers, in a context and a graph of their own; of media those of the engine alone.

        Raises:
            ModelLoadFailed, ExecutionFailed, DeviceError: as `trace_layers`.
        """
        subject, plain = self._subject, self._chain
        with ExitStack() as stack:
            if subject.shapes.bucket.form is Form.MEDIA:
                plain = self._engine_alone(stack)
            launch = plain.execute_eagerly if plain.graph is None else plain.replay
            trace = trace_layers(subject, runs, lambda: self._round(launch, SPAN_LAUNCHES, []) / SPAN_LAUNCHES)
        return trace if self.onnx_path is None else with_onnx(trace, subject, self.onnx_path)

    def close(self) -> None:
        """Frees everything; idempotent."""
        self._stack.close()

    def __enter__(self) -> TensorRTProbe:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _engine_alone(self, stack: ExitStack) -> Chain:
        """The engine without the task's kernels: what the layers' times are held against."""
        subject = self._subject
        run = BucketRun(subject.cuda, subject.engine, subject.spec, subject.shapes, subject.buffers)
        stack.callback(run.close)
        run.bind(subject.scratch, stream=self._stream)
        chain = Chain(subject.cuda, run, stream=self._stream)
        stack.callback(chain.close_graph)
        chain.warm_up()
        return chain

    def _timed(self, launch: Callable[[], None], launches: int) -> LaunchTimes:
        host_ns: list[int] = []
        device_ns: list[float] = []
        for first in range(0, launches, ROUND_LAUNCHES):
            count = min(ROUND_LAUNCHES, launches - first)
            device_ns.append(self._round(launch, count, host_ns) / count)
        return LaunchTimes(device_ns=float(statistics.median(device_ns)), host_ns=float(statistics.median(host_ns)))

    def _round(self, launch: Callable[[], None], count: int, host_ns: list[int]) -> int:
        """Nanoseconds on the device from the first of `count` launches to the end of the last."""
        self._begun.record(stream=self._stream)
        for _ in range(count):
            before_ns = self._clock()
            launch()
            host_ns.append(self._clock() - before_ns)
        self._ended.record(stream=self._stream)
        self._stream.sync()
        return self._ended.elapsed_ns_since(self._begun)
