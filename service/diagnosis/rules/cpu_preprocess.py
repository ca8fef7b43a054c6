"""cpu-preprocess: decoding, resizing or tokenizing on the CPU limits, or is much of a request's time.

Symptom: the stage `prepare` is long. It is told from waiting for a thread, and from a process that gets no CPU, by CPU
seconds: the pool is the limiter from a load of 0.7 on, or the work itself (not its waiting) is a fifth of the latency
(taxonomy class 4).
"""

from __future__ import annotations

from service.diagnosis.finding import (
    BottleneckClass,
    Evidence,
    Finding,
    Fix,
    Gain,
    GainLabel,
    Missing,
    Verdict,
    percent,
    refuted,
    seconds,
    unrecorded,
    unverified,
)
from service.diagnosis.gains import at_most, latency_gain, throughput_gain, throughput_without
from service.diagnosis.misconceptions import OVERLAP_SHORTENS_NO_REQUEST
from service.diagnosis.observed import is_on_gpu, rows_per_request
from service.diagnosis.stations import SATURATED_LOAD, StationLoad, limiter, load_of, station_loads
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Stage, Station
from service.telemetry.snapshot_probes import Interval

KIND = BottleneckClass.CPU_PREPROCESS
LONG_WORK = 0.2


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether preprocessing on the CPU costs throughput or latency."""
    loads = station_loads(snapshot)
    pool, prepare = load_of(loads, Station.THREAD_POOL), snapshot.stage_share(Stage.PREPARE)
    latency_s = snapshot.latency_s
    if prepare is None or not latency_s:
        return unrecorded(KIND, "times of the stage prepare")
    if pool is None:
        return _without_pool(prepare)
    work_s = pool.service_s * rows_per_request(snapshot)
    evidence = (
        Evidence("preprocessing work, of the latency", work_s / latency_s, "ratio", LONG_WORK),
        Evidence("thread pool load", pool.load, "ratio", SATURATED_LOAD),
        Evidence("prepare, of the latency", prepare, "ratio"),
        Evidence("preprocessing work per row", pool.service_s, "s"),
    )
    first = limiter(loads)
    is_limiter = first is pool and pool.load >= SATURATED_LOAD
    if not is_limiter and work_s / latency_s < LONG_WORK:
        return refuted(KIND, _why_not(prepare, work_s / latency_s), *evidence)
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"preprocessing takes {seconds(pool.service_s)} of a core per row, {percent(work_s / latency_s)} of "
        f"the latency; its threads are {percent(pool.load)} loaded",
        evidence=evidence,
        gain=_gain(snapshot, loads, pool, is_limiter=is_limiter),
        fix=_fix(snapshot),
        verify="CPU seconds per row of the thread pool must fall, and the stage prepare with them",
        note=OVERLAP_SHORTENS_NO_REQUEST,
    )


def _without_pool(prepare: float) -> Finding:
    evidence = Evidence("prepare, of the latency", prepare, "ratio", LONG_WORK)
    summary = f"preparing takes {percent(prepare)} of the latency"
    if prepare < LONG_WORK:
        return refuted(KIND, summary, evidence)
    missing = (Missing("CPU seconds of the thread pool", "P11"),)
    return unverified(KIND, f"{summary}; how much of that is work is not known", evidence, missing=missing)


def _why_not(prepare: float, work: float) -> str:
    if prepare < LONG_WORK:
        return f"preparing takes {percent(prepare)} of the latency"
    return f"preparing takes {percent(prepare)} of the latency, of which {percent(work)} is work: the rest is waiting"


def _gain(
    snapshot: MetricsSnapshot, loads: tuple[StationLoad, ...], pool: StationLoad, *, is_limiter: bool
) -> Gain | None:
    """Against the kernels on the device where probe P11 timed them; else at most all of the work goes."""
    device = snapshot.probes.device_preprocess
    if is_limiter:
        if device is None:
            return throughput_without(loads, Station.THREAD_POOL)
        least_s = pool.service_s / 100.0
        factors = (pool.service_s / max(least_s, end) for end in (device.value, device.high, device.low))
        return throughput_gain(loads, Station.THREAD_POOL, Interval(*factors), GainLabel.MODELLED)
    rows = rows_per_request(snapshot)
    if device is None:
        return latency_gain(snapshot, at_most(pool.service_s * rows), GainLabel.UPPER_BOUND)
    removed = Interval.exactly(pool.service_s).minus(device).scaled(rows)
    return latency_gain(snapshot, removed, GainLabel.MODELLED)


def _fix(snapshot: MetricsSnapshot) -> Fix:
    if is_on_gpu(snapshot) and snapshot.model.has_media_form:
        return Fix("send media that the model's kernels take, so that the GPU preprocesses them: see docs/tasks")
    if is_on_gpu(snapshot):
        return Fix("name the task in the card, so that the GPU preprocesses", card='task = "classify"  # or what it is')
    return Fix("send media near the model's size, or give the server more cores", command="INFERLANE_CPU_THREADS=16")
