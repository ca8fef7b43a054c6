"""When rounds may run, in the time of a clock that the tests move."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.probes.bench import NotHere
from service.probes.catalogue import CATALOGUE, ProbeKind
from service.probes.pacing import BASELINE_S, HOLD_S, HOLDS, Exclusive, Shadow
from service.probes.stop import RunStopped, Stop
from service.probes.traffic import Traffic
from service.units import NS_PER_MS
from tests.doubles.batcher_bench import BatcherBench, turn
from tests.doubles.clock import ManualClock
from tests.doubles.patient_stop import PatientStop
from tests.doubles.requests import make_spec
from tests.service.probes.test_traffic import NOTHING, after

LAUNCHES, IDLE, CEILINGS = (CATALOGUE[name] for name in ("launches", "idle", "ceilings"))


class Scene:
    def __init__(self) -> None:
        self.stop = PatientStop(ManualClock())
        self.traffic = Traffic(NOTHING, 0.0)
        self.shadow = Shadow(lambda: self.traffic, self.stop, share=0.01)

    def answer(self, count: int, ms: float = 1.0) -> None:
        self.traffic = replace(self.traffic, durations=after(self.traffic.durations, (count, ms)))

    def wait(self, seconds: float) -> None:
        self.traffic = replace(self.traffic, backlog_s=seconds)


async def test_beside_traffic_rounds_take_their_share_of_the_time() -> None:
    scene = Scene()
    await scene.shadow.begin()
    assert scene.stop.slept_s == [BASELINE_S]
    await scene.shadow.before(LAUNCHES)
    scene.answer(1)
    await scene.shadow.after(LAUNCHES, 0.02)
    assert scene.stop.slept_s[1:] == [pytest.approx(0.02 * 99)]


async def test_where_nothing_came_they_may_take_half_of_it() -> None:
    scene = Scene()
    await scene.shadow.begin()
    await scene.shadow.before(LAUNCHES)
    await scene.shadow.after(LAUNCHES, 0.02)
    assert scene.stop.slept_s[1:] == [pytest.approx(0.02)]


async def test_a_round_that_rests_itself_is_not_waited_for() -> None:
    scene = Scene()
    await scene.shadow.begin()
    await scene.shadow.before(IDLE)
    scene.answer(1)
    await scene.shadow.after(IDLE, 0.02)
    assert scene.stop.slept_s[1:] == [pytest.approx(0.02)]


@pytest.mark.parametrize("kind", [kind for kind in CATALOGUE.values() if kind.takes_all], ids=lambda kind: kind.name)
async def test_what_takes_all_runs_in_turns_alone(kind: ProbeKind) -> None:
    scene = Scene()
    await scene.shadow.begin()
    with pytest.raises(NotHere, match='mode "exclusive"'):
        await scene.shadow.before(kind)


async def test_a_tail_that_grows_ends_the_run() -> None:
    scene = Scene()
    began = scene.traffic
    scene.answer(300, 1.0)
    scene.shadow = Shadow(iter_of([began, scene.traffic, None], lambda: scene.traffic), scene.stop)
    await scene.shadow.begin()
    scene.answer(300, 9.0)
    with pytest.raises(RunStopped, match="99th percentile"):
        await scene.shadow.before(LAUNCHES)


def iter_of(first, then):
    """Gives the first ones in turn, then asks `then`."""
    left = [each for each in first if each is not None]
    return lambda: left.pop(0) if left else then()


async def test_requests_that_queue_up_are_let_by_and_if_they_stay_end_the_run() -> None:
    scene = Scene()
    await scene.shadow.begin()
    scene.wait(0.2)
    with pytest.raises(RunStopped, match="200 ms for a lane"):
        await scene.shadow.before(LAUNCHES)
    assert scene.stop.slept_s[1:] == [HOLD_S] * HOLDS


async def test_a_run_that_is_to_end_waits_no_more() -> None:
    scene = Scene()
    await scene.shadow.begin()
    scene.stop.ask("enough")
    scene.stop.ask("more than enough")
    with pytest.raises(RunStopped, match=r"^enough$"):
        await scene.shadow.after(LAUNCHES, 1.0)


async def test_traffic_and_rounds_take_turns() -> None:
    async with BatcherBench(make_spec(), held=False) as bench:
        stop = PatientStop(bench.clock)
        pacing = Exclusive(bench.batcher, stop, max_pause_s=1.0, clock=bench.clock)
        await pacing.begin()
        await pacing.before(LAUNCHES)
        waiting = bench.submit()
        await turn()
        assert not waiting.future.done()
        bench.clock.advance_ms(400)
        await pacing.after(LAUNCHES, 0.4)
        await pacing.before(LAUNCHES)  # 600 ms are left for another one
        assert stop.slept_s == []
        bench.clock.advance_ms(400)
        await pacing.after(LAUNCHES, 0.4)
        await pacing.before(LAUNCHES)  # and 200 are not enough
        assert stop.slept_s == [pytest.approx(0.8)]
        await waiting.future
        later = bench.submit()
        await turn()
        assert not later.future.done(), "the next pause has begun"
        pacing.end()
        await later.future


async def test_a_pause_ends_by_itself_under_a_round_that_is_too_long() -> None:
    async with BatcherBench(make_spec(), held=False) as bench:
        stop = PatientStop(bench.clock)
        pacing = Exclusive(bench.batcher, stop, max_pause_s=0.5, clock=bench.clock)
        await pacing.before(LAUNCHES)
        bench.clock.advance_ms(3000)
        await bench.submit().future
        await pacing.after(LAUNCHES, 3.0)
        await pacing.before(LAUNCHES)
        assert stop.slept_s == [pytest.approx(0.5)], "as long as it lasted, not as the round did"
        pacing.end()


async def test_what_fills_the_queue_runs_without_a_pause() -> None:
    async with BatcherBench(make_spec(), held=False) as bench:
        stop = PatientStop(bench.clock)
        pacing = Exclusive(bench.batcher, stop, max_pause_s=1.0, clock=bench.clock)
        await pacing.before(LAUNCHES)
        bench.clock.advance_ms(100)
        await pacing.before(CEILINGS)
        assert stop.slept_s == [pytest.approx(0.1)]
        await bench.submit().future
        await pacing.after(CEILINGS, 0.25)
        assert stop.slept_s[1:] == [0.25]
        pacing.end()


async def test_requests_that_could_not_wait_are_not_made_to() -> None:
    async with BatcherBench(make_spec()) as bench:
        first = bench.submit()
        await bench.begun()
        waiting = bench.submit(timeout_ms=10)
        bench.backend.let(2)
        stop = Stop()
        stop.ask("nobody waits any longer")
        pacing = Exclusive(bench.batcher, stop, max_pause_s=1.0, clock=bench.clock)
        with pytest.raises(RunStopped, match="nobody waits"):
            await pacing.before(LAUNCHES)
        await first.future
        await waiting.future


async def test_where_no_pause_is_to_be_had_the_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async with BatcherBench(make_spec(), held=False) as bench:
        stop = PatientStop(bench.clock)
        pacing = Exclusive(bench.batcher, stop, max_pause_s=1.0, clock=bench.clock)

        async def none_at_all(until_ns: int) -> int:
            return bench.clock.now_ns + NS_PER_MS

        monkeypatch.setattr(bench.batcher, "pause", none_at_all)
        with pytest.raises(RunStopped, match="miss their deadlines"):
            await pacing.before(LAUNCHES)
        assert stop.slept_s == [HOLD_S] * HOLDS


async def test_a_model_that_leaves_ends_the_run() -> None:
    async with BatcherBench(make_spec(), held=False) as bench:
        await bench.batcher.drain(1)
        pacing = Exclusive(bench.batcher, PatientStop(bench.clock), max_pause_s=1.0, clock=bench.clock)
        with pytest.raises(RunStopped, match="being unloaded"):
            await pacing.before(LAUNCHES)
