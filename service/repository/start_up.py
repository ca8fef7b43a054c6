"""From an opened backend to lanes that may serve: warm, checked, and as many as pay. Blocking, on a worker thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias

from service.batching.lane_count import LANE_LIMIT, is_measured, items_per_s, knee, representatives
from service.batching.lane_pool import LanePool
from service.buckets import Bucket, CostTable, Form, Unserved
from service.errors import DeviceError, ModelLoadFailed, ServiceError
from service.models import ModelSpec
from service.requests import Clock
from service.runtime.checks import OpenReference, check_buckets
from service.runtime.protocol import Backend, Lane
from service.runtime.warm_up import Warmth, warm_up
from service.units import NS_PER_S

LANES_BUDGET_NS = 3 * NS_PER_S
"""Time for finding the number of lanes: no lane is begun that would end after it."""

_log = logging.getLogger(__name__)


class Phase(Enum):
    """What start-up is doing, in this order; the value is the word that people and metrics read."""

    OPEN = "open"
    WARM_UP = "warm_up"
    CHECKS = "checks"
    LANES = "lanes"


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far a model has come.

    Attributes:
        model: its name.
        done: buckets that are warm, over all lanes.
        total: buckets to warm, over all lanes that are known to be wanted.
        phase: what is being done.
        bucket: the bucket that has just become warm; None where something else happened.
        is_over: whether this is the last that is told of this load, which may have failed.
    """

    model: str
    done: int
    total: int
    phase: Phase
    bucket: Bucket | None = None
    is_over: bool = False


OnProgress: TypeAlias = Callable[[LoadProgress], None]
"""Told of each step, on a worker thread."""


class CutOff(Exception):
    """Ends a load that nobody waits for any more."""


@dataclass(frozen=True, slots=True)
class Ready:
    """What start-up found.

    Attributes:
        costs: duration of a batch by bucket, as the first lane took it alone.
        unserved: buckets that must not be served, and why.
        spec: the model without them.
        phase_ns: what each phase took.
    """

    costs: CostTable
    unserved: Mapping[Bucket, Unserved]
    spec: ModelSpec
    phase_ns: Mapping[Phase, int]


