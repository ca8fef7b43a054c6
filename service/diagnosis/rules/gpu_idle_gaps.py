"""gpu-idle-gaps: the device is idle although requests wait.

Symptom: the device is busy less than 0.8 of the time beside a backlog (taxonomy class 13). Confirmed by the gaps
themselves: idle time during which requests waited, by cause (as Holistic Trace Analysis tells host wait from the rest),
above a tenth of the window. Gaps in which a batch is kept open are batch-formation-delay's; gaps without waiting
requests are none.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.diagnosis.finding import (
    BottleneckClass,
    Evidence,
    Finding,
    Fix,
    Gain,
    GainLabel,
    GainMetric,
    Verdict,
    percent,
    refuted,
    unrecorded,
)
from service.diagnosis.misconceptions import HOST_TIMERS_LIE
from service.diagnosis.observed import is_on_gpu
from service.diagnosis.stations import StationLoad, load_of, resources, station_loads
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_device import GapCause
from service.telemetry.snapshot_load import Station

KIND = BottleneckClass.GPU_IDLE_GAPS
LONG_GAPS = 0.1
BUSY = 0.8

FIXES: Mapping[GapCause, Fix] = {
    GapCause.HOST_SUBMIT: Fix(
        "let the host hand batches over sooner: a graph for every bucket, another lane, a core that is free for it",
        card="[lanes]\ncount = 2",
    ),
    GapCause.SYNC_NOTIFY: Fix(
        "let lanes learn of a batch's end sooner, at the price of a core each", card='[lanes]\ncompletion = "spin"'
    ),
    GapCause.COPY: Fix("let copies overlap with computing: a second lane", card="[lanes]\ncount = 2"),
}


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether the device waits for the host while requests wait for the device."""
    if not is_on_gpu(snapshot):
        return refuted(KIND, "the model runs on the CPU: its lanes' threads run batch after batch")
    loads = station_loads(snapshot)
    device = load_of(loads, Station.DEVICE)
    gaps_s = snapshot.device.idle_with_backlog_s if snapshot.device else None
    if device is None or gaps_s is None:
        return unrecorded(KIND, "gaps of the device while requests wait")
    ours_s = {cause: gaps_s.get(cause, 0.0) for cause in FIXES}
    share = sum(ours_s.values()) / snapshot.window.duration_s
    evidence = (
        Evidence("idle while requests wait", share, "ratio", LONG_GAPS),
        Evidence("device utilisation", device.utilisation, "ratio", BUSY),
        *(Evidence(f"of it {cause.value}", gap_s, "s") for cause, gap_s in ours_s.items()),
    )
    if share <= LONG_GAPS or device.utilisation >= BUSY:
        return refuted(KIND, f"the device was idle for {percent(share)} of the time while requests waited", *evidence)
    cause = max(ours_s, key=lambda cause: ours_s[cause])
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"the device was idle for {percent(share)} of the time although requests waited, most of it for "
        f"{cause.value}",
        evidence=evidence,
        gain=_gain(snapshot, loads, device, share),
        fix=FIXES[cause],
        verify=f"the device's utilisation must pass {BUSY:.1f} under the same load, or the wait for a lane must fall",
        note=HOST_TIMERS_LIE,
    )


def _gain(snapshot: MetricsSnapshot, loads: tuple[StationLoad, ...], device: StationLoad, share: float) -> Gain | None:
    """Without the gaps the same work takes less time; the next station caps what comes of it."""
    others = [load.capacity_rows_per_s for load in resources(loads) if load is not device]
    cap = min(others, default=float("inf")) / snapshot.rows_per_s - 1.0 if snapshot.rows_per_s else 0.0
    value = max(0.0, min(share / device.utilisation, cap))
    return Gain(GainMetric.THROUGHPUT, value, 0.75 * value, min(1.25 * value, max(value, cap)), GainLabel.MODELLED)
