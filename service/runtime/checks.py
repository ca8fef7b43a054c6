"""Whether what a lane answers is right, asked of every warm bucket before the model is ready.

First each bucket of tensors is held against a reference, where there is one: it finds the bucket that is wrong by
itself. Then the rows of every bucket, of tensors and of media, are held against each other: that finds the bucket in
which they mix. A reference knows nothing of media; their buckets run the engine that was compared on tensors.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

from service.buckets import Bucket, DimSizes, Form, Unserved, UnservedReason
from service.errors import ExecutionFailed, ModelLoadFailed
from service.models import ModelSpec
from service.requests import Clock
from service.runtime.batch_invariance import KERNELS_PER_BUCKET, ONE_KERNEL_SET, check_batch_invariance
from service.runtime.golden import OtherModel, Reference, ReferenceFailed, RememberingReference, compare
from service.runtime.media_invariance import check_media_invariance
from service.runtime.protocol import Lane
from service.units import NS_PER_S

GOLDEN_BUDGET_NS = 2 * NS_PER_S
"""Time for opening the reference and asking it: a plan was compared in every bucket when it was built, and a server
that starts again must be ready soon."""

OpenReference: TypeAlias = Callable[[], Reference | None]
"""Opens the reference of one model, or gives None where there is none; blocking."""

_log = logging.getLogger(__name__)


def check_buckets(
    lane: Lane, spec: ModelSpec, open_reference: OpenReference, *, on_device: bool, clock: Clock = time.monotonic_ns
) -> Mapping[Bucket, Unserved]:
    """Checks every bucket that `spec` serves, on the lane's thread, after its warm-up and with no ticket open.

    Args:
        lane: the first lane; the others run the same engine.
        spec: its model, without the buckets that cannot run.
        open_reference: called once.
        on_device: whether each bucket has kernels of its own, so that none vouches for another.
        clock: monotonic nanoseconds.

    Returns:
        What must not be served.

    Raises:
        ModelLoadFailed: no bucket that was compared is right, the reference is of another model, or the model itself
            mixes rows of tensors.
        ExecutionFailed, DeviceError: the model fails on what it could run before.
    """
    unserved = _check_golden(lane, spec, open_reference, clock)
    rest = spec.without(unserved)
    rigour = KERNELS_PER_BUCKET if on_device else ONE_KERNEL_SET
    mixing = check_batch_invariance(lane, rest, rigour) | check_media_invariance(lane, rest, rigour.least_tolerance)
    for bucket, problem in mixing.items():
        unserved[bucket] = Unserved(UnservedReason.ROWS_DEPEND_ON_NEIGHBOURS, problem)
    return unserved


def _check_golden(lane: Lane, spec: ModelSpec, open_reference: OpenReference, clock: Clock) -> dict[Bucket, Unserved]:
    """Compares the buckets of tensors one by one, those of cheap dims first, until the budget is spent."""
    began_ns = clock()
    opened = open_reference()
    if opened is None:
        return {}
    reference = RememberingReference(opened)
    problems: dict[Bucket, Unserved] = {}
    done = 0
    buckets = sorted(
        (bucket for bucket in spec.buckets.known() if bucket.form is Form.TENSORS),
        key=lambda bucket: (_extent(bucket.dims), bucket),
    )
    for bucket in buckets:
        if clock() - began_ns >= GOLDEN_BUDGET_NS:
            break
        try:
            problem = compare(lane, reference, spec, bucket).problem(spec.card.precision.min_cosine)
        except ReferenceFailed as error:
            _log.warning("model '%s' is not compared with its reference any more: %s", spec.name, error.message)
            return problems
        except OtherModel as error:
            raise ModelLoadFailed(f"model '{spec.name}': {error.message}") from error
        except ExecutionFailed as error:
            problems[bucket] = Unserved(UnservedReason.CANNOT_RUN, error.message)
        else:
            if problem is not None:
                problems[bucket] = Unserved(UnservedReason.DIFFERS_FROM_REFERENCE, problem)
        done += 1
    if done and len(problems) == done:
        raise ModelLoadFailed(
            f"model '{spec.name}' is wrong in every bucket that was compared: {next(iter(problems.values())).detail}; "
            "build its plan again, or lower min_cosine in [precision] if that is good enough"
        )
    _log.info(
        "model '%s': %d of %d buckets were compared with its reference in %.1f s%s",
        spec.name,
        done,
        len(buckets),
        (clock() - began_ns) / NS_PER_S,
        "" if done == len(buckets) else "; the others are left out, so that the model is ready soon",
    )
    return problems


def _extent(dims: DimSizes) -> int:
    return Bucket(1, dims).volume
