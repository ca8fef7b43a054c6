"""What experiments must do on a GPU, the fake's and a real one's: each of them on the small models of `trt_models`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from service.buckets import Bucket, CostTable
from service.probes.bench import Bench, NotHere, Results, Rounds, Tools
from service.probes.copies import copies
from service.probes.exposed_copies import exposed_copies
from service.probes.idle import idle
from service.probes.lanes import lanes
from service.probes.launches import launches
from service.probes.other_costs import other_costs
from service.probes.peaks import peaks
from service.probes.preprocess import preprocess
from service.probes.profiles import profiles
from service.runtime.protocol import Backend
from service.telemetry.snapshot_probes import Interval, Peaks
from service.units import NS_PER_MS
from tests.doubles.trt_models import TrtBench

PEAKS = Peaks(flops_per_s={"FP16": 1e12}, bytes_per_s=1e11, empty_kernel_s=1e-6)

FEW = 8
"""Rounds that are enough for an interval."""


class NoLoad:
    """For experiments that make no requests."""

    def direct_rows_per_s(self, duration_s: float) -> float:
        raise AssertionError("no requests are to be made")

    def http_rows_per_s(self, duration_s: float) -> float:
        raise AssertionError("no requests are to be made")


def make_tools(**changes: Any) -> Tools:
    tools = Tools(peaks=lambda backend: PEAKS, codec=lambda: None, load=NoLoad(), rest=lambda seconds: None)
    return replace(tools, **changes)


def make_bench(backend: Backend, *buckets: Bucket, **changes: Any) -> Bench:
    """The backend as if one lane served it, where every batch takes a millisecond per row."""
    known = tuple(backend.spec.buckets.known())
    bench = Bench(
        backend=backend,
        spec=backend.spec,
        costs=CostTable({bucket: bucket.padded_size * NS_PER_MS for bucket in known}),
        lanes=1,
        lane_bytes=0,
        buckets=buckets or known[:2],
        tools=make_tools(),
    )
    return replace(bench, **changes)


def finish(rounds: Rounds, most: int = 10_000) -> Results:
    """Drives an experiment for so many rounds at most, as the server does."""
    next(rounds)
    for number in range(1, 100_000):
        try:
            rounds.send(number <= most)
        except StopIteration as end:
            return end.value
    raise AssertionError("it never ends")


def assert_interval(interval: Interval | None) -> None:
    assert interval is not None
    assert 0 < interval.low <= interval.value <= interval.high


class ProbeCases:
    """Needs a fixture `bench`, a `TrtBench`; whatever an experiment opens must be closed when it ends."""

    def test_launches(self, bench: TrtBench) -> None:
        backend = bench.open("double")
        before = bench.cuda.live
        found = finish(launches(make_bench(backend, Bucket(4), Bucket(1)))).figures.launches
        assert set(found) == {Bucket(4), Bucket(1)}
        for probe in found.values():
            assert_interval(probe.eager)
            assert_interval(probe.replay)
            assert_interval(probe.eager_host)
        assert bench.cuda.live == before

    def test_copies(self, bench: TrtBench) -> None:
        backend = bench.open("wide")
        before = bench.cuda.live
        found = finish(copies(make_bench(backend, Bucket(8)))).figures
        assert found.pinned_h2d_bytes_per_s is not None
        assert found.pinned_d2h_bytes_per_s is not None
        assert min(found.pinned_h2d_bytes_per_s, found.pinned_d2h_bytes_per_s) > 0
        assert bench.cuda.live == before

    def test_exposed_copies(self, bench: TrtBench) -> None:
        backend = bench.open("wide")
        before = bench.cuda.live
        found = finish(exposed_copies(make_bench(backend, Bucket(8))), most=FEW).figures.exposed_copy
        assert set(found) == {Bucket(8)}
        assert found[Bucket(8)].low <= found[Bucket(8)].high
        assert bench.cuda.live == before

    def test_lanes(self, bench: TrtBench) -> None:
        backend = bench.open("double")
        before = bench.cuda.live
        rates = finish(lanes(make_bench(backend, lanes=2)), most=4 + FEW).figures.lane_rates
        assert sorted(rates) == [1, 2, 3, 4]
        for rate in rates.values():
            assert_interval(rate)
        assert bench.cuda.live == before

    def test_other_buckets(self, bench: TrtBench) -> None:
        """The engine takes 8 rows at most, so only the size between 4 and 8 can be tried."""
        backend = bench.open("double")
        before = bench.cuda.live
        found = finish(other_costs(make_bench(backend, Bucket(8))), most=FEW).figures.other_costs
        assert set(found) == {Bucket(6)}
        assert_interval(found[Bucket(6)])
        assert found[Bucket(6)].value < 1.0  # the served one takes 8 ms by the cost table
        assert bench.cuda.live == before

    def test_profiles(self, bench: TrtBench) -> None:
        backend = bench.open("sequence")
        before = bench.cuda.live
        both, one = Bucket(4, (8,)), Bucket(4, (16,))
        found = finish(profiles(make_bench(backend, one, both)), most=FEW).figures.profile_costs
        assert set(found) == {both}
        assert sorted(found[both]) == [0, 1]
        for cost in found[both].values():
            assert_interval(cost)
        assert bench.cuda.live == before

    def test_idle(self, bench: TrtBench) -> None:
        rested: list[float] = []
        backend = bench.open("double")
        before = bench.cuda.live
        found = finish(idle(make_bench(backend, tools=make_tools(rest=rested.append)))).figures.idle_factors
        assert sorted(found) == [0.001, 0.01, 0.1, 1.0]
        assert sorted(set(rested)) == sorted(found)
        for factor in found.values():
            assert_interval(factor)
        assert bench.cuda.live == before

    def test_peaks(self, bench: TrtBench) -> None:
        assert finish(peaks(make_bench(bench.open("double")))).figures.peaks == PEAKS

    def test_a_model_without_kernels_of_its_own_has_no_preprocessing(self, bench: TrtBench) -> None:
        with pytest.raises(NotHere, match="no kernels on a device"):
            finish(preprocess(make_bench(bench.open("double"))))

    @pytest.mark.parametrize(
        ("start", "name"),
        [(launches, "double"), (copies, "double"), (exposed_copies, "double"), (lanes, "double"), (idle, "double")],
    )
    def test_an_experiment_that_is_closed_in_its_midst_frees_everything(
        self, bench: TrtBench, start: Any, name: str
    ) -> None:
        backend = bench.open(name)
        before = bench.cuda.live
        rounds = start(make_bench(backend))
        next(rounds)
        for _ in range(3):
            rounds.send(True)
        rounds.close()
        assert bench.cuda.live == before

    def test_too_few_rounds_say_nothing(self, bench: TrtBench) -> None:
        backend = bench.open("double")
        assert finish(launches(make_bench(backend)), most=3) == Results()
        assert finish(lanes(make_bench(backend)), most=4) == Results()
