"""The experiments that make sense on ONNX Runtime, and those that do not, on a real model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.buckets import Bucket
from service.cards import BatchingCard, ModelCard
from service.models import ModelSpec
from service.probes.bench import NotHere, Results
from service.probes.codecs import codecs, count_for
from service.probes.copies import bytes_per_s, copies, padded_bytes
from service.probes.exposed_copies import exposed_copies
from service.probes.idle import idle
from service.probes.lanes import lane_counts, lanes
from service.probes.launches import launches
from service.probes.layers import layers
from service.probes.other_costs import candidates, other_costs
from service.probes.preprocess import preprocess
from service.probes.profiles import profiles
from service.runtime.onnx.backend import OnnxBackend
from service.runtime.probe import LaunchTimes
from tests.doubles import onnx_models
from tests.doubles.probe_cases import FEW, assert_interval, finish, make_bench, make_tools
from tests.doubles.requests import make_spec


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[OnnxBackend]:
    path = onnx_models.make_simple(tmp_path / "model.onnx")
    card = ModelCard(name="simple", batching=BatchingCard(max_batch_size=8))
    opened = OnnxBackend.open(card, version="1", model_path=path, cpu_threads=1)
    yield opened
    opened.close()


@pytest.mark.parametrize("start", [launches, copies, exposed_copies, idle, profiles, preprocess])
def test_what_needs_a_device_is_not_run(backend: OnnxBackend, start) -> None:
    with pytest.raises(NotHere):
        finish(start(make_bench(backend)))


def test_lanes(backend: OnnxBackend) -> None:
    rates = finish(lanes(make_bench(backend)), most=2 + FEW).figures.lane_rates
    assert sorted(rates) == [1, 2]
    for rate in rates.values():
        assert_interval(rate)


def test_other_buckets(backend: OnnxBackend) -> None:
    """Twice the largest batch, and the size between 4 and 8, each in the milliseconds of the cost table."""
    found = finish(other_costs(make_bench(backend, Bucket(8)))).figures.other_costs
    assert set(found) == {Bucket(16), Bucket(6)}
    for cost in found.values():
        assert_interval(cost)


def test_layers(backend: OnnxBackend) -> None:
    found = finish(layers(make_bench(backend, Bucket(2)))).layers
    assert [profile.bucket for profile in found] == [Bucket(2)]
    assert found[0].layers
    assert finish(layers(make_bench(backend, Bucket(2))), most=0) == Results()


class Trial:
    """A codec whose JSON takes three times as long as its binary tensors, by a clock of its own."""

    now_ns = 0

    def run(self, *, is_binary: bool) -> None:
        self.now_ns += 1_000_000 if is_binary else 3_000_000

    def clock(self) -> int:
        return self.now_ns


def test_codecs(backend: OnnxBackend) -> None:
    trial = Trial()
    tools = make_tools(codec=lambda: trial, clock=trial.clock)
    found = finish(codecs(make_bench(backend, tools=tools))).figures
    assert found.json_codec is not None
    assert found.binary_codec is not None
    assert found.json_codec.value == pytest.approx(0.003)
    assert found.binary_codec.value == pytest.approx(0.001)


def test_a_model_that_no_synthetic_answer_fits_has_no_codecs(backend: OnnxBackend) -> None:
    with pytest.raises(NotHere, match="only once it has run"):
        finish(codecs(make_bench(backend)))


@pytest.mark.parametrize(("seconds", "count"), [(1e-3, 10), (1.0, 1), (0.0, 200)])
def test_repetitions_of_a_round(seconds: float, count: int) -> None:
    assert count_for(seconds) == count


@pytest.mark.parametrize(
    ("present", "counts"),
    [(1, (1, 2)), (2, (1, 2, 3, 4)), (4, (1, 4, 5, 8)), (8, (1, 8)), (12, (1, 12))],
)
def test_numbers_of_lanes(present: int, counts: tuple[int, ...]) -> None:
    assert lane_counts(present) == counts


@pytest.mark.parametrize(
    ("spec", "served", "others"),
    [
        (make_spec(max_batch_size=8), Bucket(8), (16, 6)),
        (make_spec(max_batch_size=8), Bucket(4), (16, 3)),
        (make_spec(max_batch_size=8), Bucket(2), (16,)),
        (make_spec(max_batch_size=1), Bucket(1), (2,)),
        (make_spec(max_batch_size=4, dims={"length": (8, 16)}), Bucket(4, (16,)), (8, 3)),
    ],
)
def test_buckets_worth_knowing(spec: ModelSpec, served: Bucket, others: tuple[int, ...]) -> None:
    assert candidates(spec, served) == tuple(Bucket(size, served.dims) for size in others)


def test_bytes_of_a_bucket() -> None:
    spec = make_spec(dims={"length": (8,)})
    assert padded_bytes(spec, spec.inputs, Bucket(4, (8,))) == 4 * 8 * 4
    times = [LaunchTimes(device_ns=ns, host_ns=1.0) for ns in (100.0, 200.0, 200.0, 300.0, 1e6)]
    assert bytes_per_s(128, times) == 128 / 200e-9
    assert bytes_per_s(128, times[:4]) is None
    assert bytes_per_s(None, times) is None
