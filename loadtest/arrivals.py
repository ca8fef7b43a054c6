"""When requests are due: absolute send times, drawn completely before the first request leaves.

An open loop sends at these times whatever the server does. Pure: the same plan gives the same times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np

from loadtest.errors import LoadTestError

NS_PER_S = 1_000_000_000

MAX_REQUESTS = 1_000_000
"""Requests of one step at most: their records are kept in memory until the step ends."""


class Arrivals(Enum):
    """How send times are spread."""

    CONSTANT = "constant"
    POISSON = "poisson"
    BURST = "burst"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalPlan:
    """What to draw send times from.

    Attributes:
        arrivals: the spread.
        rate: mean requests per second.
        duration_s: length of the plan in seconds; every send time lies in `[0, duration_s)`.
        burst_size: requests that are due at the same moment (`BURST` alone).
        seed: of the Poisson spread; the two others draw nothing.
    """

    arrivals: Arrivals
    rate: float
    duration_s: float
    burst_size: int = 16
    seed: int = 0


def send_offsets_ns(plan: ArrivalPlan) -> list[int]:
    """Send times of `plan` in nanoseconds from its start, ascending.

    Raises:
        LoadTestError: a rate, duration or burst size that is not positive, or more than `MAX_REQUESTS` requests.
    """
    _validate(plan)
    if plan.arrivals is Arrivals.POISSON:
        return _poisson(plan)
    if plan.arrivals is Arrivals.CONSTANT:
        return _evenly(plan.rate, plan.duration_s)
    moments = _evenly(plan.rate / plan.burst_size, plan.duration_s)
    return [moment for moment in moments for _ in range(plan.burst_size)]


def _validate(plan: ArrivalPlan) -> None:
    positive = (plan.rate, plan.duration_s, plan.burst_size)
    if not all(math.isfinite(value) and value > 0 for value in positive):
        raise LoadTestError(
            f"got rate = {plan.rate}, duration = {plan.duration_s} s, burst size = {plan.burst_size}; "
            "all three must be positive numbers"
        )
    expected = plan.rate * plan.duration_s
    if expected > MAX_REQUESTS:
        raise LoadTestError(
            f"{plan.rate:g} requests/s for {plan.duration_s:g} s are {expected:.0f} requests; at most {MAX_REQUESTS} "
            "are kept; lower --rate or --duration"
        )


def _evenly(rate: float, duration_s: float) -> list[int]:
    # Each time is computed from its index: adding intervals up would add their rounding up as well.
    times = (round(index * NS_PER_S / rate) for index in range(math.ceil(rate * duration_s)))
    return [time for time in times if time < duration_s * NS_PER_S]


def _poisson(plan: ArrivalPlan) -> list[int]:
    generator = np.random.default_rng(plan.seed)
    expected = plan.rate * plan.duration_s
    chunk = int(expected + 6.0 * math.sqrt(expected)) + 16
    times_s = np.cumsum(generator.exponential(1.0 / plan.rate, chunk))
    while times_s[-1] < plan.duration_s:
        more_s = times_s[-1] + np.cumsum(generator.exponential(1.0 / plan.rate, chunk))
        times_s = np.concatenate([times_s, more_s])
    times_ns = (times_s * NS_PER_S).astype(np.int64)
    inside = times_ns[times_ns < plan.duration_s * NS_PER_S]
    return [int(time) for time in inside]
