from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.buckets import Bucket, CostTable, Form
from service.errors import InvalidInput
from service.probes.bench import Bench, Results, in_turns, launches_in_round
from service.probes.catalogue import CATALOGUE, kinds_named
from service.runtime.probe import LaunchTimes
from service.telemetry.snapshot_device import LayerProfile
from service.telemetry.snapshot_probes import Interval, LaunchProbe, Peaks, ProbeFigures
from service.units import NS_PER_MS
from tests.doubles.held_backend import HeldBackend
from tests.doubles.probe_cases import make_bench
from tests.doubles.requests import make_spec

ONE, TWO = Interval.exactly(1.0), Interval.exactly(2.0)


def figures(value: Interval) -> ProbeFigures:
    """Every figure that there is."""
    return ProbeFigures(
        launches=MappingProxyType({Bucket(1): LaunchProbe(value, None, value)}),
        pinned_h2d_bytes_per_s=value.value,
        pinned_d2h_bytes_per_s=value.value,
        exposed_copy=MappingProxyType({Bucket(1): value}),
        lane_rates=MappingProxyType({1: value}),
        other_costs=MappingProxyType({Bucket(2): value}),
        profile_costs=MappingProxyType({Bucket(1): MappingProxyType({0: value})}),
        switch_cost=value,
        peaks=Peaks(flops_per_s={}, bytes_per_s=value.value, empty_kernel_s=1.0),
        direct_rows_per_s=value,
        http_rows_per_s=value,
        json_codec=value,
        binary_codec=value,
        device_preprocess=value,
        idle_factors=MappingProxyType({0.1: value}),
        interference=value,
    )


def test_the_newer_figure_counts_and_what_did_not_run_changes_nothing() -> None:
    older, newer = Results(figures(ONE)), Results(figures(TWO))
    assert older.updated(newer) == newer
    assert older.updated(Results()) == older
    assert Results().updated(newer) == newer
    assert {each.name for each in fields(ProbeFigures) if not getattr(newer.figures, each.name)} == set()


def test_figures_by_bucket_are_joined() -> None:
    first = Results(ProbeFigures(exposed_copy=MappingProxyType({Bucket(1): ONE, Bucket(2): ONE})))
    second = Results(ProbeFigures(exposed_copy=MappingProxyType({Bucket(2): TWO})))
    assert dict(first.updated(second).figures.exposed_copy) == {Bucket(1): ONE, Bucket(2): TWO}


def test_layers_are_joined_by_bucket() -> None:
    one, again, other = (
        LayerProfile(bucket=Bucket(size), span_s=span_s, layers=()) for size, span_s in ((1, 1), (1, 2), (2, 3))
    )
    assert set(Results(layers=(one,)).updated(Results(layers=(again, other))).layers) == {again, other}


@given(st.integers(0, 9), st.integers(1, 5))
def test_every_other_round_is_reversed_and_results_are_not(number: int, count: int) -> None:
    ran: list[int] = []

    def side(index: int) -> int:
        ran.append(index)
        return index

    assert in_turns(number, [lambda index=index: side(index) for index in range(count)]) == list(range(count))
    assert ran == (list(range(count)) if number % 2 == 0 else list(range(count))[::-1])


@pytest.mark.parametrize(
    ("device_ns", "host_ns", "count"), [(5e3, 1e3, 10), (1e3, 2.5e4, 2), (1e9, 1.0, 1), (1.0, 1.0, 10)]
)
def test_a_round_has_so_many_launches_that_it_lasts_a_while(device_ns: float, host_ns: float, count: int) -> None:
    """A round lasts 50 microseconds in these tests."""
    assert launches_in_round(LaunchTimes(device_ns, host_ns)) == count


def test_the_fullest_bucket_is_that_of_most_rows_per_second() -> None:
    spec = make_spec(max_batch_size=8)
    costs = CostTable({Bucket(size): ns * NS_PER_MS for size, ns in ((1, 2), (2, 3), (4, 4), (8, 12))})
    backend = HeldBackend(spec, clock=lambda: 0)
    assert make_bench(backend, Bucket(1), costs=costs).fullest == Bucket(4)  # type: ignore[arg-type]


def test_room_for_lanes() -> None:
    backend = HeldBackend(make_spec(), clock=lambda: 0)
    bench: Bench = make_bench(backend, lane_bytes=10)  # type: ignore[arg-type]
    assert bench.has_room(1000), "on the CPU nobody counts"
    backend.free_bytes = 60
    assert [bench.has_room(lanes) for lanes in (1, 3, 4)] == [True, True, False]
    assert bench.buckets_of(Form.MEDIA) == ()


def test_experiments_are_found_by_name_each_once_in_their_order() -> None:
    assert [kind.name for kind in kinds_named(["lanes", "launches", "lanes"])] == ["launches", "lanes"]
    assert kinds_named(["all"]) == tuple(CATALOGUE.values()) == kinds_named(["lanes", "all"])
    assert {kind.name for kind in CATALOGUE.values() if kind.takes_all} == {"peaks", "ceilings"}
    assert all(kind.budget_s > 0 and kind.about and kind.numbers.startswith("P") for kind in CATALOGUE.values())


@pytest.mark.parametrize(("names", "got"), [(["lunches"], "'lunches'"), ([], "none"), (["lanes", "x\n"], r"'x\\n'")])
def test_unknown_experiments_are_refused_with_those_that_there_are(names: list[str], got: str) -> None:
    with pytest.raises(InvalidInput, match=f"names {got}; there are launches, copies, exposed-copies, lanes, "):
        kinds_named(names)


def test_every_experiment_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "probes.md").read_text(encoding="utf-8")
    for each in CATALOGUE.values():
        assert f"| `{each.name}` | {each.numbers} |" in page
