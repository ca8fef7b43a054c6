"""The alarm of a batcher: rings once a turn however often it is asked, and once per timer."""

from __future__ import annotations

import asyncio

from service.batching.alarm import Alarm
from service.units import NS_PER_MS
from tests.doubles.clock import ManualClock


class Rings:
    """An alarm, and a loop that keeps its timers instead of waiting for them."""

    def __init__(self) -> None:
        self.count = 0
        self.clock = ManualClock()
        self.alarm = Alarm(self.ring, self.clock)
        self.delays_s: list[float] = []

    def ring(self) -> None:
        self.count += 1

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        call_later = loop.call_later

        def keep(delay_s: float, callback):
            self.delays_s.append(delay_s)
            return call_later(0, callback)

        loop.call_later = keep  # type: ignore[method-assign]
        self.alarm.start(loop)


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_it_rings_once_a_turn() -> None:
    rings = Rings()
    rings.start()
    for expected in (1, 2):
        for _ in range(3):
            rings.alarm.soon()
        assert rings.count == expected - 1
        await turns()
        assert rings.count == expected


async def test_before_its_start_it_is_deaf() -> None:
    rings = Rings()
    rings.alarm.soon()
    rings.alarm.by(0)
    await turns()
    assert rings.count == 0


async def test_the_earliest_moment_counts_and_rounds_up_to_milliseconds() -> None:
    rings = Rings()
    rings.start()
    now_ns = rings.clock.now_ns
    rings.alarm.by(now_ns + 10 * NS_PER_MS)
    rings.alarm.by(now_ns + 20 * NS_PER_MS)
    rings.alarm.by(now_ns + 2 * NS_PER_MS + 1)
    assert rings.delays_s == [0.010, 0.003]
    await turns()
    assert rings.count == 1


async def test_once_it_rang_the_next_moment_may_be_later() -> None:
    rings = Rings()
    rings.start()
    rings.alarm.by(rings.clock.now_ns - 1)
    await turns()
    rings.alarm.by(rings.clock.now_ns + 20 * NS_PER_MS)
    assert rings.delays_s == [0, 0.020]
    await turns()
    assert rings.count == 2


async def test_it_can_be_stopped_and_set_again() -> None:
    rings = Rings()
    rings.start()
    rings.alarm.by(rings.clock.now_ns + NS_PER_MS)
    rings.alarm.stop()
    await turns()
    assert rings.count == 0
    rings.alarm.by(rings.clock.now_ns + NS_PER_MS)
    await turns()
    assert rings.count == 1
