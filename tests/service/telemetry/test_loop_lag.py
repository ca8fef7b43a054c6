import asyncio
import itertools

import pytest

from service.telemetry.loop_lag import LoopLagSampler

MS = 1_000_000


async def lags_of(clock_readings_ms, count):
    """Lateness of the first `count` ticks of a real loop on a clock that reads as told: at start, tick, restart, ..."""
    lags, is_done = [], asyncio.Event()

    def record(lag_ns):
        lags.append(lag_ns)
        if len(lags) == count:
            is_done.set()

    readings = itertools.chain(clock_readings_ms, itertools.repeat(0))
    sampler = LoopLagSampler(record, interval_s=0.001, clock_ns=lambda: next(readings) * MS)
    sampler.start()
    await asyncio.wait_for(is_done.wait(), timeout=10)
    sampler.stop()
    return lags


@pytest.mark.parametrize(
    ("readings_ms", "lags_ms"),
    [
        pytest.param([0, 1], [0], id="on time"),
        pytest.param([0, 8], [7], id="late"),
        pytest.param([5, 5], [0], id="early counts as on time"),
        pytest.param([0, 8, 20, 21, 21, 24], [7, 0, 2], id="each tick counts from its own start"),
    ],
)
async def test_lateness(readings_ms, lags_ms):
    assert await lags_of(readings_ms, len(lags_ms)) == [lag * MS for lag in lags_ms]


async def test_a_stopped_sampler_has_no_timer_and_can_start_again():
    lags = []
    sampler = LoopLagSampler(lags.append)
    sampler.stop()
    sampler.start()
    timer = sampler._timer
    sampler.start()
    assert sampler._timer is timer
    sampler.stop()
    sampler.stop()
    assert timer.cancelled()
    sampler.start()
    assert sampler._timer is not timer
    sampler.stop()
    assert lags == []


async def test_it_stops_from_within_a_tick():
    ticked = asyncio.Event()
    sampler = LoopLagSampler(lambda _: (sampler.stop(), ticked.set()), interval_s=0.001)
    sampler.start()
    await asyncio.wait_for(ticked.wait(), timeout=10)
    assert sampler._timer is None
