"""What a front end counts: gathered as packed rows and sent to the engine, whose figures then tell of the whole server.

Nothing is folded or computed here. Stays of requests travel as moments, in the order in which they were noted, so that
the engine's `Occupancy` integrates them with those of the other front ends.
"""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable

from service.requests import NO_FACTS, Clock, RequestFacts, StageTimings
from service.telemetry.activity import Activity, Occupancy
from service.telemetry.model_recorder import NullModelRecorder
from service.telemetry.totals import REQUEST_ROW
from service.transport.objects import ModelRecords, PublishedComposition, PublishedModel, Records

SEND_INTERVAL_S = 0.1
SEND_FROM_BYTES = 64 << 10
"""How much a model's rows take before they are sent at once."""

NO_LOAD = 0
"""A number that no engine gives: of what comes under it, only that counts which is told by the model's name."""

_pack_request = REQUEST_ROW.pack


class NotedOccupancy(Occupancy):
    """An `Occupancy` that keeps what it is told, for the engine to integrate.

    Attributes:
        moments: int64 moments, positive where somebody came and negative where one left.
        lost_ns: time inside that does not count.
    """

    __slots__ = ("lost_ns", "moments")

    def __init__(self) -> None:
        super().__init__(0)
        self.moments = array("q")
        self.lost_ns = 0

    def enter(self, at_ns: int) -> None:
        """One more is inside from `at_ns` on."""
        self.count += 1
        self.moments.append(at_ns)

    def leave(self, at_ns: int, number: int = 1) -> None:
        """`number` fewer are inside from `at_ns` on."""
        self.count -= number
        self.moments.extend([-at_ns] * number)

    def forget(self, duration_ns: int) -> None:
        """So much of the time that was spent inside does not count."""
        self.lost_ns += duration_ns


class RemoteModelRecorder(NullModelRecorder):
    """A `ModelRecorder` of a model whose batches run, and are recorded, elsewhere.

    Attributes:
        activity: what is noted of its requests here.

    Args:
        published: the model.
        on_full: told when there is much to send.
    """

    def __init__(self, published: PublishedModel | PublishedComposition, on_full: Callable[[], None]) -> None:
        self._number = published.number
        self._name, self._version = published.spec.name, published.spec.version
        self._on_full = on_full
        self._rows = bytearray()
        self._failures: Counter[str] = Counter()
        self.activity = Activity(0)
        self._stays = NotedOccupancy()
        self.activity.in_flight = self._stays

    def disown(self) -> None:
        """The engine is gone, and the next one knows neither this load nor its requests."""
        self._number = NO_LOAD

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress, so that nothing will be counted unless a new one comes."""
        return not self._stays.count

    def record_request(self, timings: StageTimings, rows: int, facts: RequestFacts = NO_FACTS) -> None:
        """See `ModelRecorder`."""
        self._rows += _pack_request(*timings, *facts, rows)
        if len(self._rows) >= SEND_FROM_BYTES:
            self._on_full()

    def record_failure(self, reason: str) -> None:
        """See `ModelRecorder`."""
        self._failures[reason] += 1

    def take(self) -> ModelRecords | None:
        """All since the last time; None where that is nothing."""
        activity, stays = self.activity, self._stays
        if not (self._rows or self._failures or stays.moments or activity.pool_ns or activity.pool_rows):
            return None
        records = ModelRecords(
            number=self._number,
            name=self._name,
            version=self._version,
            rows=bytes(self._rows),
            failures=dict(self._failures),
            stays=stays.moments.tobytes(),
            lost_ns=stays.lost_ns,
            pool_ns=activity.pool_ns,
            pool_rows=activity.pool_rows,
        )
        self._rows = bytearray()
        self._failures.clear()
        stays.moments, stays.lost_ns = array("q"), 0
        activity.pool_ns = activity.pool_rows = 0
        return records


class RemoteRecorder:
    """A `ServerRecorder`, and the recorders of the models that are published. On the event loop.

    Args:
        on_full: told when there is much to send; `take` is then to be called soon.
        held_bytes: tells what requests hold of the region.
        loop_cpu_ns: CPU time of the calling thread.
    """

    def __init__(
        self, on_full: Callable[[], None], held_bytes: Callable[[], int], loop_cpu_ns: Clock = time.thread_time_ns
    ) -> None:
        self._on_full = on_full
        self._held_bytes = held_bytes
        self._loop_cpu_ns = loop_cpu_ns
        self._told_cpu_ns = loop_cpu_ns()
        self._models: dict[int, RemoteModelRecorder] = {}
        self._disowned: list[RemoteModelRecorder] = []
        self._published: frozenset[int] = frozenset()
        self._unattributed: Counter[str] = Counter()
        self._streams = self._told_streams = 0
        self._dropped_frames = 0
        self._loop_lags_ns: list[int] = []

    def for_model(self, published: PublishedModel | PublishedComposition) -> RemoteModelRecorder:
        """The recorder of one load of a model, which is not forgotten before the next `keep`."""
        recorder = self._models[published.number] = RemoteModelRecorder(published, self._on_full)
        self._published |= {published.number}
        return recorder

    def keep(self, numbers: frozenset[int]) -> None:
        """Forgets all models but these, each once its last request has ended and is told of."""
        self._published = numbers

    def lose(self) -> None:
        """The engine is gone; the next one gives its own numbers, and knows of no request and no stream."""
        for each in self._models.values():
            each.disown()
        self._disowned += self._models.values()
        self._models, self._published = {}, frozenset()
        self._told_streams = 0

    def record_unattributed(self, reason: str) -> None:
        """See `ServerRecorder`."""
        self._unattributed[reason] += 1

    def record_streams(self, change: int) -> None:
        """See `ServerRecorder`."""
        self._streams += change

    def record_dropped_frame(self) -> None:
        """See `ServerRecorder`."""
        self._dropped_frames += 1

    def record_loop_lag(self, lag_ns: int) -> None:
        """Counts one sample of this event loop's lateness, in nanoseconds."""
        self._loop_lags_ns.append(lag_ns)

    def take(self) -> Records | None:
        """All since the last time; None where that is nothing."""
        recorders = (*self._disowned, *self._models.values())
        models = tuple(taken for each in recorders if (taken := each.take()) is not None)
        self._forget_idle()
        streams = self._streams - self._told_streams
        if not (models or self._unattributed or streams or self._dropped_frames or self._loop_lags_ns):
            return None
        cpu_ns = self._loop_cpu_ns()
        records = Records(
            models=models,
            unattributed=dict(self._unattributed),
            streams=streams,
            dropped_frames=self._dropped_frames,
            loop_lags_ns=tuple(self._loop_lags_ns),
            loop_cpu_ns=cpu_ns - self._told_cpu_ns,
            held_bytes=self._held_bytes(),
        )
        self._told_cpu_ns = cpu_ns
        self._unattributed.clear()
        self._told_streams = self._streams
        self._dropped_frames = 0
        self._loop_lags_ns.clear()
        return records

    def _forget_idle(self) -> None:
        self._disowned = [each for each in self._disowned if not each.is_idle]
        for number in [number for number, each in self._models.items() if each.is_idle]:
            if number not in self._published:
                del self._models[number]
