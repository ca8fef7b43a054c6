"""shape-switching: a context changes its shape or profile between batches, and the first batch after is slow.

The lanes count the changes; probe P8 measures what one costs. Confirmed where rate times cost is more than 3 % of the
device's time (taxonomy class 17). A lane that keeps a context per bucket never changes, and the count is 0.
"""

from __future__ import annotations

from service.diagnosis.finding import (
    BottleneckClass,
    Evidence,
    Finding,
    Fix,
    GainLabel,
    Missing,
    Verdict,
    percent,
    refuted,
    seconds,
    unrecorded,
    unverified,
)
from service.diagnosis.gains import device_gain
from service.diagnosis.misconceptions import DYNAMIC_IS_NOT_UNLIMITED
from service.diagnosis.observed import batch_count, device_time_s, is_on_gpu
from service.diagnosis.stations import station_loads
from service.telemetry.snapshot import MetricsSnapshot

KIND = BottleneckClass.SHAPE_SWITCHING
MUCH = 0.03


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether changes of shape or profile cost time."""
    if not is_on_gpu(snapshot):
        return refuted(KIND, "the model runs on the CPU: shapes change at no cost")
    switches = snapshot.device.shape_switches if snapshot.device else None
    total_s = device_time_s(snapshot)
    if switches is None or not total_s:
        return unrecorded(KIND, "changes of shape and profile")
    evidence = (
        Evidence("changes of shape or profile", float(switches), "changes"),
        Evidence("batches", float(batch_count(snapshot)), "batches"),
    )
    if not switches:
        return refuted(KIND, "no context changed its shape or profile", *evidence)
    cost = snapshot.probes.switch_cost
    if cost is None:
        return unverified(
            KIND,
            f"contexts changed their shape {switches} times; what that costs is not known",
            *evidence,
            missing=(Missing("the first batch after a change against the next ones", "P8"),),
        )
    share = cost.scaled(switches / total_s)
    found = (*evidence, Evidence("device time of changing", share.value, "ratio", MUCH))
    if share.value <= MUCH or share.low <= 0.0:
        return refuted(KIND, f"changing shapes takes {percent(share.value)} of the device's time", *found)
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"contexts changed their shape {switches} times, {seconds(cost.value)} each: {percent(share.value)} of "
        "the device's time",
        evidence=found,
        gain=device_gain(snapshot, station_loads(snapshot), share, GainLabel.MODELLED, is_per_batch=True),
        fix=Fix("name the sizes that come, so that each has a context and a graph of its own", card=_buckets(snapshot)),
        verify="the changes must stop, and the device's time per batch must fall",
        note=DYNAMIC_IS_NOT_UNLIMITED,
    )


def _buckets(snapshot: MetricsSnapshot) -> str:
    names = snapshot.model.dim_names or ("batch",)
    return "[buckets]\n" + "\n".join(f"{name} = [ ]  # the sizes that come most" for name in names)
