from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.profiles import MAX_PROFILES, cut, profiles_for
from service.cards import BatchingCard, ModelCard, ShapeRange
from service.errors import CardError
from service.models import ModelSpec, build_spec
from service.runtime.trt.profiles import Profile, card_for_engine, profile_by_bucket
from service.tensors import DType, TensorSpec

IMAGE = TensorSpec("image", DType.FP32, ("N", 3, "height", "width"))
MASK = TensorSpec("mask", DType.FP32, ("N", "height"))
SCORE = TensorSpec("score", DType.FP32, ("N", 10))
TOKENS = TensorSpec("tokens", DType.INT64, ("N", "length"))
FIXED = TensorSpec("fixed", DType.FP32, (3, 4))
SIZE = TensorSpec("size", DType.INT64, (2,))

SIZES = st.sets(st.integers(1, 300), min_size=1, max_size=5).map(lambda sizes: tuple(sorted(sizes)))


def served(card: ModelCard, inputs: tuple[TensorSpec, ...], profiles: tuple[Profile, ...]) -> ModelSpec:
    """The model as a server has it that opens an engine of these profiles."""
    outputs = (SCORE,)
    card = card_for_engine(card, (*inputs, *outputs), inputs, profiles)
    return build_spec(card, version="1", platform="tensorrt_plan", inputs=inputs, outputs=outputs)


def assert_well_formed(profiles: tuple[Profile, ...], inputs: tuple[TensorSpec, ...]) -> None:
    assert 1 <= len(profiles) <= MAX_PROFILES
    for profile in profiles:
        assert set(profile) == {tensor.name for tensor in inputs}
        for shapes in profile.values():
            assert all(a <= b <= c for a, b, c in zip(shapes.min, shapes.opt, shapes.max, strict=True))


def shape_range(*ends: tuple[int, ...]) -> ShapeRange:
    return ShapeRange(*ends)


@given(st.sets(st.integers(1, 5000), min_size=1, max_size=12), st.sampled_from([1, 2, 8, 64]))
def test_a_cut_leaves_nothing_out_and_keeps_groups_narrow(sizes: set[int], span: int) -> None:
    ranges = cut(sorted(sizes), span)
    assert (ranges[0][0], ranges[-1][1]) == (min(sizes), max(sizes))
    for (_, high), (low, _) in itertools.pairwise(ranges):
        assert low == high + 1
    for low, high in ranges:
        inside = [size for size in sizes if low <= size <= high]
        assert inside
        assert max(inside) == high
        assert high <= min(inside) * span


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((1, 2, 4, 8, 16, 32, 64, 128), ((1, 8), (9, 128))),
        ((1, 2, 4, 8, 16, 32), ((1, 2), (3, 32))),
        ((16, 32, 64, 128, 256, 512), ((16, 32), (33, 512))),
        ((1, 8), ((1, 8),)),
        ((7,), ((7, 7),)),
    ],
)
def test_how_common_sizes_are_cut(sizes: tuple[int, ...], expected: tuple[tuple[int, int], ...]) -> None:
    assert cut(sizes, 8) == expected


@given(batch=st.none() | SIZES, heights=SIZES, widths=SIZES)
def test_every_bucket_of_a_card_is_covered_here_and_where_the_plan_is_served(
    batch: tuple[int, ...] | None, heights: tuple[int, ...], widths: tuple[int, ...]
) -> None:
    sizes = {"height": heights, "width": widths, **({} if batch is None else {"batch": batch})}
    card = ModelCard(name="m", bucket_sizes=sizes)
    inputs = (IMAGE, MASK)
    profiles = profiles_for(card, inputs, (SCORE,))
    assert_well_formed(profiles, inputs)
    spec = served(card, inputs, profiles)
    assert spec.buckets.dim_sizes == (heights, widths)
    assert set(profile_by_bucket(spec, profiles)) == set(spec.buckets.known())
    wanted = build_spec(card, version="1", platform="", inputs=inputs, outputs=(SCORE,))
    assert set(wanted.buckets.known()) <= set(spec.buckets.known())


@given(first=st.integers(1, 6), last=st.integers(6, 20), batch=st.none() | SIZES, lengths=SIZES)
def test_buckets_that_the_cards_own_profiles_leave_out_get_one_more(
    first: int, last: int, batch: tuple[int, ...] | None, lengths: tuple[int, ...]
) -> None:
    given_profile = {"tokens": shape_range((1, 4), (first, 8), (last, 16))}
    sizes = {"length": lengths, **({} if batch is None else {"batch": batch})}
    card = ModelCard(name="m", bucket_sizes=sizes, profiles=(given_profile,))
    profiles = profiles_for(card, (TOKENS,), (SCORE,))
    assert_well_formed(profiles, (TOKENS,))
    assert profiles[0] == given_profile
    assert len(profiles) <= 2
    spec = served(card, (TOKENS,), profiles)
    assert set(profile_by_bucket(spec, profiles)) == set(spec.buckets.known())


def test_where_groups_make_too_many_profiles_they_get_wider_until_they_fit() -> None:
    sizes = {"batch": (1, 16, 256), "height": (1, 16, 256), "width": (1, 16, 256)}
    card = ModelCard(name="m", bucket_sizes=sizes)
    profiles = profiles_for(card, (IMAGE,), (SCORE,))
    assert len(profiles) == MAX_PROFILES
    spec = served(card, (IMAGE,), profiles)
    assert set(profile_by_bucket(spec, profiles)) == set(spec.buckets.known())


