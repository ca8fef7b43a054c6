"""A `Stop` whose waits take no time but that of a clock which tests read."""

from __future__ import annotations

import asyncio

from service.probes.stop import Stop
from tests.doubles.clock import ManualClock


class PatientStop(Stop):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.slept_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.clock.advance_ms(seconds * 1000)
        await asyncio.sleep(0)
        self.check()
