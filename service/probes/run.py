"""One run of experiments on one model: round by round, on a thread of its own, until they are done or it must end.

Promises: whatever happens, every experiment frees what it opened, on the thread that opened it, before the run ends;
and the model's backend stays open as long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TypeAlias

from service.batching.guests import Guests
from service.batching.lane_pool import is_lost
from service.errors import DeviceError, ServiceError
from service.probes.bench import Bench, NotHere, Results, Rounds
from service.probes.catalogue import ProbeKind
from service.probes.pacing import Pacing
from service.probes.stop import RunStopped, Stop
from service.requests import Clock
from service.units import NS_PER_S

UNLOADED = "the model was unloaded or replaced meanwhile"

OnDeviceLost: TypeAlias = Callable[[DeviceError], None]

_log = logging.getLogger(__name__)


class ProbeState(Enum):
    """Where an experiment is; those after RUNNING are final."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(slots=True)
class Progress:
    """How far one experiment has come; belongs to the event loop.

    Attributes:
        kind: which.
        state: where it is.
        rounds: that it has run.
        busy_s: that they took.
        reason: why it was skipped or stopped, or has failed.
    """

    kind: ProbeKind
    state: ProbeState = ProbeState.WAITING
    rounds: int = 0
    busy_s: float = 0.0
    reason: str = ""


class ProbeRun:
    """Drives experiments one after another; on the event loop. Keeps nothing of the model once it is over.

    Args:
        kinds: which.
        stop: tells it to end.
        clock: nanoseconds that only grow.

    Attributes:
        progress: of each experiment, in their order.
        results: of those that are done.
        is_over: whether nothing will change any more.
    """

    def __init__(self, kinds: Sequence[ProbeKind], stop: Stop, *, clock: Clock) -> None:
        self._stop = stop
        self._clock = clock
        self.progress = tuple(Progress(kind) for kind in kinds)
        self.results = Results()
        self.is_over = False

    async def drive(self, bench: Bench, guests: Guests, pacing: Pacing, on_device_lost: OnDeviceLost) -> None:
        """Runs all of it; never cancelled, but told to end by its `Stop`.

        Args:
            bench: what experiments may use.
            guests: keeps the bench's backend open.
            pacing: lets rounds wait.
            on_device_lost: told of an error after which nothing on the device can be relied on.
        """
        executor = ThreadPoolExecutor(1, thread_name_prefix="probe")
        try:
            with guests.staying(partial(self._stop.ask_from_thread, UNLOADED)):
                await pacing.begin()
                for each in self.progress:
                    lost = await self._experiment(each, each.kind.start(bench), pacing, executor)
                    if lost is not None:
                        on_device_lost(lost)
                        self._stop.ask(lost.message)
                    self._stop.check()
        except RunStopped as stopped:
            self._leave_undone(str(stopped))
        except ServiceError as error:
            self._leave_undone(error.message)
        finally:
            pacing.end()
            executor.shutdown()  # at once: every round was awaited, the thread is idle
            self.is_over = True

    async def _experiment(
        self, progress: Progress, rounds: Rounds, pacing: Pacing, executor: ThreadPoolExecutor
    ) -> DeviceError | None:
        """Runs one; an error after which the device is lost is returned."""
        progress.state = ProbeState.RUNNING
        try:
            found = await self._rounds(progress, rounds, pacing, executor)
        except NotHere as reason:
            progress.state, progress.reason = ProbeState.SKIPPED, str(reason)
        except RunStopped:
            await asyncio.get_running_loop().run_in_executor(executor, rounds.close)
            raise
        except Exception as error:
            progress.state, progress.reason = ProbeState.FAILED, _reason(progress.kind, error)
            return error if is_lost(error) else None
        else:
            self.results = self.results.updated(found)
            progress.state = ProbeState.DONE
        return None

    async def _rounds(
        self, progress: Progress, rounds: Rounds, pacing: Pacing, executor: ThreadPoolExecutor
    ) -> Results:
        """Asks for one round after another, for no more of them once the budget is used up."""
        loop = asyncio.get_running_loop()
        kind = progress.kind
        wanted: bool | None = None
        while True:
            await pacing.before(kind)
            began_ns = self._clock()
            found = await loop.run_in_executor(executor, _advance, rounds, wanted)
            busy_s = (self._clock() - began_ns) / NS_PER_S
            progress.busy_s += busy_s
            progress.rounds += bool(wanted)
            if found is not None:
                return found
            await pacing.after(kind, busy_s)
            wanted = progress.busy_s < kind.budget_s

    def _leave_undone(self, reason: str) -> None:
        for each in self.progress:
            if each.state in (ProbeState.WAITING, ProbeState.RUNNING):
                each.state, each.reason = ProbeState.STOPPED, reason


def _advance(rounds: Rounds, wanted: bool | None) -> Results | None:
    """Runs one round, or what comes before the first; the results if it was the last."""
    try:
        if wanted is None:
            next(rounds)
        else:
            rounds.send(wanted)
    except StopIteration as end:
        results: Results = end.value
        return results
    return None


def _reason(kind: ProbeKind, error: Exception) -> str:
    if isinstance(error, ServiceError):
        return error.message
    _log.error("probe '%s' failed unexpectedly", kind.name, exc_info=error)
    return "unexpected error; the server's log has the cause"
