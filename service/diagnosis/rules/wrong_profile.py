"""wrong-profile: shapes run on an optimization profile whose kernels were tuned for others.

Probe P7 runs every shape on every profile that covers it. Confirmed where the profile in use costs more than 5 % of the
device's time against the best (taxonomy class 16). With a single profile there is nothing to compare: an optimum at
the traffic's most costly shape refutes it, one far from there is a reason to build another plan and try it, no more.
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
    unverified,
)
from service.diagnosis.gains import device_gain
from service.diagnosis.misconceptions import DEFAULTS_ARE_NOT_TUNED
from service.diagnosis.observed import device_time_s, is_on_gpu
from service.diagnosis.stations import station_loads
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_device import BucketUse
from service.telemetry.snapshot_probes import Interval

KIND = BottleneckClass.WRONG_PROFILE
MUCH_REGRET = 0.05
FAR = 4.0
"""An optimum that many times larger or smaller than the traffic's most costly shape is worth a try elsewhere."""


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether another profile would run the traffic's shapes sooner."""
    if not is_on_gpu(snapshot):
        return refuted(KIND, "the model runs on the CPU: there are no profiles")
    total_s = device_time_s(snapshot)
    compared = [use for use in snapshot.buckets if len(snapshot.probes.profile_costs.get(use.bucket, {})) > 1]
    if not compared or not total_s:
        return _without_comparison(snapshot)
    regret = Interval.weighted_sum((float(use.batches), _regret(snapshot, use)) for use in compared).scaled(1 / total_s)
    evidence = (Evidence("device time lost to the profile", regret.value, "ratio", MUCH_REGRET),)
    if regret.value <= MUCH_REGRET or regret.low <= 0.0:
        return refuted(KIND, f"another profile would save {percent(max(0.0, regret.value))} of the time", *evidence)
    worst = max(compared, key=lambda use: use.batches * _regret(snapshot, use).value)
    best = _best_profile(snapshot, worst)
    shape = [worst.bucket.padded_size, *worst.bucket.dims]
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"profile {worst.profile} runs the bucket {worst.bucket.label}, profile {best} would run it sooner: "
        f"{percent(regret.value)} of the device's time is lost",
        evidence=evidence,
        gain=device_gain(snapshot, station_loads(snapshot), regret, GainLabel.MEASURED),
        fix=Fix(
            f"tune a profile for the shape that costs most, rows and dims {shape}",
            card=f"[[profile]]\n# min, opt and max at {shape}",
            command=f"inferlane build {snapshot.model.name}",
        ),
        verify="the device's time per batch in that bucket must fall",
        note=DEFAULTS_ARE_NOT_TUNED,
    )


def _regret(snapshot: MetricsSnapshot, use: BucketUse) -> Interval:
    """Seconds per batch that the profile in use takes longer than the best one; 0 if it is not known which is used."""
    costs = snapshot.probes.profile_costs[use.bucket]
    if use.profile is None or use.profile not in costs or _best_profile(snapshot, use) == use.profile:
        return Interval.exactly(0.0)
    return costs[use.profile].minus(costs[_best_profile(snapshot, use)])


def _best_profile(snapshot: MetricsSnapshot, use: BucketUse) -> int:
    costs = snapshot.probes.profile_costs[use.bucket]
    return min(costs, key=lambda profile: costs[profile].value)


def _without_comparison(snapshot: MetricsSnapshot) -> Finding:
    missing = Missing("each shape on every profile, or on a plan built for it", "P7, or inferlane build and bench")
    costliest = max(snapshot.buckets, key=lambda use: use.batches * (snapshot.cost_of(use) or 0.0), default=None)
    if costliest is None or len(snapshot.model.profile_opts) != 1:
        return unverified(KIND, "no shape was tried on two profiles", missing=(missing,))
    opt, volume = snapshot.model.profile_opts[0], costliest.bucket.volume
    ratio = min(opt, volume) / max(opt, volume)
    evidence = Evidence("optimum over the costliest shape, or inversely", 1.0 / ratio, "ratio", FAR)
    if 1.0 / ratio < FAR:
        return refuted(KIND, f"the bucket {costliest.bucket.label}, which costs most, is near the optimum", evidence)
    return unverified(
        KIND,
        f"the bucket {costliest.bucket.label} costs most and is {1.0 / ratio:.1f} times away from the optimum",
        evidence,
        missing=(missing,),
        note=DEFAULTS_ARE_NOT_TUNED,
    )
