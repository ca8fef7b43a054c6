"""Sizes that an engine allows, and the profile that runs a bucket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.buckets import Bucket
from service.cards import BatchingCard, ModelCard, ShapeRange
from service.errors import ModelLoadFailed
from service.models import ModelSpec, build_spec
from service.runtime.trt.profiles import Profile, card_for_engine, choose_profile, profile_by_bucket, ranges_text
from service.tensors import Dim, DType, TensorSpec


def batch_profile(low: int, best: int, high: int) -> Profile:
    return {"x": ShapeRange((low, 8), (best, 8), (high, 8))}


def tensors(*dims: Dim) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    return (TensorSpec("x", DType.FP32, dims),), (TensorSpec("y", DType.FP32, dims),)


def spec_of(card: ModelCard, profiles: tuple[Profile, ...], *dims: Dim) -> ModelSpec:
    inputs, outputs = tensors(*dims)
    card = card_for_engine(card, (*inputs, *outputs), inputs, profiles)
    return build_spec(card, version="1", platform="tensorrt_plan", inputs=inputs, outputs=outputs)


@pytest.mark.parametrize(
    ("profiles", "limit", "sizes"),
    [
        ([(1, 8, 32)], None, (1, 2, 4, 8, 16, 32)),
        ([(1, 6, 6)], None, (1, 2, 4, 6)),
        ([(4, 8, 16)], None, (4, 8, 16)),
        ([(1, 1, 1), (8, 16, 32)], None, (1, 8, 16, 32)),
        ([(1, 3, 8)], 5, (1, 2, 3, 4, 5)),
        ([(1, 8, 8)], 8, (1, 2, 4, 8)),
        ([(1, 1, 1)], None, (1,)),
    ],
)
def test_batch_sizes(profiles: list[tuple[int, int, int]], limit: int | None, sizes: tuple[int, ...]) -> None:
    card = ModelCard(name="m", batching=BatchingCard(max_batch_size=limit))
    spec = spec_of(card, tuple(batch_profile(*each) for each in profiles), "x_0", 8)
    assert spec.buckets.batch_sizes == sizes
    assert set(profile_by_bucket(spec, spec.card.profiles)) == set(spec.buckets.known())


def test_sizes_of_the_card_win() -> None:
    card = ModelCard(name="m", bucket_sizes={"batch": (2, 3)})
    assert spec_of(card, (batch_profile(1, 4, 8),), "x_0", 8).buckets.batch_sizes == (2, 3)


@pytest.mark.parametrize(
    "card",
    [
        ModelCard(name="m", batching=BatchingCard(max_batch_size=0)),
        ModelCard(name="m", dims={"x": (4, 8), "y": (4, 8)}),
    ],
)
def test_a_leading_dimension_that_is_no_batch(card: ModelCard) -> None:
    profiles = (batch_profile(4, 4, 4),)
    spec = spec_of(card, profiles, "x_0", 8)
    assert not spec.has_batch_dim
    assert profile_by_bucket(spec, profiles)


def test_a_fixed_batch_is_no_batch() -> None:
    assert not spec_of(ModelCard(name="m"), ({"x": ShapeRange((1, 8), (1, 8), (1, 8))},), 1, 8).has_batch_dim


@pytest.mark.parametrize(
    ("size", "profile"),
    [(1, 0), (2, 0), (4, 0), (6, 1), (16, 1), (32, 1), (64, None)],
)
def test_the_nearest_optimum_wins(size: int, profile: int | None) -> None:
    profiles = (batch_profile(1, 2, 32), batch_profile(1, 16, 32))
    assert choose_profile(profiles, {"x": (size, 8)}) == profile


def test_the_lowest_index_wins_a_tie() -> None:
    assert choose_profile((batch_profile(1, 8, 8), batch_profile(1, 2, 8)), {"x": (4, 8)}) == 0


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 9)), min_size=1), st.integers(1, 30))
def test_a_chosen_profile_allows_the_shape(steps: list[tuple[int, int, int]], size: int) -> None:
    profiles = tuple(batch_profile(low, low + a, low + a + b) for low, a, b in steps)
    chosen = choose_profile(profiles, {"x": (size, 8)})
    allowed = [i for i, profile in enumerate(profiles) if profile["x"].min[0] <= size <= profile["x"].max[0]]
    assert chosen in allowed if allowed else chosen is None


def test_buckets_outside_every_profile_are_named_with_the_ranges() -> None:
    profiles: tuple[Profile, ...] = (
        {"x": ShapeRange((1, 1), (1, 64), (1, 512))},
        {"x": ShapeRange((1, 1), (8, 64), (8, 64))},
    )
    card = ModelCard(
        name="m",
        dims={"x": ("batch", "sequence"), "y": ("batch", "sequence")},
        bucket_sizes={"batch": (1, 8), "sequence": (64, 512)},
    )
    with pytest.raises(ModelLoadFailed, match=r"allows the buckets 8x512 \(batchxsequence\)") as raised:
        profile_by_bucket(spec_of(card, profiles, "x_0", "x_1"), profiles)
    assert ranges_text(profiles) in raised.value.message
    assert "profile 1: x 1x1 to 8x64" in raised.value.message


def test_many_buckets_outside_are_counted() -> None:
    card = ModelCard(name="m", bucket_sizes={"batch": tuple(range(1, 21))})
    with pytest.raises(ModelLoadFailed, match="buckets 20, 19, 18, 17, 16, 15, 14, 13 and 3 more"):
        profile_by_bucket(spec_of(card, (batch_profile(1, 1, 9),), "x_0", 8), (batch_profile(1, 1, 9),))


def test_a_known_bucket_gets_its_profile() -> None:
    profiles = (batch_profile(1, 1, 1), batch_profile(2, 8, 8))
    spec = spec_of(ModelCard(name="m"), profiles, "x_0", 8)
    assert profile_by_bucket(spec, profiles) == {Bucket(8): 1, Bucket(4): 1, Bucket(2): 1, Bucket(1): 0}
