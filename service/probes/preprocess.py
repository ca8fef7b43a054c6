"""P11: what the task's kernels before and after the engine take on the device, per row.

A bucket of media is timed in turns with that of tensors of its shape: the same engine in the same shape, without the
kernels.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial

from service.buckets import Bucket, Form
from service.probes.bench import ROUNDS, Bench, NotHere, Results, Rounds, in_turns, launches_in_round
from service.probes.intervals import median_interval
from service.runtime.probe import Probe
from service.telemetry.snapshot_probes import ProbeFigures
from service.units import NS_PER_S


def preprocess(bench: Bench) -> Rounds:
    """The busiest bucket of media; where there is no such traffic, the largest one.

    Raises:
        NotHere: the model has no form of media.
        ServiceError: a bucket cannot be run beside the lanes.
    """
    media = _media_bucket(bench)
    if media is None:
        raise NotHere("the model's task has no kernels on a device")
    times_ns: list[list[float]] = []
    with ExitStack() as stack:
        buckets = (media, replace(media, form=Form.TENSORS))
        probes = [stack.enter_context(closing(bench.probe(bucket))) for bucket in buckets]
        for number in range(ROUNDS):
            if not (yield):
                break
            times_ns.append(in_turns(number, [partial(_device_ns, probe) for probe in probes]))
    per_row_s = [max(0.0, with_kernels - alone) / media.padded_size / NS_PER_S for with_kernels, alone in times_ns]
    return Results(ProbeFigures(device_preprocess=median_interval(per_row_s)))


def _media_bucket(bench: Bench) -> Bucket | None:
    busy = bench.buckets_of(Form.MEDIA)
    known = (bucket for bucket in bench.spec.buckets.known() if bucket.form is Form.MEDIA)
    return busy[0] if busy else next(known, None)


def _device_ns(probe: Probe) -> float:
    count = launches_in_round(probe.replay(1) or probe.eager(1))
    return (probe.replay(count) or probe.eager(count)).device_ns