def test_profiles_that_cover_their_buckets_stay_alone() -> None:
    card = ModelCard(name="m", profiles=({"tokens": shape_range((1, 4), (2, 8), (4, 16))},))
    assert profiles_for(card, (TOKENS,), (SCORE,)) == card.profiles


def test_two_regimes_that_do_not_meet_get_one_for_what_their_buckets_combine_to() -> None:
    short = {"tokens": shape_range((1, 1), (16, 16), (32, 16))}
    long = {"tokens": shape_range((1, 17), (2, 128), (4, 128))}
    card = ModelCard(name="m", profiles=(short, long))
    profiles = profiles_for(card, (TOKENS,), (SCORE,))
    assert profiles[:2] == (short, long)
    assert profiles[2] == {"tokens": shape_range((8, 32), (32, 128), (32, 128))}


def test_derived_profiles_are_tuned_for_their_largest_shape() -> None:
    card = ModelCard(name="m", batching=BatchingCard(max_batch_size=128))
    (image,) = (TensorSpec("image", DType.FP32, ("N", 3, 224, 224)),)
    assert profiles_for(card, (image,), (SCORE,)) == (
        {"image": shape_range((1, 3, 224, 224), (8, 3, 224, 224), (8, 3, 224, 224))},
        {"image": shape_range((9, 3, 224, 224), (128, 3, 224, 224), (128, 3, 224, 224))},
    )


def test_a_model_of_fixed_shape_has_one_profile() -> None:
    fixed = (shape_range((3, 4), (3, 4), (3, 4)),)
    outputs = (TensorSpec("y", DType.FP32, (4,)),)
    assert profiles_for(ModelCard(name="m"), (FIXED,), outputs) == ({"fixed": fixed[0]},)


def test_inputs_that_a_profile_does_not_name_follow_those_it_names() -> None:
    card = ModelCard(name="m", profiles=({"image": shape_range((1, 3, 8, 8), (2, 3, 16, 8), (4, 3, 32, 8))},))
    (profile,) = profiles_for(card, (IMAGE, MASK), (SCORE,))
    assert profile["mask"] == shape_range((1, 8), (2, 16), (4, 32))


def test_names_of_the_cards_dims_count() -> None:
    card = ModelCard(name="m", dims={"tokens": ("batch", "words")}, bucket_sizes={"words": (8, 64)})
    (*_, last) = profiles_for(card, (TOKENS,), (SCORE,))
    assert last["tokens"].max == (32, 64)


@pytest.mark.parametrize(
    ("keys", "inputs", "words"),
    [
        ({}, (TOKENS,), "[buckets] length = [64, 128], or a [[profile]] tokens = { min = [MIN, MIN], opt = ["),
        ({}, (IMAGE, MASK), "dimension 'height' of input 'image' [-1, 3, -1, -1] has no sizes"),
        (
            {"profiles": ({"mask": shape_range((1, 8), (2, 8), (4, 8))},), "bucket_sizes": {"width": (8,)}},
            (IMAGE, MASK),
            "profile 0 has no range for dimension 'width' of input 'image'; add image = {",
        ),
        (
            {"profiles": ({"image": shape_range((1, 4, 8, 8), (1, 4, 8, 8), (1, 4, 8, 8))},)},
            (IMAGE, MASK),
            "profile 0 gives input 'image' [1, 4, 8, 8] to [1, 4, 8, 8], the model has [-1, 3, -1, -1]",
        ),
        (
            {"profiles": ({"tokens": shape_range((1, 4), (2, 8), (4, 16))},) * 9},
            (TOKENS,),
            "the card has 9 profiles, at most 8 are built",
        ),
        (
            {
                "profiles": ({"tokens": shape_range((1, 4), (2, 8), (4, 16))},) * 8,
                "bucket_sizes": {"length": (64,)},
            },
            (TOKENS,),
            "do not allow all of its buckets",
        ),
        ({}, (FIXED, SIZE), "values of input 'size' on the host and needs their range: write a [[profile]] with size"),
    ],
)
def test_what_is_missing_is_asked_for(keys: dict[str, object], inputs: tuple[TensorSpec, ...], words: str) -> None:
    shape_inputs = frozenset({"size"} & {tensor.name for tensor in inputs})
    with pytest.raises(CardError) as caught:
        profiles_for(ModelCard(name="m", **keys), inputs, (SCORE,), shape_inputs)  # type: ignore[arg-type]
    assert words in caught.value.message


def test_values_on_the_host_have_ranges_of_their_own() -> None:
    values = shape_range((1, 1), (8, 8), (16, 16))
    outputs = (TensorSpec("y", DType.FP32, (4,)),)
    card = ModelCard(name="m", profiles=({"size": values},))
    (profile,) = profiles_for(card, (FIXED, SIZE), outputs, frozenset({"size"}))
    assert profile == {"fixed": shape_range((3, 4), (3, 4), (3, 4)), "size": values}


def test_a_profile_that_catches_the_rest_has_the_last_values() -> None:
    values = shape_range((1, 1), (8, 8), (16, 16))
    own = {"tokens": shape_range((1, 4), (2, 8), (4, 16)), "size": values}
    card = ModelCard(name="m", profiles=(own,), bucket_sizes={"length": (64,)})
    profiles = profiles_for(card, (TOKENS, SIZE), (SCORE,), frozenset({"size"}))
    assert [profile["size"] for profile in profiles] == [values, values]
