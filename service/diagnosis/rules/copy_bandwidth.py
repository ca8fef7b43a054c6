"""copy-bandwidth: bytes between host and device take longer than computing on them.

Symptom: a copy takes as long as the model (trtexec's warning: h2d or d2h at least the GPU's time), or copies that
overlapping does not hide add a tenth to a batch (probe P3; taxonomy class 5). It is told from copies through pageable
memory by their speed: at least half of what pinned memory reaches (probe P2), or no pageable copy counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from service.diagnosis.copies import CopyTimes, copy_times
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
    unverified,
)
from service.diagnosis.gains import at_most, latency_gain, throughput_gain
from service.diagnosis.misconceptions import GRAPH_MOVES_NO_BYTES
from service.diagnosis.observed import is_on_gpu
from service.diagnosis.stations import SATURATED_LOAD, limiter, station_loads
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Station
from service.telemetry.snapshot_probes import Interval

KIND = BottleneckClass.COPY_BANDWIDTH
AS_LONG_AS_COMPUTE = 1.0
EXPOSED = 0.1
QUICK = 0.5


@dataclass(frozen=True, slots=True)
class _Symptom:
    copies: CopyTimes
    ratio: float
    exposed: Interval | None

    @property
    def is_there(self) -> bool:
        return self.ratio >= AS_LONG_AS_COMPUTE or (self.exposed is not None and self.exposed.low > EXPOSED)


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether the bytes of inputs and outputs limit."""
    if not is_on_gpu(snapshot):
        return refuted(KIND, "the model runs on the CPU: nothing is copied to a device")
    copies = copy_times(snapshot)
    if copies is None:
        return unverified(
            KIND,
            "how long copies took by the device's clock is not known",
            missing=(Missing("device times of the copies", "P3"),),
        )
    symptom = _Symptom(copies, max(copies.h2d_s, copies.d2h_s) / copies.compute_s, _exposed_share(snapshot, copies))
    evidence = _evidence(symptom)
    if not symptom.is_there:
        return refuted(KIND, f"copies take {percent(symptom.ratio)} of the model's time", *evidence)
    speed = copies.pinned_ratio
    if speed is not None and speed < QUICK:
        return refuted(
            KIND, f"copies run at {percent(speed)} of what pinned memory reaches: not the bytes are at fault", *evidence
        )
    if speed is None and (snapshot.device is None or snapshot.device.pageable_copies != 0):
        return unverified(
            KIND,
            f"copies take {percent(symptom.ratio)} of the model's time; whether they could be quicker is not known",
            *evidence,
            missing=(Missing("the bandwidth of pinned memory", "P2"),),
        )
    direction = "in" if copies.h2d_s >= copies.d2h_s else "out"
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary=f"copying {direction} takes {seconds(max(copies.h2d_s, copies.d2h_s) / copies.batches)} per batch, "
        f"computing {seconds(copies.compute_s / copies.batches)}",
        evidence=evidence,
        gain=_gain(snapshot, symptom),
        fix=_fix(direction),
        verify="bytes copied per row must fall, and the device's copy time below its computing time",
        note=GRAPH_MOVES_NO_BYTES,
    )


def _evidence(symptom: _Symptom) -> tuple[Evidence, ...]:
    evidence = [Evidence("longer copy over computing", symptom.ratio, "ratio", AS_LONG_AS_COMPUTE)]
    if symptom.exposed is not None:
        evidence.append(Evidence("copies not hidden, of a batch", symptom.exposed.value, "ratio", EXPOSED))
    if symptom.copies.pinned_ratio is not None:
        evidence.append(Evidence("speed over pinned memory's", symptom.copies.pinned_ratio, "ratio", QUICK))
    return tuple(evidence)


def _exposed_share(snapshot: MetricsSnapshot, copies: CopyTimes) -> Interval | None:
    """What copies add to the device's time although they overlap, over the buckets that probe P3 ran."""
    probed = [(use, snapshot.probes.exposed_copy.get(use.bucket)) for use in snapshot.buckets]
    known = [(float(use.batches), exposed) for use, exposed in probed if exposed is not None]
    return Interval.weighted_sum(known).scaled(1.0 / copies.compute_s) if known else None


def _gain(snapshot: MetricsSnapshot, symptom: _Symptom) -> Gain | None:
    """The copy engine's cap where it limits; what P3 measured otherwise; else at most the copies' whole time."""
    loads = station_loads(snapshot)
    first = limiter(loads)
    if first is not None and first.station in (Station.H2D, Station.D2H) and first.load >= SATURATED_LOAD:
        return throughput_gain(loads, first.station, Interval(4.0, 1.0, 4.0), GainLabel.UPPER_BOUND)
    if symptom.exposed is not None:
        exposed = symptom.exposed.scaled(symptom.copies.compute_s / symptom.copies.batches)
        return latency_gain(snapshot, exposed, GainLabel.MODELLED)
    copies = symptom.copies
    return latency_gain(snapshot, at_most((copies.h2d_s + copies.d2h_s) / copies.batches), GainLabel.UPPER_BOUND)


def _fix(direction: str) -> Fix:
    if direction == "in":
        return Fix(
            "send fewer bytes: uint8 images in place of FP32 are a quarter; media whose preprocessing runs on the GPU, "
            "or a model that takes FP16"
        )
    return Fix("bring fewer bytes back: outputs that nobody needs left out of the model, postprocessing on the GPU")
