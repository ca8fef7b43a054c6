"""P2: how fast pinned memory is copied, at the size of the model's batches."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import closing
from functools import partial

from service.buckets import Bucket, Form
from service.models import ModelSpec
from service.probes.bench import ROUNDS, Bench, NotHere, Results, Rounds, in_turns, launches_in_round
from service.probes.intervals import LEAST_ROUNDS
from service.runtime.probe import LaunchTimes
from service.telemetry.snapshot_probes import ProbeFigures
from service.tensors import TensorSpec, element_count
from service.units import NS_PER_S


def copies(bench: Bench) -> Rounds:
    """The busiest bucket of tensors: its inputs to the device and its outputs back, in turns.

    Raises:
        NotHere: there is no device, or all traffic is media, whose bytes vary.
        ServiceError: the bucket cannot be run beside the lanes.
    """
    buckets = bench.buckets_of(Form.TENSORS)
    if not buckets:
        raise NotHere("all traffic is media, whose sizes vary: send tensors once to have their copies timed")
    bucket = buckets[0]
    with closing(bench.probe(bucket)) as probe:
        arms = (probe.h2d, probe.d2h)
        counts = [launches_in_round(arm(1)) for arm in arms]
        h2d: list[LaunchTimes] = []
        d2h: list[LaunchTimes] = []
        for number in range(ROUNDS):
            if not (yield):
                break
            up, down = in_turns(number, [partial(arm, count) for arm, count in zip(arms, counts, strict=True)])
            h2d.append(up)
            d2h.append(down)
    spec = bench.spec
    return Results(
        ProbeFigures(
            pinned_h2d_bytes_per_s=bytes_per_s(padded_bytes(spec, spec.inputs, bucket), h2d),
            pinned_d2h_bytes_per_s=bytes_per_s(padded_bytes(spec, spec.outputs, bucket), d2h),
        )
    )


def padded_bytes(spec: ModelSpec, tensors: Sequence[TensorSpec], bucket: Bucket) -> int | None:
    """Bytes of tensors in a bucket's shapes; None where some size is known only once the model has run."""
    sizes = spec.dim_sizes(bucket.dims, bucket.padded_size)
    try:
        return sum(element_count(tensor.resolve(sizes)) * tensor.dtype.itemsize for tensor in tensors)
    except KeyError:
        return None


def bytes_per_s(nbytes: int | None, times: Sequence[LaunchTimes]) -> float | None:
    """The rate of the median round; None of nothing, or too few rounds."""
    if not nbytes or len(times) < LEAST_ROUNDS:
        return None
    return nbytes * NS_PER_S / max(1.0, statistics.median(each.device_ns for each in times))
