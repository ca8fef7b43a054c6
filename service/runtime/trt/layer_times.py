"""Times an engine's layers one by one, as they run when serving: by the graph's replay where the bucket has a graph.

TensorRT puts events between the layers of a context that has a profiler, into graphs captured from it too. They keep
layers from overlapping and lengthen each: on an H200 the layers of ResNet-50 added up to 1.5 times the real time. So
the profiler gets a context and a graph of its own, and whole executions without it are timed between its runs.
"""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from service.errors import ExecutionFailed
from service.layers.completed import completed
from service.layers.onnx_graph import read_graph
from service.models import ModelSpec
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.memory import DeviceBuffer
from service.runtime.cuda.stream import Stream
from service.runtime.layer_trace import LayerTrace, TracedLayer
from service.runtime.trt.buffers import BufferSet
from service.runtime.trt.chain import Chain
from service.runtime.trt.engine import Engine
from service.runtime.trt.inspector import LayerInfo, inspect, without_profile
from service.runtime.trt.operations import operation
from service.runtime.trt.profiles import BucketShapes
from service.runtime.trt.runs import BucketRun

AS_IS = "as-is"

_COMPUTED_IN = {"fp16": "FP16", "bf16": "BF16"}
"""What regions compute in, by the card's precision: TensorRT tells it of no region. Of INT8 and FP8 parts are FP16."""

Report: TypeAlias = list[tuple[str, float]]
"""Names of layers and milliseconds, in the order of execution."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is profiled, and on whose memory.

    Attributes:
        cuda: the process's CUDA.
        engine: what is executed.
        spec: the model.
        shapes: the bucket.
        buffers: the probe's.
        scratch: likewise; None if the profile needs none.
        stream: likewise; it outlives all that is made here.
    """

    cuda: Cuda
    engine: Engine
    spec: ModelSpec
    shapes: BucketShapes
    buffers: BufferSet
    scratch: DeviceBuffer | None
    stream: Stream


class ProfiledRun(BucketRun):
    """A bucket whose context has a profiler."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject.cuda, subject.engine, subject.spec, subject.shapes, subject.buffers)
        self._report: Report = []
        self._profiler = _native_profiler(subject.engine.flavour.module.IProfiler, self._report)

    def bind(self, scratch: DeviceBuffer | None, *, stream: Stream) -> None:
        """As `BucketRun.bind`, with the profiler."""
        super().bind(scratch, stream=stream)
        assert self._context is not None
        self._context.attach_profiler(self._profiler)

    def take_report(self) -> Report:
        """The times of the latest run, which must be done; empty where TensorRT tells none."""
        assert self._context is not None, "bind comes before the first run"
        self._report.clear()
        is_told = self._context.report_layers()
        return list(self._report) if is_told else []

    def describe(self) -> tuple[LayerInfo, ...]:
        """The layers of the bucket's profile in its own shapes; empty where TensorRT has no inspector."""
        info = inspect(self._engine, self._context)
        return () if info is None else tuple(each for each in info.layers if each.profile == self._shapes.profile)


def trace_layers(subject: Subject, runs: int, time_span_ns: Callable[[], float]) -> LayerTrace:
    """Runs the bucket `runs` times with the profiler; blocking.

    Args:
        subject: what is profiled.
        runs: at least 1.
        time_span_ns: times one execution without the profiler; called before each run with it.

    Raises:
        ModelLoadFailed: TensorRT refuses another context.
        ExecutionFailed: the model does not run, or the profiler tells nothing.
        DeviceError: CUDA failed.
    """
    with closing(ProfiledRun(subject)) as run:
        run.bind(subject.scratch, stream=subject.stream)
        chain = Chain(subject.cuda, run, stream=subject.stream)
        try:
            chain.warm_up()
            _give_up_silent_graph(chain, run)
            spans_ns, reports = [], []
            for _ in range(runs):
                spans_ns.append(time_span_ns())
                reports.append(_reported(chain, run))
            return LayerTrace(
                span_s=statistics.median(spans_ns) / 1e9,
                layers=join(times_by_layer(reports), run.describe()),
                runs=runs,
                is_replayed=chain.graph is not None,
                are_overlapping=subject.engine.native.num_aux_streams > 0,
            )
        finally:
            chain.close_graph()


def with_onnx(trace: LayerTrace, subject: Subject, onnx_path: Path) -> LayerTrace:
    """The trace with what the ONNX model says of its layers; unchanged where that cannot be read.

    Args:
        trace: of the subject.
        subject: what was profiled.
        onnx_path: the model that the plan was built from.
    """
    names = (tensor.name for tensor in subject.spec.inputs)
    graph = read_graph(onnx_path, dict(zip(names, subject.shapes.inputs, strict=True)))
    if graph is None:
        return trace
    asked = subject.spec.card.precision.mode
    dtype = _COMPUTED_IN.get(asked, graph.dtype if asked == AS_IS else "")
    return replace(trace, layers=completed(trace.layers, graph, dtype))


def times_by_layer(reports: Sequence[Report]) -> list[tuple[str, tuple[float, ...]]]:
    """Names and seconds, one of each report, in the order of the first one.

    Names may repeat within a report: the second layer of a name is joined with the second ones.
    """
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    for report in reports:
        seen: dict[str, int] = defaultdict(int)
        for name, milliseconds in report:
            times[name, seen[name]].append(milliseconds / 1e3)
            seen[name] += 1
    return [(name, tuple(values)) for (name, _), values in times.items()]


def join(times: Iterable[tuple[str, tuple[float, ...]]], layers: Iterable[LayerInfo]) -> tuple[TracedLayer, ...]:
    """Times with what their layers are, by name and, where a name repeats, by order.

    A layer that the inspector does not list has its name alone. One that takes no time, such as a constant, is left out
    by the profiler, and so here.
    """
    waiting: dict[str, deque[LayerInfo]] = defaultdict(deque)
    for layer in layers:
        waiting[without_profile(layer.name)].append(layer)
    traced = []
    for name, times_s in times:
        same = waiting[without_profile(name)]
        traced.append(TracedLayer(operation(same.popleft() if same else LayerInfo(name, "", {})), times_s))
    return tuple(traced)


def _reported(chain: Chain, run: ProfiledRun) -> Report:
    if chain.graph is not None:
        chain.replay()
    else:
        chain.execute_eagerly()
    chain.stream.sync()
    report = run.take_report()
    if not report and chain.graph is None:
        raise ExecutionFailed(
            f"TensorRT told its profiler of no layer: {run.take_errors()}; build the plan with this version's own "
            "builder, or leave the layers out"
        )
    return report


def _give_up_silent_graph(chain: Chain, run: ProfiledRun) -> None:
    """Before CUDA 11.1 a graph has no times of layers; the same work, given piece by piece, has."""
    if chain.graph is not None and not _reported(chain, run):
        chain.close_graph()


def _native_profiler(base: Any, report: Report) -> Any:
    """What TensorRT calls. The class is made here: its base is known once TensorRT is imported."""

    class Profiler(base):  # type: ignore[misc]
        """As TensorRT's interface asks."""

        def __init__(self) -> None:
            base.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            report.append((layer_name, ms))

    return Profiler()
