"""Measures what recording costs a request and what a scrape costs: `python -m service.telemetry.recorder_cost`.

The bars are 2 microseconds per request, metrics on against metrics off, what is noted for the diagnosis alone
included, and 20 milliseconds per scrape of ten models with twelve buckets and four lanes on a GPU each. Every figure is
the best of several repeats, since other work on the machine only adds time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from service.buckets import Bucket
from service.device_figures import LaneFigures, MemoryOwner
from service.requests import BatchFacts, BatchTimings, RequestFacts, StageTimings
from service.telemetry.activity import Activity
from service.telemetry.model_recorder import FOLD_ROWS, ModelRecorder
from service.telemetry.recorder import ModelGauges, NullRecorder, Recorder

REPEATS = 25
REQUESTS_WITH_FOLDS = 40 * FOLD_ROWS
MODELS = 10
LANES = 4
BUCKETS = tuple(Bucket(2**exponent) for exponent in range(12))
OPENMETRICS = "application/openmetrics-text;version=1.0.0"

TIMINGS = StageTimings(80_000, 20_000, 5_000, 400_000, 15_000, 60_000, 2_500_000, 30_000, 25_000, 40_000, 35_000)
BATCH_TIMINGS = BatchTimings(1_000_000_000, 1_000_060_000, 1_002_560_000, 1_002_590_000)
WAITS = (100_000, 20_000)
BATCH_FACTS = BatchFacts(8)
LANE = LaneFigures(
    replays=dict.fromkeys(BUCKETS, 1_000_000),
    eager_runs=dict.fromkeys(BUCKETS, 0),
    h2d_bytes=1 << 40,
    d2h_bytes=1 << 30,
    device_bytes=dict.fromkeys(MemoryOwner, 1 << 30),
)


def _one() -> int:
    return 1


GAUGES = ModelGauges(_one, _one, _one, _one, _one, lane_figures=lambda: (LANE,) * LANES)


def record(recorder: ModelRecorder, requests: int, requests_per_batch: int) -> None:
    """Records requests, and a batch for every `requests_per_batch` of them."""
    bucket = BUCKETS[3]
    for index in range(requests):
        recorder.record_request(TIMINGS, 1, RequestFacts(*WAITS, 1, 150_000, 4_000, 30_000))
        if index % requests_per_batch == 0:
            recorder.record_batch(bucket, requests_per_batch, requests_per_batch, BATCH_TIMINGS, 0, BATCH_FACTS)


def note(requests: int, requests_per_batch: int) -> Activity:
    """Notes requests as the route and the batcher do; where."""
    activity = Activity(0)
    in_flight, waiting, arrivals = activity.in_flight, activity.waiting, activity.arrivals
    for now_ns in range(requests):
        in_flight.enter(now_ns)
        arrivals.add(now_ns, 1, (), received_ns=now_ns)
        waiting.enter(now_ns)
        if (now_ns + 1) % requests_per_batch == 0:
            waiting.leave(now_ns, requests_per_batch)
        in_flight.leave(now_ns)
    return activity


def best_s(work: Callable[[], object], *, after: Callable[[], object] = lambda: None) -> float:
    """Seconds that `work` takes at best; `after` runs outside the measurement."""
    durations = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        work()
        durations.append(time.perf_counter() - begin)
        after()
    return min(durations)


def request_ns(recorder: Recorder, requests: int, requests_per_batch: int) -> float:
    """Nanoseconds per request, including the loop that this file spends; folds happen as they come due."""
    model = recorder.for_model("model", "1", GAUGES)
    seconds = best_s(
        lambda: record(model, requests, requests_per_batch), after=lambda: recorder.statistics("model", "1")
    )
    return seconds / requests * 1e9


def loaded_recorder(registry: CollectorRegistry) -> Recorder:
    """A recorder on which every model has used every bucket."""
    recorder = Recorder(registry=registry, triton_names_enabled=True)
    for index in range(MODELS):
        model = recorder.for_model(f"model_{index}", "1", GAUGES)
        for bucket in BUCKETS:
            model.record_request(TIMINGS, bucket.padded_size)
            model.record_batch(bucket, bucket.padded_size, 1, BATCH_TIMINGS, 0)
    return recorder


def main() -> None:
    """Prints a table of both costs."""
    write = sys.stdout.write
    on = Recorder(registry=CollectorRegistry(), triton_names_enabled=True)
    off = NullRecorder()
    write(f"{'recording, ns per request':44}{'on':>8}{'off':>8}{'cost':>8}\n")
    for requests_per_batch in (1, 8):
        for label, requests in (("appends alone", FOLD_ROWS - 1), ("with folds", REQUESTS_WITH_FOLDS)):
            ns_on = request_ns(on, requests, requests_per_batch)
            ns_off = request_ns(off, requests, requests_per_batch)
            name = f"{requests_per_batch} request(s) per batch, {label}"
            write(f"{name:44}{ns_on:8.0f}{ns_off:8.0f}{ns_on - ns_off:8.0f}\n")
        notes_ns = best_s(partial(note, REQUESTS_WITH_FOLDS, requests_per_batch)) / REQUESTS_WITH_FOLDS * 1e9
        write(f"{f'{requests_per_batch} request(s) per batch, notes':44}{notes_ns:8.0f}\n")
    registry = CollectorRegistry()
    recorder = loaded_recorder(registry)
    samples = sum(len(metric.samples) for metric in registry.collect())
    write(f"\n{f'scrape of {samples} samples, ms':44}{'ours':>8}{'library':>12}\n")
    for label, accept, library in (("text", "", generate_latest), ("OpenMetrics", OPENMETRICS, generate_openmetrics)):
        ours_ms = best_s(partial(recorder.expose, accept)) * 1e3
        library_ms = best_s(partial(library, registry)) * 1e3
        write(f"{label:44}{ours_ms:8.1f}{library_ms:12.1f}\n")


if __name__ == "__main__":
    main()
