"""lane-count: too few lanes to fill the device, or more than it has room for.

Probe P4 runs full batches on 1, 2, ... lanes without host work. Too few: more lanes reach at least 1.1 times the rate
of the present ones, and the device limits. Too many: fewer reach 0.95 of it, and batches take 1.1 times as long in
traffic as alone, by as much as lanes were busy side by side (taxonomy class 14: a lane whose marginal gain is below
5 % only slows the others). Batches that are slow for other reasons, such as launches or clocks, are so on one lane too.
"""

from __future__ import annotations

from collections.abc import Mapping

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
from service.diagnosis.gains import at_most, latency_gain, throughput_gain
from service.diagnosis.misconceptions import LANES_DO_NOT_MULTIPLY
from service.diagnosis.observed import device_time_s
from service.diagnosis.stations import SATURATED_LOAD, is_device_saturated, load_of, station_loads
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Stage, Station
from service.telemetry.snapshot_probes import Interval

KIND = BottleneckClass.LANE_COUNT
ENOUGH_MORE = 1.1
AS_GOOD = 0.95
SLOWED = 1.1


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether another number of lanes would serve more, or the same sooner."""
    lanes = snapshot.device.lanes if snapshot.device else None
    rates = snapshot.probes.lane_rates
    if lanes is None or lanes not in rates or len(rates) < 2:
        return unverified(
            KIND,
            "what other numbers of lanes would reach is not known",
            missing=(Missing("full batches on one lane, on two, and so on", "P4"),),
        )
    best = max(rates, key=lambda count: rates[count].value)
    # Of about equal ones the fewest, as the server itself chooses.
    enough = min(count for count in rates if rates[count].value >= AS_GOOD * rates[best].value)
    ratio = rates[enough].value / rates[lanes].value
    evidence = (
        Evidence("lanes", float(lanes), "lanes"),
        Evidence("lanes that are enough", float(enough), "lanes"),
        Evidence("their rate over the present one", ratio, "ratio", ENOUGH_MORE),
    )
    if enough > lanes and ratio >= ENOUGH_MORE and rates[enough].low > rates[lanes].high:
        return _too_few(snapshot, lanes, enough, evidence)
    if enough < lanes:
        return _too_many(snapshot, rates, enough, evidence)
    return refuted(KIND, f"{lanes} lanes are what the device has room for", *evidence, note=LANES_DO_NOT_MULTIPLY)


def _too_few(snapshot: MetricsSnapshot, lanes: int, enough: int, evidence: tuple[Evidence, ...]) -> Finding:
    loads, rates = station_loads(snapshot), snapshot.probes.lane_rates
    device = load_of(loads, Station.DEVICE)
    if device is not None and device.is_doubtful:
        return unrecorded(KIND, "costs of full batches (the cost table, or probe P4)", *evidence)
    if device is None or not is_device_saturated(loads):
        load = device.load if device else 0.0
        return refuted(
            KIND,
            f"{enough} lanes would reach more, but the device is only {percent(load)} loaded",
            *evidence,
            Evidence("device load", load, "ratio", SATURATED_LOAD),
        )
    now, then = rates[lanes], rates[enough]
    speed_up = Interval(then.value / now.value, then.low / now.high, then.high / now.low)
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"{enough} lanes reach {then.value:.4g} rows/s, the present {lanes} reach {now.value:.4g}",
        evidence=evidence,
        gain=throughput_gain(loads, Station.DEVICE, speed_up, GainLabel.MEASURED),
        fix=Fix("add lanes", card=f"[lanes]\ncount = {enough}"),
        verify="rows per second must grow",
    )


def _too_many(
    snapshot: MetricsSnapshot, rates: Mapping[int, Interval], enough: int, evidence: tuple[Evidence, ...]
) -> Finding:
    """Lanes that are idle harm nobody: only where batches are slower in traffic than alone do they cost time."""
    together = snapshot.device.lanes_busy_mean if snapshot.device else None
    taken = _slowed(snapshot)
    if taken is None or together is None:
        return unverified(
            KIND,
            f"{enough} lanes reach as much; whether the others slow them is not known",
            *evidence,
            missing=(Missing("the time of batches in traffic and alone, and lanes busy at once", "P5"),),
        )
    slowed = min(taken, together)
    evidence = (
        *evidence,
        Evidence("time of a batch in traffic over alone", taken, "ratio", SLOWED),
        Evidence("lanes busy side by side", together, "lanes", SLOWED),
    )
    if slowed < SLOWED:
        return refuted(KIND, f"{enough} lanes reach as much, but the others slow nothing", *evidence)
    compute_s = snapshot.stage_s(Stage.COMPUTE) or 0.0
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"{enough} lanes reach {percent(rates[enough].value / max(rate.value for rate in rates.values()))} of "
        f"the most; side by side, batches take {slowed:.2f} times as long as alone",
        evidence=evidence,
        gain=latency_gain(snapshot, at_most(compute_s * (1.0 - 1.0 / slowed)), GainLabel.UPPER_BOUND),
        fix=Fix("take lanes away, which frees their memory too", card=f"[lanes]\ncount = {enough}"),
        verify="the device's time per batch must fall, and rows per second must stay",
        note=LANES_DO_NOT_MULTIPLY,
    )


def _slowed(snapshot: MetricsSnapshot) -> float | None:
    """Time of the batches in traffic over what the cost table says of them alone."""
    known = [use for use in snapshot.buckets if use.compute and use.bucket in snapshot.costs_s]
    alone_s = sum(use.batches * snapshot.costs_s[use.bucket] for use in known)
    taken_s = device_time_s(snapshot)
    return taken_s / alone_s if known and len(known) == len(snapshot.buckets) and taken_s and alone_s else None
