"""What the server records, per model and for itself, and how it is read: a scrape, `/stats`, the diagnosis."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder

from service.telemetry.collector import FiguresCollector
from service.telemetry.device_totals import NO_TOTALS, DeviceTotals
from service.telemetry.exposition import render
from service.telemetry.figures import ModelFigures, ModelGauges, ServerFigures
from service.telemetry.front_ends import FrontEnds
from service.telemetry.gpu_figures import GpuFigures
from service.telemetry.histogram import Histograms
from service.telemetry.metrics import INTERNAL, LATENCY_BOUNDS_NS, REASONS
from service.telemetry.model_recorder import BufferedModelRecorder, ModelRecorder, NullModelRecorder, PackedRecorder
from service.telemetry.statistics import ModelStatistics
from service.units import NS_PER_MS

__all__ = ["ModelGauges", "ModelRecorder", "NullModelRecorder", "NullRecorder", "Recorder"]


def _unix_ms() -> int:
    return time.time_ns() // NS_PER_MS


class Recorder:
    """Records everything of one server and exposes it on a registry.

    `record_*` belong to the event loop, everything else may be called on any thread.

    Args:
        registry: takes the collectors of the server's, the process's and Python's own metrics.
        triton_names_enabled: whether the figures are repeated under Triton's names.
        gpus: the latest figures of the GPUs that models use.
        clock_unix_ms: tells milliseconds since 1970.

    Attributes:
        front_ends: those in processes of their own.
    """

    def __init__(
        self,
        *,
        registry: CollectorRegistry,
        triton_names_enabled: bool,
        gpus: Callable[[], tuple[GpuFigures, ...]] = tuple,
        clock_unix_ms: Callable[[], int] = _unix_ms,
    ) -> None:
        self._registry = registry
        self._gpus = gpus
        self._clock_unix_ms = clock_unix_ms
        self._models_lock = threading.Lock()
        self._models: dict[tuple[str, str], BufferedModelRecorder] = {}
        self._gauges: dict[tuple[str, str], ModelGauges] = {}
        self._retired: dict[tuple[str, str], DeviceTotals] = {}
        self._unattributed_failures = dict.fromkeys(REASONS, 0)
        self._loop_lag = Histograms.empty(LATENCY_BOUNDS_NS)
        self._open_streams = 0
        self._dropped_frames = 0
        self.front_ends = FrontEnds()
        registry.register(FiguresCollector(self.figures, triton_names_enabled=triton_names_enabled))
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)

    def for_model(self, name: str, version: str, gauges: ModelGauges) -> ModelRecorder:
        """The recorder of a loaded model version; the same one after a reload, so that counters never fall.

        Of what the device did, batches that an earlier load still finishes afterwards are left out.

        Args:
            name: the model's name.
            version: its version.
            gauges: its present state, in place of what an earlier load gave.
        """
        key = (name, version)
        with self._models_lock:
            self._retire(key)
            self._gauges[key] = gauges
            if key not in self._models:
                self._models[key] = BufferedModelRecorder(name, version, self._clock_unix_ms)
            return self._models[key]

    def find_model(self, name: str, version: str) -> PackedRecorder | None:
        """The recorder of a model version that is or was loaded; None if it never was."""
        with self._models_lock:
            return self._models.get((name, version))

    def forget(self, name: str, version: str) -> None:
        """Shows no gauges for a model version that was unloaded; its counters remain. Does nothing if unknown.

        A reload calls it before `for_model`, or not at all: afterwards it would drop the new load's gauges.
        """
        with self._models_lock:
            self._retire((name, version))

    def record_unattributed(self, reason: str) -> None:
        """Counts a failed request of no served model, whose name must not become a label."""
        self._unattributed_failures[reason if reason in self._unattributed_failures else INTERNAL] += 1

    def record_loop_lag(self, lag_ns: int) -> None:
        """Counts one sample of the event loop's lateness, in nanoseconds; costs too much for every request."""
        self._loop_lag = self._loop_lag.plus(np.array([[lag_ns]], np.int64))

    def record_streams(self, change: int) -> None:
        """Counts a stream that was opened, with 1, or has ended, with -1."""
        self._open_streams += change

    def record_dropped_frame(self) -> None:
        """Counts a frame that gave way to a newer one, and never became a request."""
        self._dropped_frames += 1

    def figures(self) -> ServerFigures:
        """Everything recorded so far."""
        with self._models_lock:
            models = [
                (model, self._gauges.get(key), self._retired.get(key, NO_TOTALS)) for key, model in self._models.items()
            ]
        return ServerFigures(
            models=tuple(model.figures(gauges, retired) for model, gauges, retired in models),
            unattributed_failures=self._unattributed_failures.copy(),
            loop_lag=self._loop_lag,
            gpus=self._gpus(),
            open_streams=self._open_streams,
            dropped_frames=self._dropped_frames,
            front_ends=self.front_ends.moments(),
            restarts=self.front_ends.restarts,
        )

    def statistics(self, name: str, version: str) -> ModelStatistics:
        """Statistics of one model version, all zero if it was never loaded."""
        with self._models_lock:
            model = self._models.get((name, version))
        return ModelStatistics() if model is None else ModelStatistics.of(model.figures(None))

    def model_figures(self, name: str, version: str) -> ModelFigures | None:
        """Everything recorded so far for one model version; None if it was never loaded, or nothing is recorded."""
        key = (name, version)
        with self._models_lock:
            model, gauges = self._models.get(key), self._gauges.get(key)
            retired = self._retired.get(key, NO_TOTALS)
        return None if model is None else model.figures(gauges, retired)

    def loop_lag(self) -> Histograms:
        """Lateness of the event loop so far, in nanoseconds."""
        return self._loop_lag

    def _retire(self, key: tuple[str, str]) -> None:
        gauges = self._gauges.pop(key, None)
        if gauges is not None:
            before = self._retired.get(key, NO_TOTALS)
            self._retired[key] = before.plus(DeviceTotals.of(gauges.lane_figures()))

    def expose(self, accept: str = "") -> tuple[bytes, str]:
        """Everything in the registry; takes milliseconds, so call it on another thread than the event loop's.

        Args:
            accept: the `Accept` header; OpenMetrics if it asks for that, else Prometheus' text format.

        Returns:
            The payload and its content type.
        """
        _, content_type = choose_encoder(accept)
        is_openmetrics = content_type.startswith("application/openmetrics-text")
        return render(self._registry.collect(), is_openmetrics=is_openmetrics), content_type


