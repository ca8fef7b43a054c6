"""Runs of scripted experiments on a real batcher: their states, their ends, what is kept of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from service.batching.batcher import Batcher
from service.buckets import Bucket, CostTable
from service.errors import Conflict, DeviceError, ExecutionFailed, ProbeRunNotFound, Unsupported
from service.probes.bench import Bench, NotHere, Results, Rounds
from service.probes.catalogue import ProbeKind
from service.probes.document import run_to_json
from service.probes.pacing import Mode
from service.probes.run import UNLOADED, ProbeState
from service.probes.runner import LEAST_INTERVAL_S, MAX_AGE_S, MAX_RUNS, KnownRun, Order, ProbeRunner, Subject
from service.telemetry.snapshot_device import LayerProfile
from service.telemetry.snapshot_probes import Interval, ProbeFigures
from tests.doubles.batcher_bench import BatcherBench
from tests.doubles.held_repository import until
from tests.doubles.patient_stop import PatientStop
from tests.doubles.probe_cases import make_tools
from tests.doubles.requests import make_spec

WAIT_S = 10
LAYERS = LayerProfile(bucket=Bucket(1), span_s=1.0, layers=())
FOUND = Results(ProbeFigures(json_codec=Interval.exactly(1.0)), (LAYERS,))


def kind(start: Callable[[Bench], Rounds]) -> ProbeKind:
    return ProbeKind(name=start.__name__, numbers="P0", about="a script", budget_s=60.0, start=start)


def three_rounds(bench: Bench) -> Rounds:
    for _ in range(3):
        if not (yield):
            return Results()
    return FOUND


def nowhere(bench: Bench) -> Rounds:
    raise NotHere("not on this machine")
    yield


def broken(bench: Bench) -> Rounds:
    yield
    raise ExecutionFailed("the model broke")


def surprising(bench: Bench) -> Rounds:
    yield
    raise ZeroDivisionError


def losing(bench: Bench) -> Rounds:
    yield
    raise DeviceError("the device is gone", is_sticky=True)


class Endless:
    """An experiment that ends when it is told to, and tells on which threads it lived."""

    def __init__(self) -> None:
        self.rounds = 0
        self.threads: set[int] = set()
        self.is_freed = False

    def start(self, bench: Bench) -> Rounds:
        try:
            self.threads.add(threading.get_ident())
            while (yield):
                self.rounds += 1
            return FOUND
        finally:
            self.threads.add(threading.get_ident())
            self.is_freed = True

    @property
    def kind(self) -> ProbeKind:
        return replace(kind(three_rounds), name="endless", start=self.start)


class Scene:
    def __init__(self, bench: BatcherBench) -> None:
        self.bench = bench
        self.serving: Batcher | None = bench.batcher
        self.lost: list[DeviceError] = []
        ids = iter(range(1000))
        self.runner = ProbeRunner(
            serving=lambda name: self.serving if name == "m" else None,
            on_device_lost=self.lost.append,
            clock=bench.clock,
            clock_unix_s=lambda: 1000.0,
            run_id=lambda: f"r{next(ids)}",
            make_stop=lambda: PatientStop(bench.clock),
        )

    def start(
        self, *kinds: ProbeKind, mode: Mode = Mode.SHADOW, buckets: tuple[Bucket, ...] = (Bucket(8),)
    ) -> KnownRun:
        subject = Subject(
            spec=self.bench.spec,
            costs=CostTable({}),
            batcher=self.bench.batcher,
            buckets=buckets,
            durations=lambda: None,
            tools=lambda rest: make_tools(rest=rest),
        )
        return self.runner.start(subject, Order(kinds=kinds, mode=mode, max_pause_s=1.0))

    async def run(self, *kinds: ProbeKind, mode: Mode = Mode.SHADOW) -> KnownRun:
        known = self.start(*kinds, mode=mode)
        await over(known)
        return known


async def over(known: KnownRun) -> None:
    await until(lambda: known.run.is_over)
    await asyncio.sleep(0)


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with BatcherBench(make_spec(), held=False) as bench:
        made = Scene(bench)
        yield made
        await made.runner.stop()
    assert [thread for thread in threading.enumerate() if thread.name.startswith("probe")] == []


def states(known: KnownRun) -> list[str]:
    return [each.state.value for each in known.run.progress]


@pytest.mark.parametrize("mode", list(Mode))
async def test_every_experiment_of_a_run_comes_to_its_end(mode: Mode) -> None:
    async with scene() as made:
        known = await made.run(kind(three_rounds), kind(nowhere), kind(broken), kind(three_rounds), mode=mode)
        assert states(known) == ["done", "skipped", "failed", "done"]
        assert [each.rounds for each in known.run.progress] == [3, 0, 0, 3]
        assert [each.reason for each in known.run.progress] == ["", "not on this machine", "the model broke", ""]
        assert known.run.results == FOUND
        document = run_to_json(known)
        assert document["state"] == "done"
        assert document["figures"] == {"json_codec": {"value": 1.0, "low": 1.0, "high": 1.0}}
        assert document["layers"] == [{"bucket": "1", "span_s": 1.0, "layers": 0}]
        await made.bench.submit().future


@pytest.mark.parametrize(("mode", "running"), [(Mode.SHADOW, 0), (Mode.EXCLUSIVE, 1)])
async def test_exclusive_runs_are_noted_while_they_last(mode: Mode, running: int) -> None:
    endless = Endless()
    async with scene() as made:
        known = made.start(endless.kind, mode=mode)
        await until(lambda: endless.rounds > 0)
        began = made.runner.exclusive_runs(made.bench.clock())
        made.runner.cancel(known.id)
        await over(known)
        ended = made.runner.exclusive_runs(made.bench.clock())
        made.bench.clock.advance_ms(5000)
        later = made.runner.exclusive_runs(made.bench.clock())
    assert (began.inside, ended.inside) == (running, 0)
    assert later.area_ns == ended.area_ns


@pytest.mark.parametrize(("mode", "state"), [(Mode.SHADOW, "skipped"), (Mode.EXCLUSIVE, "done")])
async def test_what_takes_all_does_not_run_beside_traffic(mode: Mode, state: str) -> None:
    async with scene() as made:
        known = await made.run(replace(kind(three_rounds), takes_all=True), kind(three_rounds), mode=mode)
        assert states(known) == [state, "done"]


async def test_what_nobody_expected_is_logged_and_the_next_one_runs(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as made:
        known = await made.run(kind(surprising), kind(three_rounds))
        assert states(known) == ["failed", "done"]
        assert known.run.progress[0].reason == "unexpected error; the server's log has the cause"
        assert "probe 'surprising' failed unexpectedly" in caplog.text


async def test_what_was_found_is_kept() -> None:
    async with scene() as made:
        assert made.runner.latest("m") == ProbeFigures()
        await made.run(kind(three_rounds))
        made.bench.clock.advance_ms(5000)
        assert made.runner.latest("m") == FOUND.figures
        assert made.runner.latest_layers("m") == FOUND.layers
        assert made.runner.latest("other") == ProbeFigures()


async def test_results_end_with_the_load_of_the_model_that_they_are_of() -> None:
    async with scene() as made:
        await made.run(kind(three_rounds))
        made.serving = None
        assert made.runner.latest("m") == ProbeFigures()
        made.serving = made.bench.batcher
        assert made.runner.latest("m") == ProbeFigures(), "forgotten, not hidden"


async def test_results_of_yesterday_are_forgotten() -> None:
    async with scene() as made:
        await made.run(kind(three_rounds))
        made.bench.clock.advance_ms(1000 * MAX_AGE_S + 1)
        assert made.runner.latest("m") == ProbeFigures()


async def test_a_second_run_is_refused_while_one_is_under_way_and_for_a_while_after_it() -> None:
    async with scene() as made:
        endless = Endless()
        first = made.start(endless.kind)
        with pytest.raises(Conflict, match="run r0 of probes on model 'm' is under way"):
            made.start(kind(three_rounds))
        made.runner.cancel(first.id)
        await over(first)
        with pytest.raises(Conflict, match="retry later") as refused:
            made.start(kind(three_rounds))
        assert refused.value.retry_after_s == pytest.approx(LEAST_INTERVAL_S)
        made.bench.clock.advance_ms(1000 * LEAST_INTERVAL_S)
        assert states(await made.run(kind(three_rounds))) == ["done"]


async def test_a_cancelled_run_frees_all_on_its_thread_and_keeps_what_is_done() -> None:
    async with scene() as made:
        endless = Endless()
        known = made.start(kind(three_rounds), endless.kind, kind(three_rounds))
        await until(lambda: endless.rounds > 0)
        made.runner.cancel(known.id)
        await over(known)
        assert states(known) == ["done", "stopped", "stopped"]
        assert known.run.progress[1].reason == "it was cancelled"
        assert endless.is_freed
        assert len(endless.threads) == 1
        assert endless.threads != {threading.get_ident()}
        assert run_to_json(known)["state"] == "stopped"
        assert made.runner.latest("m") == FOUND.figures
        assert made.runner.cancel(known.id) is known, "of a run that is over nothing changes"
        assert states(known) == ["done", "stopped", "stopped"]


async def test_an_experiment_whose_time_is_up_makes_its_results_of_the_rounds_so_far() -> None:
    async with scene() as made:
        endless = Endless()
        known = await made.run(replace(endless.kind, budget_s=1e-9))
        assert states(known) == ["done"]
        assert endless.rounds == 0
        assert known.run.results == FOUND


@pytest.mark.parametrize("mode", list(Mode))
async def test_unloading_the_model_ends_the_run_before_the_backend_is_closed(mode: Mode) -> None:
    async with scene() as made:
        endless = Endless()
        known = made.start(endless.kind, mode=mode)
        await until(lambda: endless.rounds > 0)
        await made.bench.batcher.drain(WAIT_S)
        await asyncio.to_thread(made.bench.batcher.close)
        assert endless.is_freed
        await over(known)
        assert known.run.progress[0].state is ProbeState.STOPPED
        assert known.run.progress[0].reason in (UNLOADED, made.bench.batcher._refusal.message)
        made.serving = None
        assert made.runner.latest("m") == ProbeFigures()


async def test_on_a_model_that_is_being_unloaded_nothing_begins() -> None:
    async with scene() as made:
        await made.bench.batcher.drain(1)
        known = await made.run(kind(three_rounds))
        assert states(known) == ["stopped"]
        assert "being unloaded" in known.run.progress[0].reason


async def test_a_lost_device_ends_the_run_and_is_told() -> None:
    async with scene() as made:
        known = await made.run(kind(losing), kind(three_rounds))
        assert states(known) == ["failed", "stopped"]
        assert [error.message for error in made.lost] == ["the device is gone"]


async def test_the_end_of_the_server_ends_the_run() -> None:
    async with scene() as made:
        endless = Endless()
        known = made.start(endless.kind)
        await made.runner.stop()
        assert known.run.is_over
        assert known.run.progress[0].reason == "the server is shutting down"


async def test_the_latest_runs_are_remembered() -> None:
    async with scene() as made:
        for _ in range(MAX_RUNS + 1):
            await made.run(kind(three_rounds))
            made.bench.clock.advance_ms(1000 * LEAST_INTERVAL_S)
        assert made.runner.get("r1").id == "r1"
        with pytest.raises(ProbeRunNotFound, match=r"no run of probes 'r0' is known.*latest 32"):
            made.runner.get("r0")


async def test_a_model_without_known_buckets_cannot_be_experimented_with() -> None:
    async with scene() as made:
        with pytest.raises(Unsupported, match="no buckets to experiment with"):
            made.start(kind(three_rounds), buckets=())


async def test_every_request_beside_an_exclusive_run_is_answered() -> None:
    async with scene() as made:
        endless = Endless()
        known = made.start(endless.kind, mode=Mode.EXCLUSIVE)
        items = []
        for _ in range(50):
            items.append(made.bench.submit())
            await asyncio.sleep(0)
            made.bench.clock.advance_ms(10)
        made.runner.cancel(known.id)
        await over(known)
        await asyncio.wait_for(asyncio.gather(*(item.future for item in items)), WAIT_S)
        assert endless.rounds > 0
