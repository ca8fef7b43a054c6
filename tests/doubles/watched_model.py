"""A model that a history can watch, with a real recorder and activity and a clock that a test moves."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from prometheus_client import CollectorRegistry

from service.buckets import Bucket
from service.device_figures import GraphMiss, LaneFigures, MissReason
from service.requests import NO_FACTS, BatchFacts, BatchTimings, DeviceTimings, RequestFacts, StageTimings
from service.telemetry.activity import Activity, Occupancy
from service.telemetry.figures import ModelGauges
from service.telemetry.front_ends import FrontEnds
from service.telemetry.gpu_figures import GpuFigures
from service.telemetry.history import History, ModelSource, Senses
from service.telemetry.host_counters import HostCounters
from service.telemetry.recorder import Recorder
from service.telemetry.snapshot import ModelFacts
from service.units import NS_PER_MS, NS_PER_S

BUCKET = Bucket(4)
STAGES_MS = StageTimings(1, 2, 3, 40, 5, 6, 70, 8, 9, 10, 11)
"""A request of 165 ms."""


def ms(timings: StageTimings) -> StageTimings:
    return StageTimings(*(stage * NS_PER_MS for stage in timings))


class WatchedModel:
    """Model `m`, or whatever `name` says, that serves since second 0."""

    def __init__(self, recorder: Recorder, *, name: str = "m", backend: str = "onnxruntime", lanes: int = 1) -> None:
        self.lane_figures: tuple[LaneFigures, ...] = ()
        self.activity = Activity(0)
        gauges = ModelGauges(int, int, int, lambda: lanes, int, lane_figures=lambda: self.lane_figures)
        self.recorder = recorder.for_model(name, "1", gauges)
        self.source = ModelSource(
            facts=ModelFacts(name=name, version="1", backend=backend),
            activity=self.activity,
            figures=lambda: recorder.model_figures(name, "1"),
            costs_s=MappingProxyType({Bucket(4): 0.07}),
            ready_ns=2 * NS_PER_S,
            lanes=lanes,
            lane_depth=2 if backend == "tensorrt" else 1,
        )

    def answer(self, at_s: float, *, rows: int = 1, facts: RequestFacts = NO_FACTS) -> None:
        """A request that came `sum(STAGES_MS)` before `at_s` and was answered then."""
        timings = ms(STAGES_MS)
        at_ns = int(at_s * NS_PER_S)
        self.recorder.record_request(timings, rows, facts)
        self.activity.in_flight.add_stay(at_ns - sum(timings), at_ns)
        came_ns = at_ns - sum(timings)
        self.activity.arrivals.add(came_ns, rows, (), received_ns=came_ns)

    def run_batch(
        self,
        at_s: float,
        *,
        bucket: Bucket = BUCKET,
        rows: int = 3,
        lane: int = 0,
        device: DeviceTimings | None = None,
        facts: BatchFacts | None = None,
    ) -> None:
        """A batch that took 84 ms, of which 70 ms computing, and ended at `at_s`."""
        end_ns = int(at_s * NS_PER_S)
        moments = (end_ns - 84 * NS_PER_MS, end_ns - 78 * NS_PER_MS, end_ns - 8 * NS_PER_MS, end_ns)
        timings = BatchTimings(*moments, device)
        self.recorder.record_batch(bucket, rows, 1, timings, lane, facts or BatchFacts(rows))

    def reload(self) -> None:
        self.activity = Activity(0)
        self.source = replace(self.source, activity=self.activity)


class WatchedServer:
    """A history over watched models; `now_s` is both clocks' time."""

    def __init__(self, *, length_s: int = 60) -> None:
        self.now_s = 10.0
        self.cpu_s = 0.0
        self.delay_s: float | None = None
        self.wall_offset_s = 1.8e9
        self.host: HostCounters | None = None
        self.gpus: tuple[GpuFigures, ...] = ()
        self.experiments = Occupancy(0)
        self.front_ends = FrontEnds()
        self.recorder = Recorder(registry=CollectorRegistry(), triton_names_enabled=False)
        self.models: list[WatchedModel] = []
        senses = Senses(
            loop_lag=self.recorder.loop_lag,
            host=lambda: self.host,
            gpus=lambda: self.gpus,
            experiments=self.experiments.marks,
            front_ends=self.front_ends.moments,
            clock=lambda: int(self.now_s * NS_PER_S),
            clock_unix_ns=lambda: int((self.now_s + self.wall_offset_s) * NS_PER_S),
            loop_cpu_ns=lambda: int(self.cpu_s * NS_PER_S),
            loop_delay_ns=lambda: None if self.delay_s is None else int(self.delay_s * NS_PER_S),
        )
        self.history = History(lambda: [model.source for model in self.models], senses, length_s=length_s)

    def add(self, **model) -> WatchedModel:
        self.models.append(WatchedModel(self.recorder, **model))
        return self.models[-1]

    def pass_seconds(self, seconds: int) -> None:
        """Keeps the present moment and those of the next seconds, the last of which is now."""
        for _ in range(seconds):
            self.history.keep()
            self.now_s += 1.0


def lane_on_gpu(replays: int = 5, eager_runs: int = 2) -> LaneFigures:
    """A lane whose bucket of 4 lost its graph on the way."""
    return LaneFigures(
        replays={Bucket(4): replays},
        eager_runs={Bucket(4): eager_runs},
        graph_misses={Bucket(4): GraphMiss(MissReason.NOT_CAPTURABLE, "a sync")},
        h2d_bytes=1000 * replays,
        d2h_bytes=100 * replays,
    )
