"""What a fix would gain: Amdahl on means, the next station's cap on throughput, and never percentiles.

A share of the time that goes away shortens the mean by that share (Amdahl's law); of percentiles it says nothing,
those come from replaying arrivals alone (`replay.py`). A faster station raises throughput until the next one limits.
Overlapping two stages raises throughput, and shortens no request.
"""

from __future__ import annotations

from collections.abc import Sequence

from service.diagnosis.finding import Gain, GainLabel, GainMetric
from service.diagnosis.observed import effective_cost, rows_per_batch
from service.diagnosis.queueing import AffineCost, mean_latency_s
from service.diagnosis.stations import StationLoad, is_device_saturated, limiter, load_of, resources
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Stage, Station
from service.telemetry.snapshot_probes import Interval


def amdahl(share: float, speed_up: float) -> float:
    """How many times as fast the whole becomes if `share` (0 to 1) of its time becomes `speed_up` times as fast."""
    return 1.0 / ((1.0 - share) + share / speed_up)


def latency_gain(snapshot: MetricsSnapshot, removed: Interval, label: GainLabel) -> Gain | None:
    """The gain of taking `removed` seconds off the mean request; None if nothing was answered."""
    latency_s = snapshot.latency_s
    if not latency_s:
        return None
    return share_gain(removed.scaled(1.0 / latency_s), label)


def share_gain(share: Interval, label: GainLabel, metric: GainMetric = GainMetric.LATENCY_MEAN) -> Gain:
    """The gain of taking a share off a request's time; shares below 0 are 0, above 1 they are 1."""
    value, low, high = (min(1.0, max(0.0, end)) for end in (share.value, share.low, share.high))
    return Gain(metric, value, low, high, label)


def at_most(share: float) -> Interval:
    """A share that may as well be nothing: the interval of an upper bound."""
    return Interval(share, 0.0, share)


def throughput_gain(
    loads: Sequence[StationLoad], station: Station, speed_up: Interval, label: GainLabel
) -> Gain | None:
    """The gain in throughput of making `station` `speed_up` times as fast, capped by the station that limits next.

    None if the station is unknown or part of another; no gain at all if another station limits already.
    """
    first, own = limiter(loads), load_of(loads, station)
    if first is None or own is None or own.within is not None:
        return None
    others = [load.capacity_rows_per_s for load in resources(loads) if load.station is not station]
    cap = min(others, default=float("inf"))

    def added(factor: float) -> float:
        return max(0.0, min(own.capacity_rows_per_s * factor, cap) / first.capacity_rows_per_s - 1.0)

    return Gain(GainMetric.THROUGHPUT, added(speed_up.value), added(speed_up.low), added(speed_up.high), label)


def throughput_without(loads: Sequence[StationLoad], station: Station) -> Gain | None:
    """The most that any change of `station` can gain in throughput: what the next one allows. None without a next one.

    Its speed is left open, so the gain may as well be nothing.
    """
    own = load_of(loads, station)
    if own is None or len(resources(loads)) < 2:
        return None
    unlimited = max(load.capacity_rows_per_s for load in resources(loads)) / own.capacity_rows_per_s
    return throughput_gain(loads, station, Interval(unlimited, 1.0, unlimited), GainLabel.UPPER_BOUND)


def device_gain(
    snapshot: MetricsSnapshot,
    loads: Sequence[StationLoad],
    saved: Interval,
    label: GainLabel,
    *,
    is_per_batch: bool = False,
) -> Gain | None:
    """The gain of taking a share off the device's time per row: throughput where it limits, else the latency.

    For latency the wait behind other batches shrinks more than they do, at equal arrivals, for they hold fewer rows
    then (`queueing.py`; where its formula does not fit, as much as they do). The lower end of the interval counts on
    the batch's own time alone.

    Args:
        snapshot: the window.
        loads: its stations.
        saved: share of the device's time per batch, between 0 and 1.
        label: how far `saved` can be believed; what it makes of the latency is modelled at best.
        is_per_batch: whether each batch saves the same seconds, such as for launching, whatever its rows.
    """
    saved = Interval(*(min(0.99, max(0.0, end)) for end in (saved.value, saved.low, saved.high)))
    if is_device_saturated(loads):
        speed_up = Interval(*(1.0 / (1.0 - end) for end in (saved.value, saved.low, saved.high)))
        return throughput_gain(loads, Station.DEVICE, speed_up, label)
    compute_s, backlog_s = snapshot.stage_s(Stage.COMPUTE), snapshot.stage_s(Stage.BACKLOG) or 0.0
    if compute_s is None:
        return None
    whole_s = compute_s + backlog_s
    value, high = (
        max(end, _saved_with_waits(snapshot, end, is_per_batch=is_per_batch)) for end in (saved.value, saved.high)
    )
    removed = Interval(value * whole_s, saved.low * compute_s, high * whole_s)
    return latency_gain(snapshot, removed, GainLabel.MODELLED if label is GainLabel.MEASURED else label)


def _saved_with_waits(snapshot: MetricsSnapshot, saved: float, *, is_per_batch: bool) -> float:
    """Share of waiting and computing that goes away if every batch takes `saved` less of its time; 0 if not known."""
    cost, rows = effective_cost(snapshot), rows_per_batch(snapshot)
    if cost is None or cost.fixed_s <= 0.0 or rows is None:
        return 0.0
    then = cost.scaled(1.0 - saved)
    if is_per_batch:
        then = AffineCost(max(0.0, cost.fixed_s - saved * (cost.fixed_s + cost.row_s * rows)), cost.row_s)
    now_s, then_s = mean_latency_s(snapshot.rows_per_s, cost), mean_latency_s(snapshot.rows_per_s, then)
    return 0.0 if now_s is None or then_s is None else 1.0 - then_s / now_s