class StartUp:
    """One start-up of one model.

    Args:
        backend: opened.
        pool: its lanes, of which there are none yet; closed by the caller if this fails.
        open_reference: opens what the buckets are compared with.
        on_progress: told of each step.
        is_cut_off: set when nobody waits any more.
        clock: monotonic nanoseconds.
    """

    def __init__(
        self,
        backend: Backend,
        pool: LanePool,
        *,
        open_reference: OpenReference,
        on_progress: OnProgress,
        is_cut_off: threading.Event,
        clock: Clock,
    ) -> None:
        self._backend = backend
        self._pool = pool
        self._spec = backend.spec
        self._open_reference = open_reference
        self._on_progress = on_progress
        self._is_cut_off = is_cut_off
        self._clock = clock
        self._on_device = backend.free_device_bytes() is not None
        self._phase = Phase.OPEN
        self._phase_ns: dict[Phase, int] = {}
        self._unserved: dict[Bucket, Unserved] = {}
        self._done = 0
        self._total = backend.lane_count * sum(1 for _ in backend.spec.buckets.known())

    def run(self, began_ns: int) -> Ready:
        """Makes the lanes ready; `began_ns` is when the backend began to be opened.

        Raises:
            ModelLoadFailed, ExecutionFailed: the model cannot be served, or in no bucket.
            DeviceError: the device has no room for the lanes, or is lost.
            CutOff: nobody waits any more.
        """
        try:
            self._pool.grow(1)
            since_ns = self._end_phase(began_ns, Phase.WARM_UP)
            warmth = self._pool.call(0, self._warm)
            self._leave_out(warmth.unserved)
            since_ns = self._end_phase(since_ns, Phase.CHECKS)
            self._leave_out(self._pool.call(0, self._check))
            since_ns = self._end_phase(since_ns, Phase.LANES)
            self._add_lanes()
            self._phase_ns[Phase.LANES] = self._clock() - since_ns
        finally:
            self._tell(is_over=True)
        return Ready(warmth.costs, MappingProxyType(self._unserved), self._spec, MappingProxyType(self._phase_ns))

    def _end_phase(self, since_ns: int, following: Phase) -> int:
        now_ns = self._clock()
        self._phase_ns[self._phase] = now_ns - since_ns
        self._phase = following
        self._tell()
        if self._is_cut_off.is_set():
            raise CutOff
        return now_ns

    def _tell(self, bucket: Bucket | None = None, *, is_over: bool = False) -> None:
        self._on_progress(LoadProgress(self._spec.name, self._done, self._total, self._phase, bucket, is_over))

    def _on_bucket(self, bucket: Bucket) -> None:
        if self._is_cut_off.is_set():
            raise CutOff
        self._done += 1
        self._total = max(self._total, self._done)
        self._tell(bucket)

    def _warm(self, lane: Lane) -> Warmth:
        return warm_up(lane, self._spec, self._on_bucket, first_run_counts=not self._on_device, clock=self._clock)

    def _check(self, lane: Lane) -> Mapping[Bucket, Unserved]:
        return check_buckets(lane, self._spec, self._open_reference, on_device=self._on_device, clock=self._clock)

    def _leave_out(self, found: Mapping[Bucket, Unserved]) -> None:
        if not found:
            return
        unserved = with_media(found, self._spec)
        for bucket, each in unserved.items():
            _log.warning("model '%s': bucket %s is not served: %s", self._spec.name, bucket.label, each.detail)
        self._unserved.update(unserved)
        former, self._spec = self._spec, self._spec.without(unserved)
        if not any(bucket.form is Form.TENSORS for bucket in self._spec.buckets.known()):
            raise ModelLoadFailed(
                f"model '{self._spec.name}' can be served in no bucket: {next(iter(unserved.values())).detail}"
            )
        if former.media is not None and self._spec.media is None:
            _log.warning(
                "model '%s': no bucket of media is left, so task '%s' prepares its tensors on the host",
                self._spec.name,
                self._spec.card.task,
            )

    def _add_lanes(self) -> None:
        """As many as the card says; where it says nothing and there is a device, as many as pay."""
        if is_measured(self._backend):
            self._find_knee()
            return
        while len(self._pool) < self._backend.lane_count:
            self._add_lane()

    def _add_lane(self) -> None:
        """One more lane, warm in every bucket that is served."""

        def warm(lane: Lane) -> None:
            for bucket in self._spec.buckets.known():
                lane.warm_up(bucket)
                self._on_bucket(bucket)

        self._pool.grow(len(self._pool) + 1)
        self._pool.call(len(self._pool) - 1, warm)

    def _find_knee(self) -> None:
        """Adds lanes until one does not pay, is not to be had, or would end too late; that one is closed again."""
        began_ns = self._clock()
        step_ns = self._phase_ns[Phase.WARM_UP]
        rates = [self._rates()]
        while knee(rates) == len(rates) < LANE_LIMIT and self._has_room():
            step_began_ns = self._clock()
            if step_began_ns - began_ns + step_ns > LANES_BUDGET_NS:
                _log.info(
                    "model '%s': start-up has no time for a lane more than %d, which takes %.1f s; count in [lanes] "
                    "names a number",
                    self._spec.name,
                    len(rates),
                    step_ns / NS_PER_S,
                )
                break
            try:
                self._add_lane()
                rates.append(self._rates())
                step_ns = self._clock() - step_began_ns
            except ServiceError as error:
                if isinstance(error, DeviceError) and error.is_sticky:
                    raise
                _log.info("model '%s': no lane more than %d: %s", self._spec.name, len(rates), error.message)
                break
        self._pool.shrink(knee(rates))
        told = "; ".join(" / ".join(f"{rate:.0f}" for rate in row) for row in rates)
        _log.info("model '%s': %d lanes; items per second by lanes: %s", self._spec.name, len(self._pool), told)

    def _rates(self) -> tuple[float, ...]:
        buckets = representatives(tuple(self._spec.buckets.known()))
        depth = self._backend.lane_depth
        return tuple(
            items_per_s(self._pool, self._spec, bucket, lane_depth=depth, clock=self._clock) for bucket in buckets
        )

    def _has_room(self) -> bool:
        """Whether a lane like the last one would take less than half of the memory that is left."""
        lane_bytes = sum(self._pool.figures()[-1].device_bytes.values())
        return 2 * lane_bytes <= (self._backend.free_device_bytes() or 0)


def with_media(unserved: Mapping[Bucket, Unserved], spec: ModelSpec) -> dict[Bucket, Unserved]:
    """What must not be served, and with a bucket of tensors that of media of its shape.

    It runs the same engine in the same shape, and only tensors are compared with a reference.
    """
    found = dict(unserved)
    for bucket in spec.buckets.known():
        cause = unserved.get(replace(bucket, form=Form.TENSORS))
        if cause is not None and bucket not in found:
            found[bucket] = replace(cause, detail=f"it shares its engine with tensors, where {cause.detail}")
    return found
