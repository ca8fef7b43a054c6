"""When the next round may run: beside the traffic for a small share of the time, or alone for a bounded one."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from service.batching.batcher import Batcher
from service.errors import ServiceError
from service.probes.bench import NotHere
from service.probes.catalogue import ProbeKind
from service.probes.stop import RunStopped, Stop
from service.probes.traffic import Baseline, Traffic, is_backed_up, slowed
from service.requests import Clock
from service.units import NS_PER_S

BUSY_SHARE = 0.008
"""Of the time, beside traffic: fewer than one request in a hundred meets a round, so the 99th percentile does not."""

IDLE_SHARE = 0.5
"""Of the time, where nothing came since the last round."""

BASELINE_S = 2.0
HOLD_S = 0.25
HOLDS = 40
"""So often a run waits `HOLD_S` for traffic that leaves no room for it, before it gives up."""

MAX_PAUSE_S = 2.0
LEAST_PAUSE_S = 0.02


class Mode(Enum):
    """How experiments and traffic share the lanes."""

    SHADOW = "shadow"
    """Side by side, for a small share of the time."""
    EXCLUSIVE = "exclusive"
    """In turns: requests wait for a bounded time, then experiments for as long."""


class Pacing(Protocol):
    """Lets the rounds of one run wait; on the event loop. Every method but `end` may raise RunStopped."""

    async def begin(self) -> None:
        """Before the first round of the run."""

    async def before(self, kind: ProbeKind) -> None:
        """Before each round; raises NotHere where the experiment cannot be run in this way."""

    async def after(self, kind: ProbeKind, busy_s: float) -> None:
        """After each round, which took so long."""

    def end(self) -> None:
        """After the last one, also of a run that failed; never raises."""


class Shadow:
    """Beside the traffic. Ends the run where requests queue up, or their 99th percentile grows.

    Args:
        traffic: the model's, now.
        stop: of the run.
        share: of the time that rounds take while requests come.
    """

    def __init__(self, traffic: Callable[[], Traffic], stop: Stop, *, share: float = BUSY_SHARE) -> None:
        self._traffic = traffic
        self._stop = stop
        self._share = share
        self._baseline: Baseline | None = None
        self._answered = 0

    async def begin(self) -> None:
        """Looks at the traffic for `BASELINE_S`."""
        began = self._traffic()
        await self._stop.sleep(BASELINE_S)
        self._baseline = Baseline(began, self._traffic())

    async def before(self, kind: ProbeKind) -> None:
        """Waits while requests queue up.

        Raises:
            NotHere: the experiment would leave nothing to the traffic.
        """
        if kind.takes_all:
            raise NotHere('it takes all that the machine can do: run it in the mode "exclusive"')
        assert self._baseline is not None, "begin comes first"
        for _ in range(HOLDS):
            now = self._traffic()
            self._answered = now.answered
            reason = slowed(self._baseline, now)
            if reason:
                raise RunStopped(reason)
            if not is_backed_up(self._baseline, now):
                return
            await self._stop.sleep(HOLD_S)
        raise RunStopped(
            f"requests wait {now.backlog_s * 1e3:.0f} ms for a lane, which leaves no room for probes; run them in the "
            'mode "exclusive", or when there is less traffic'
        )

    async def after(self, kind: ProbeKind, busy_s: float) -> None:
        """Waits until the round was no more than its share of the time."""
        now = self._traffic()
        is_quiet = now.answered == self._answered and not now.backlog_s
        share = IDLE_SHARE if is_quiet or kind.is_mostly_idle else self._share
        await self._stop.sleep(busy_s * (1.0 / share - 1.0))

    def end(self) -> None:
        """Nothing was changed."""


class Exclusive:
    """In turns with the traffic: it is paused for a bounded time, then has the lanes for as long.

    Args:
        batcher: the model's.
        stop: of the run.
        max_pause_s: for how long requests may wait at most.
        clock: the batcher's.
    """

    def __init__(self, batcher: Batcher, stop: Stop, *, max_pause_s: float, clock: Clock) -> None:
        self._batcher = batcher
        self._stop = stop
        self._max_pause_s = max_pause_s
        self._clock = clock
        self._began_ns = 0
        self._until_ns = 0
        self._round_s = LEAST_PAUSE_S

    async def begin(self) -> None:
        """Nothing yet: the first round pauses."""

    async def before(self, kind: ProbeKind) -> None:
        """Pauses, or goes on with a pause that is long enough for another round like the last one."""
        if kind.fills_queue:
            await self._give_back()
            return
        left_s = (self._until_ns - self._clock()) / NS_PER_S
        if left_s >= min(self._round_s, self._max_pause_s / 2):
            return
        await self._give_back()
        await self._pause()

    async def after(self, kind: ProbeKind, busy_s: float) -> None:
        """Remembers how long a round takes; after one that filled the queue the traffic has as long a turn."""
        self._round_s = max(LEAST_PAUSE_S, busy_s)
        if kind.fills_queue:
            await self._stop.sleep(busy_s)
        self._stop.check()

    def end(self) -> None:
        """The traffic goes on."""
        self._batcher.resume()

    async def _give_back(self) -> None:
        if not self._until_ns:
            return
        paused_s = (min(self._clock(), self._until_ns) - self._began_ns) / NS_PER_S
        self._until_ns = 0
        self._batcher.resume()
        await self._stop.sleep(max(0.0, paused_s))

    async def _pause(self) -> None:
        for _ in range(HOLDS):
            self._stop.check()
            try:
                until_ns = await self._batcher.pause(self._clock() + round(self._max_pause_s * NS_PER_S))
            except ServiceError as error:
                raise RunStopped(error.message) from None
            self._began_ns = self._clock()
            if until_ns - self._began_ns >= LEAST_PAUSE_S * NS_PER_S:
                self._until_ns = until_ns
                return
            self._batcher.resume()
            await self._stop.sleep(HOLD_S)
        raise RunStopped("requests wait that would miss their deadlines in a pause; try again with less traffic")
