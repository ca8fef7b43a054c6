"""padding-waste: the device computes rows and lengths that nobody sent.

Waste is counted in time, not in elements: padding costs nothing where a smaller batch takes as long. Symptom: more than
0.15 of the device's time goes to padding by the measured costs (taxonomy class 15). Confirmed where another set of
buckets, the best by an exact dynamic program over the sizes that came, would have saved time.
"""

from __future__ import annotations

from service.diagnosis.bucket_waste import AlternativeSizes, alternative_sizes, cost_curve, wasted_share
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
    unrecorded,
    unverified,
)
from service.diagnosis.gains import device_gain
from service.diagnosis.misconceptions import DYNAMIC_IS_NOT_UNLIMITED
from service.diagnosis.observed import device_time_s
from service.diagnosis.stations import station_loads
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_probes import Interval

KIND = BottleneckClass.PADDING_WASTE
MUCH = 0.15


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether other buckets would waste less of the device's time."""
    if device_time_s(snapshot) is None or any(use.useful_volume is None for use in snapshot.buckets):
        return unrecorded(KIND, "sizes before padding")
    padded = sum(use.padded_volume for use in snapshot.buckets)
    slots = 1.0 - sum(use.useful_volume or 0 for use in snapshot.buckets) / padded
    evidence = (Evidence("padding, of the elements", slots, "ratio"),)
    if slots < MUCH:
        return refuted(KIND, f"{percent(slots)} of what is computed is padding", *evidence)
    curve = cost_curve(snapshot)
    if curve is None or _reaches_below(snapshot, curve.least_volume):
        return unverified(
            KIND,
            f"{percent(slots)} of what is computed is padding; what smaller batches would take is not known",
            *evidence,
            missing=(Missing("the time of buckets as small as what came", "P5"),),
        )
    waste = wasted_share(snapshot, curve)
    found = (Evidence("padding, of the device's time", waste, "ratio", MUCH), *evidence)
    if waste < MUCH:
        return refuted(KIND, f"padding costs {percent(waste)} of the device's time", *found)
    best = alternative_sizes(snapshot, curve)
    if best is None or best.saved <= 0.0:
        return refuted(KIND, "no other set of buckets would save time", *found)
    return _confirmed(snapshot, waste, best, found)


def _reaches_below(snapshot: MetricsSnapshot, least_volume: int) -> bool:
    """Whether nothing smaller than what ran was timed, although less was in the batches."""
    return all(use.bucket.volume <= least_volume for use in snapshot.buckets)


def _confirmed(
    snapshot: MetricsSnapshot, waste: float, best: AlternativeSizes, evidence: tuple[Evidence, ...]
) -> Finding:
    saved = Interval(best.saved, 0.75 * best.saved, max(best.saved, min(waste, 1.25 * best.saved)))
    sizes = ", ".join(map(str, best.sizes))
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"padding costs {percent(waste)} of the device's time; {best.dim} = [{sizes}] would give "
        f"{percent(best.saved)} of it back",
        evidence=(*evidence, Evidence("device time that other buckets would save", best.saved, "ratio")),
        gain=device_gain(snapshot, station_loads(snapshot), saved, GainLabel.MODELLED),
        fix=Fix("choose buckets where the traffic is", card=f"[buckets]\n{best.dim} = [{sizes}]"),
        verify="the share of padding must fall, and the device's time per row with it",
        note=DYNAMIC_IS_NOT_UNLIMITED,
    )