class NullRecorder(Recorder):
    """A `Recorder` that records nothing and exposes nothing: metrics are off. Overrides every method."""

    def __init__(self) -> None:
        self._model = NullModelRecorder()
        self.front_ends = FrontEnds()

    def for_model(self, name: str, version: str, gauges: ModelGauges) -> ModelRecorder:
        """A recorder that records nothing."""
        return self._model

    def find_model(self, name: str, version: str) -> PackedRecorder | None:
        """Likewise."""
        return self._model

    def forget(self, name: str, version: str) -> None:
        """Does nothing."""

    def record_unattributed(self, reason: str) -> None:
        """Does nothing."""

    def record_loop_lag(self, lag_ns: int) -> None:
        """Does nothing."""

    def record_streams(self, change: int) -> None:
        """Does nothing."""

    def record_dropped_frame(self) -> None:
        """Does nothing."""

    def figures(self) -> ServerFigures:
        """No models, all zero."""
        return ServerFigures((), dict.fromkeys(REASONS, 0), Histograms.empty(LATENCY_BOUNDS_NS), ())

    def statistics(self, name: str, version: str) -> ModelStatistics:
        """All zero."""
        return ModelStatistics()

    def model_figures(self, name: str, version: str) -> ModelFigures | None:
        """Nothing."""
        return None

    def loop_lag(self) -> Histograms:
        """Nothing."""
        return Histograms.empty(LATENCY_BOUNDS_NS)

    def expose(self, accept: str = "") -> tuple[bytes, str]:
        """Nothing."""
        return b"", choose_encoder(accept)[1]
