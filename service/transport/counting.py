"""What the engine makes of a front end's counts: they join the models' own figures, which know no processes."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Protocol

from service.repository.composed import LoadedModel
from service.telemetry.activity import Occupancy
from service.telemetry.recorder import Recorder
from service.transport.objects import Hello, ModelRecords, Records


class Loads(Protocol):
    """Knows models by the number under which they were published."""

    def find(self, number: int) -> LoadedModel | None:
        """The model of a number; None if it is not served any more."""


class Counting:
    """Adds the counts of one front end to those of the engine. On the event loop.

    Args:
        loads: whose requests are counted.
        recorder: of the engine.
    """

    def __init__(self, loads: Loads, recorder: Recorder) -> None:
        self._loads = loads
        self._recorder = recorder
        self._inside: Counter[int] = Counter()
        self._streams = 0
        self._life: int | None = None

    def begin(self, hello: Hello) -> None:
        """The front end is there."""
        self._life = self._recorder.front_ends.begin(hello.region, restarts=hello.restarts)

    def count(self, records: Records) -> None:
        """Adds what came since the last time."""
        recorder = self._recorder
        for model in records.models:
            self._count_model(model)
        for reason, number in records.unattributed.items():
            for _ in range(number):
                recorder.record_unattributed(reason)
        for _ in range(records.dropped_frames):
            recorder.record_dropped_frame()
        for lag_ns in records.loop_lags_ns:
            recorder.record_loop_lag(lag_ns)
        if self._life is not None:
            recorder.front_ends.count(
                self._life, records.loop_cpu_ns, records.loop_lags_ns, held_bytes=records.held_bytes
            )
        self._streams += records.streams
        recorder.record_streams(records.streams)

    def end(self, now_ns: int) -> None:
        """The front end is gone, and with it whatever was in it."""
        for number, inside in self._inside.items():
            model = self._loads.find(number)
            if model is not None and inside:
                model.activity.in_flight.leave(now_ns, inside)
        self._recorder.record_streams(-self._streams)
        self._inside.clear()
        self._streams = 0
        if self._life is not None:
            self._recorder.front_ends.end(self._life)

    def _count_model(self, records: ModelRecords) -> None:
        recorder = self._recorder.find_model(records.name, records.version)
        if recorder is not None:
            recorder.record_packed(records.rows)
            for reason, number in records.failures.items():
                for _ in range(number):
                    recorder.record_failure(reason)
        model = self._loads.find(records.number)
        if model is None:
            return  # it was replaced, and what is shown of it is that of its successor
        activity = model.activity
        self._inside[records.number] += replay(records.stays, activity.in_flight)
        activity.in_flight.forget(records.lost_ns)
        activity.pool_ns += records.pool_ns
        activity.pool_rows += records.pool_rows


def replay(stays: bytes, into: Occupancy) -> int:
    """Notes the moments at which requests came (positive) and ended (negative); returns how many more are inside."""
    change = 0
    for moment in array("q", stays):
        if moment > 0:
            into.enter(moment)
            change += 1
        else:
            into.leave(-moment)
            change -= 1
    return change
