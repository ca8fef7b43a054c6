"""How long copies to and from the device took, by its own clock, and how that compares with pinned memory."""

from __future__ import annotations

from dataclasses import dataclass

from service.telemetry.snapshot import MetricsSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTimes:
    """Sums over the batches of the buckets whose copies and computing were timed.

    Attributes:
        batches: that were timed.
        h2d_s: copying in.
        d2h_s: copying out.
        compute_s: computing.
        pinned_s: what the same bytes take in both directions at the speed of pinned memory; None if it is not known.
    """

    batches: int
    h2d_s: float
    d2h_s: float
    compute_s: float
    pinned_s: float | None

    @property
    def pinned_ratio(self) -> float | None:
        """Speed of the copies over that of pinned memory."""
        taken_s = self.h2d_s + self.d2h_s
        return None if self.pinned_s is None or taken_s <= 0 else self.pinned_s / taken_s


def copy_times(snapshot: MetricsSnapshot) -> CopyTimes | None:
    """The copies of the window; None if none was timed by the device's clock."""
    timed = [
        (use, use.compute, use.h2d, use.d2h)
        for use in snapshot.buckets
        if use.compute and use.h2d and use.d2h and use.compute.sum_s > 0
    ]
    if not timed:
        return None
    h2d_rate, d2h_rate = snapshot.probes.pinned_h2d_bytes_per_s, snapshot.probes.pinned_d2h_bytes_per_s
    h2d_bytes = [use.h2d_bytes for use, *_ in timed if use.h2d_bytes is not None]
    d2h_bytes = [use.d2h_bytes for use, *_ in timed if use.d2h_bytes is not None]
    pinned_s = None
    if h2d_rate and d2h_rate and len(h2d_bytes) == len(d2h_bytes) == len(timed):
        pinned_s = sum(h2d_bytes) / h2d_rate + sum(d2h_bytes) / d2h_rate
    return CopyTimes(
        batches=sum(compute.count for _, compute, _, _ in timed),
        h2d_s=sum(h2d.sum_s for _, _, h2d, _ in timed),
        d2h_s=sum(d2h.sum_s for _, _, _, d2h in timed),
        compute_s=sum(compute.sum_s for _, compute, _, _ in timed),
        pinned_s=pinned_s,
    )
