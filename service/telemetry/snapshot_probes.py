"""What the server's experiments on itself told, frozen. Promises: a probe that did not run is absent, never zero."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from service.buckets import Bucket


@dataclass(frozen=True, slots=True)
class Interval:
    """A number and its 95 % confidence interval, `low <= value <= high`, in the unit of whoever holds it."""

    value: float
    low: float
    high: float

    @classmethod
    def exactly(cls, value: float) -> Interval:
        """A number that was counted, not sampled."""
        return cls(value, value, value)

    @classmethod
    def weighted_sum(cls, terms: Iterable[tuple[float, Interval]]) -> Interval:
        """The sum of intervals times weights that are not negative; its ends are the farthest possible ones."""
        value = low = high = 0.0
        for weight, term in terms:
            value += weight * term.value
            low += weight * term.low
            high += weight * term.high
        return cls(value, low, high)

    def scaled(self, factor: float) -> Interval:
        """Each end times `factor`, which is not negative."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)

    def minus(self, other: Interval) -> Interval:
        """The difference of two numbers that were sampled apart; its ends are the farthest possible ones."""
        return Interval(self.value - other.value, self.low - other.high, self.high - other.low)


@dataclass(frozen=True, slots=True)
class LaunchProbe:
    """P1: one bucket launched with its graph and without it, interleaved.

    Attributes:
        eager: seconds from one launch's end to the next one's without the graph.
        replay: likewise by the graph; None where capture fails.
        eager_host: seconds that the host takes for a launch without the graph.
    """

    eager: Interval
    replay: Interval | None
    eager_host: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """P9: what the device was seen to do at best.

    Attributes:
        flops_per_s: by data type (`FP16`, `INT8`), multiplications and additions counted apart.
        bytes_per_s: device memory read and written.
        empty_kernel_s: duration of a kernel that does nothing.
        cache_bytes: size of the last-level cache; what fits it may run faster than `bytes_per_s` allows.
    """

    flops_per_s: Mapping[str, float]
    bytes_per_s: float
    empty_kernel_s: float
    cache_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFigures:
    """Results of the probes P1 to P14; an empty mapping or None is a probe that did not run.

    Attributes:
        launches: P1, by bucket.
        pinned_h2d_bytes_per_s: P2, upload from pinned memory at the size of the model's batches.
        pinned_d2h_bytes_per_s: P2, download.
        exposed_copy: P3, seconds per batch that copies add to back-to-back execution, by bucket.
        lane_rates: P4, rows per second of full batches without host work, by number of lanes.
        other_costs: P5, seconds of a batch in buckets that the card does not serve.
        profile_costs: P7, seconds of a batch by bucket, then by the profile that ran it.
        switch_cost: P8, seconds that a batch takes longer right after a change of shape or profile.
        peaks: P9.
        direct_rows_per_s: P10, most rows per second when requests are made behind HTTP.
        http_rows_per_s: P10, most rows per second through HTTP on the loopback interface.
        json_codec: P11, seconds per request to parse and render the payloads seen, as JSON.
        binary_codec: P11, likewise as binary tensors.
        device_preprocess: P11, seconds per row of the same preprocessing by the device's kernels.
        idle_factors: P12, duration of a batch over its steady one, by seconds of idleness before it.
        interference: P14, duration of a batch in traffic over the same alone, at equal clocks and lanes.
    """

    launches: Mapping[Bucket, LaunchProbe] = field(default_factory=lambda: MappingProxyType({}))
    pinned_h2d_bytes_per_s: float | None = None
    pinned_d2h_bytes_per_s: float | None = None
    exposed_copy: Mapping[Bucket, Interval] = field(default_factory=lambda: MappingProxyType({}))
    lane_rates: Mapping[int, Interval] = field(default_factory=lambda: MappingProxyType({}))
    other_costs: Mapping[Bucket, Interval] = field(default_factory=lambda: MappingProxyType({}))
    profile_costs: Mapping[Bucket, Mapping[int, Interval]] = field(default_factory=lambda: MappingProxyType({}))
    switch_cost: Interval | None = None
    peaks: Peaks | None = None
    direct_rows_per_s: Interval | None = None
    http_rows_per_s: Interval | None = None
    json_codec: Interval | None = None
    binary_codec: Interval | None = None
    device_preprocess: Interval | None = None
    idle_factors: Mapping[float, Interval] = field(default_factory=lambda: MappingProxyType({}))
    interference: Interval | None = None
