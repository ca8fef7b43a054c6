"""A card held against a model's tensors: batch dimension, buckets, and what is said where they disagree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.buckets import Form
from service.cards import BatchingCard, ModelCard, ShapeRange
from service.errors import CardError
from service.models import DEFAULT_MAX_BATCH_SIZE, ModelSpec, build_spec
from service.tensors import BATCH_DIM, Dim, DType, TensorSpec
from tests.doubles.requests import make_media_spec, make_spec

IMAGES = TensorSpec("images", DType.FP32, ("n", 3, "height", "width"))
SCORES = TensorSpec("scores", DType.FP32, ("m", 10))
IDS = TensorSpec("ids", DType.INT64, ("n", "sequence"))
FIXED = TensorSpec("fixed", DType.FP32, (3, 4))
SCALAR = TensorSpec("scalar", DType.FP32, ())


def spec(
    *inputs: TensorSpec, outputs: tuple[TensorSpec, ...] = (SCORES,), batch: int | None = None, **card: object
) -> ModelSpec:
    return build_spec(
        ModelCard(name="m", batching=BatchingCard(max_batch_size=batch), **card),  # type: ignore[arg-type]
        version="3",
        platform="test",
        inputs=inputs,
        outputs=outputs,
    )


def profile(**shapes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]) -> dict[str, ShapeRange]:
    return {name: ShapeRange(*shape) for name, shape in shapes.items()}


def test_the_leading_dimension_of_every_tensor_becomes_the_batch() -> None:
    made = spec(IMAGES, batch=8)
    assert made.has_batch_dim
    assert made.max_batch_size == 8
    assert [tensor.dims for tensor in made.inputs] == [(BATCH_DIM, 3, "height", "width")]
    assert [tensor.dims for tensor in made.outputs] == [(BATCH_DIM, 10)]
    assert (made.name, made.version, made.platform) == ("m", "3", "test")
    assert made.inputs[0].wire_shape == [-1, 3, -1, -1]


def test_dims_have_sizes_by_name() -> None:
    made = spec(IMAGES, batch=8)
    assert made.buckets.dim_names == ("height", "width")
    assert made.dim_sizes((480, 640), 5) == {BATCH_DIM: 5, "height": 480, "width": 640}
    assert made.inputs[0].resolve(made.dim_sizes((480, 640), 5)) == (5, 3, 480, 640)


@pytest.mark.parametrize(
    ("tensors", "batch", "has_batch_dim", "max_batch_size"),
    [
        ((IMAGES,), None, True, DEFAULT_MAX_BATCH_SIZE),
        ((IMAGES,), 1, True, 1),
        ((IMAGES,), 0, False, 0),
        ((FIXED,), None, False, 0),
        ((FIXED,), 0, False, 0),
        ((IMAGES, SCALAR), None, False, 0),
        ((IMAGES, FIXED), None, False, 0),
    ],
)
def test_batch_dimension(
    tensors: tuple[TensorSpec, ...], batch: int | None, has_batch_dim: bool, max_batch_size: int
) -> None:
    made = spec(*tensors, batch=batch)
    assert made.has_batch_dim is has_batch_dim
    assert made.max_batch_size == max_batch_size
    if not has_batch_dim:
        assert made.buckets.batch_sizes == (1,)
        assert made.inputs == tensors


@pytest.mark.parametrize("fixed", [FIXED, SCALAR])
def test_a_batch_size_on_a_fixed_leading_dimension_is_refused(fixed: TensorSpec) -> None:
    with pytest.raises(
        CardError, match=rf"max_batch_size = 8, but the leading dimension of \['{fixed.name}'\] is fixed"
    ):
        spec(IMAGES, fixed, batch=8)
    with pytest.raises(CardError, match="set max_batch_size = 0, or export the model with a dynamic batch"):
        spec(IMAGES, outputs=(SCORES, fixed), batch=8)


@pytest.mark.parametrize(
    ("batch", "card", "sizes"),
    [
        (None, {}, (1, 2, 4, 8, 16, 32)),
        (6, {}, (1, 2, 4, 6)),
        (1, {}, (1,)),
        (None, {"bucket_sizes": {BATCH_DIM: (3, 7)}}, (3, 7)),
        (7, {"bucket_sizes": {BATCH_DIM: (3, 7)}}, (3, 7)),
        (None, {"profiles": (profile(ids=((1, 1), (8, 64), (24, 512))),)}, (1, 2, 4, 8, 16, 24)),
        (4, {"profiles": (profile(ids=((1, 1), (8, 64), (24, 512))),)}, (1, 2, 4)),
    ],
)
def test_batch_sizes(batch: int | None, card: dict[str, object], sizes: tuple[int, ...]) -> None:
    assert spec(IDS, batch=batch, **card).buckets.batch_sizes == sizes


@pytest.mark.parametrize(
    ("card", "sizes"),
    [
        ({}, None),
        ({"bucket_sizes": {"sequence": (16, 100)}}, (16, 100)),
        ({"profiles": (profile(ids=((1, 16), (8, 48), (8, 128))),)}, (16, 32, 48, 64, 128)),
        (
            {"profiles": (profile(ids=((1, 16), (8, 16), (8, 32))), profile(ids=((1, 32), (8, 100), (8, 200))))},
            (16, 32, 64, 100, 128, 200),
        ),
        (
            {
                "bucket_sizes": {"sequence": (20,)},
                "profiles": (profile(ids=((1, 16), (8, 48), (8, 128))),),
            },
            (20,),
        ),
    ],
)
def test_sizes_of_a_dynamic_dimension(card: dict[str, object], sizes: tuple[int, ...] | None) -> None:
    made = spec(IDS, batch=8, **card)
    assert made.buckets.dim_names == ("sequence",)
    assert made.buckets.dim_sizes == (sizes,)
    assert made.buckets.is_exact is (sizes is None)


def test_a_dimension_that_inputs_share_is_one() -> None:
    made = spec(IDS, TensorSpec("mask", DType.INT64, ("n", "sequence")), batch=4)
    assert made.buckets.dim_names == ("sequence",)


def test_the_batch_is_no_dynamic_dimension_but_a_name_where_there_is_no_batch() -> None:
    named = TensorSpec("x", DType.FP32, (BATCH_DIM, 4))
    assert spec(named, batch=4).buckets.dim_names == ()
    assert spec(named, batch=0).buckets.dim_names == (BATCH_DIM,)
    assert spec(named, batch=0, bucket_sizes={BATCH_DIM: (4,)}).buckets.dim_sizes == ((4,),)


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        (("rows", "tokens"), (BATCH_DIM, "tokens")),
        (("n", 128), (BATCH_DIM, 128)),
    ],
)
def test_dims_are_renamed_and_fixed(dims: tuple[Dim, ...], expected: tuple[Dim, ...]) -> None:
    assert spec(IDS, batch=8, dims={"ids": dims}).inputs[0].dims == expected


@pytest.mark.parametrize("dims", [("n",), ("n", "s", 1), ("n", 4, "height", "width"), ("n", "channels", 5, 5)])
def test_dims_that_contradict_the_model_are_refused(dims: tuple[Dim, ...]) -> None:
    with pytest.raises(CardError, match=r"\[dims\] images = .* contradicts the model, which has \['n', 3, 'height'"):
        spec(IMAGES, dims={"images": dims})


def test_fixing_the_leading_dimension_takes_the_batch_away() -> None:
    assert not spec(IDS, dims={"ids": (1, "sequence")}).has_batch_dim


@pytest.mark.parametrize(
    ("card", "says"),
    [
        ({"dims": {"nope": ("n",)}}, r"names tensor 'nope', the model has \['ids', 'scores'\]"),
        ({"pad_values": {"nope": 1.0}}, r"names input 'nope', the model has \['ids'\]"),
        ({"pad_values": {"scores": 1.0}}, r"names input 'scores', the model has \['ids'\]"),
        ({"profiles": (profile(nope=((1,), (1,), (1,))),)}, r"names input 'nope', the model has \['ids'\]"),
        ({"profiles": (profile(scores=((1, 10), (1, 10), (1, 10))),)}, r"names input 'scores'"),
        (
            {"bucket_sizes": {"height": (8,)}},
            r"names dimension 'height', the model's dynamic dimensions are \['batch', 'sequence'\]; \[dims\] can",
        ),
        ({"profiles": (profile(ids=((1,), (1,), (1,))),)}, r"gives 'ids' 1 dimensions, the model has 2: \[-1, -1\]"),
        ({"profiles": (profile(ids=((1, 1), (1,), (1, 1))),)}, "gives 'ids' 1 dimensions"),
        ({"bucket_sizes": {BATCH_DIM: (1, 4)}, "batch": 8}, "batch ends at 4, but max_batch_size = 8; make them agree"),
        ({"bucket_sizes": {BATCH_DIM: (4,)}, "batch": 0}, r"names dimension 'batch', .* are \['n', 'sequence'\]"),
    ],
)
def test_cards_that_do_not_fit_the_model(card: dict[str, object], says: str) -> None:
    with pytest.raises(CardError, match=says) as caught:
        spec(IDS, **card)  # type: ignore[arg-type]
    assert caught.value.message.startswith("model 'm': ")


@given(batch=st.none() | st.integers(0, 200), sizes=st.sets(st.integers(1, 600), max_size=5).map(sorted))
def test_every_batch_up_to_the_largest_has_a_bucket(batch: int | None, sizes: list[int]) -> None:
    card = {"bucket_sizes": {"sequence": tuple(sizes)}} if sizes else {}
    made = spec(IDS, batch=batch, **card)
    largest = DEFAULT_MAX_BATCH_SIZE if batch is None else batch
    assert made.max_batch_size == largest
    assert made.buckets.max_size == max(1, largest)
    assert all(made.buckets.padded_size(rows) is not None for rows in range(1, largest + 1))
    if sizes and made.has_batch_dim:
        assert made.buckets.padded_dims((sizes[-1],)) == (sizes[-1],)
        assert made.buckets.padded_dims((sizes[-1] + 1,)) is None


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"batch": tuple(range(1, 101)), "width": tuple(range(1, 101))}, "make 10000 combinations"),
        ({"width": (1_000_000_000,)}, "bytes in the largest bucket"),
    ],
)
def test_buckets_that_start_up_could_not_end_with_are_refused(sizes, says):
    dims = ("batch", "width")
    with pytest.raises(CardError, match=says):
        build_spec(
            ModelCard(name="m", bucket_sizes=sizes),
            version="1",
            platform="test",
            inputs=(TensorSpec("x", DType.FP32, dims),),
            outputs=(TensorSpec("y", DType.FP32, dims),),
        )


@pytest.mark.parametrize(
    ("rows", "width", "is_served"), [(1, 3, True), (4, 8, True), (5, 3, False), (8, 8, False), (1, 8, True)]
)
def test_media_are_served_up_to_their_own_largest_batch(rows: int, width: int, is_served: bool) -> None:
    made = make_media_spec(dims={"width": (4, 8)}, media_sizes=(1, 4))
    assert made.serves_media(rows, (width,)) is is_served
    assert not make_spec(dims={"width": (4, 8)}).serves_media(rows, (width,))


def test_media_have_the_buckets_of_their_sizes() -> None:
    made = make_media_spec(max_batch_size=4, media_sizes=(1, 2))
    assert [bucket.label for bucket in made.buckets.known()] == ["4", "2", "1", "2:media", "1:media"]
    assert made.media is not None
    assert made.media.batch_sizes == made.buckets.media_sizes == (1, 2)
    assert made.max_batch_size == 4


def test_a_form_with_no_bucket_left_is_no_form_any_more() -> None:
    made = make_media_spec(max_batch_size=2)
    media = [bucket for bucket in made.buckets.known() if bucket.form is Form.MEDIA]
    assert made.without(()) is made
    some = made.without(media[:1])
    assert some.media is made.media
    assert (some.serves_media(1, ()), some.serves_media(2, ())) == (True, False)
    none = made.without(media)
    assert none.media is None
    assert not none.serves_media(1, ())
    assert [bucket.label for bucket in none.buckets.known()] == ["2", "1"]


def test_media_of_exact_sizes_or_of_sizes_without_tensors_are_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="before ready"):
        make_media_spec(exact=("width",))
    with pytest.raises(AssertionError, match="where tensors run"):
        make_media_spec(media_sizes=(3,))
