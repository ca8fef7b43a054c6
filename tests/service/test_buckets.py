from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.buckets import Bucket, BucketTable, CostTable, DimSizes, Form, Home, powers_of_two

ASCENDING = st.sets(st.integers(1, 300), min_size=1, max_size=6).map(lambda sizes: tuple(sorted(sizes)))
DIM_SIZES = st.lists(st.none() | ASCENDING, max_size=3).map(tuple)


FORMS = st.sampled_from(Form)


def table(
    batch_sizes: tuple[int, ...], dim_sizes: tuple[tuple[int, ...] | None, ...], media_sizes: tuple[int, ...] = ()
) -> BucketTable:
    names = tuple(f"d{index}" for index in range(len(dim_sizes)))
    return BucketTable(batch_sizes, names, dim_sizes, media_sizes=media_sizes)


@st.composite
def tables(draw: st.DrawFn) -> BucketTable:
    """Tables of every kind: with and without dimensions, exact ones, and media in some, all or none of the sizes."""
    batch_sizes = draw(ASCENDING)
    media_sizes = draw(st.sets(st.sampled_from(batch_sizes)))
    return table(batch_sizes, draw(DIM_SIZES), tuple(sorted(media_sizes)))


TABLES = tables()


@pytest.mark.parametrize(
    ("low", "high", "sizes"),
    [
        (1, 1, (1,)),
        (1, 2, (1, 2)),
        (1, 8, (1, 2, 4, 8)),
        (1, 12, (1, 2, 4, 8, 12)),
        (3, 20, (3, 4, 8, 16, 20)),
        (16, 17, (16, 17)),
        (5, 5, (5,)),
    ],
)
def test_powers_of_two(low: int, high: int, sizes: tuple[int, ...]) -> None:
    assert powers_of_two(low, high) == sizes


@given(st.integers(1, 5000), st.integers(0, 5000))
def test_each_power_is_at_most_twice_the_one_before(low: int, extra: int) -> None:
    sizes = powers_of_two(low, low + extra)
    assert sizes[0] == low
    assert sizes[-1] == low + extra
    assert all(small < large <= 2 * small for small, large in itertools.pairwise(sizes))
    assert all(size & (size - 1) == 0 for size in sizes[1:-1])


@given(TABLES, st.integers(1, 400), FORMS)
def test_padded_size_is_the_smallest_that_holds_the_rows(buckets: BucketTable, size: int, form: Form) -> None:
    padded = buckets.padded_size(size, form)
    sizes = {Form.TENSORS: buckets.batch_sizes, Form.MEDIA: buckets.media_sizes}[form]
    assert buckets.sizes_of(form) == sizes
    holding = [known for known in sizes if known >= size]
    assert padded == (holding[0] if holding else None)
    assert (padded is None) is (size > max(sizes, default=0))


@given(TABLES, st.data())
def test_padded_dims_are_minimal_and_cover(buckets: BucketTable, data: st.DataObject) -> None:
    dims = tuple(data.draw(st.integers(1, 400)) for _ in buckets.dim_sizes)
    padded = buckets.padded_dims(dims)
    if any(sizes is not None and size > sizes[-1] for size, sizes in zip(dims, buckets.dim_sizes, strict=True)):
        assert padded is None
        return
    assert padded is not None
    assert buckets.covers(Home(padded), Home(dims))
    for size, padded_size, sizes in zip(dims, padded, buckets.dim_sizes, strict=True):
        assert padded_size == (size if sizes is None else min(known for known in sizes if known >= size))
    assert buckets.padded_dims(padded) == padded


def test_dims_of_another_rank_are_our_own_mistake() -> None:
    with pytest.raises(ValueError, match="zip"):
        BucketTable((1,), ("a",), ((8,),)).padded_dims((8, 8))


@given(TABLES)
def test_known_buckets_are_all_of_them_once_the_largest_first(buckets: BucketTable) -> None:
    known = list(buckets.known())
    if buckets.is_exact:
        assert known == []
        return
    sizes = [sizes for sizes in buckets.dim_sizes if sizes is not None]
    for form in Form:
        own = [bucket for bucket in known if bucket.form is form]
        assert sorted(own) == sorted(
            Bucket(rows, dims, form) for dims in itertools.product(*sizes) for rows in buckets.sizes_of(form)
        )
        if own:
            assert own[0] == Bucket(buckets.sizes_of(form)[-1], tuple(largest[-1] for largest in sizes), form)
            assert own[0].volume == max(bucket.volume for bucket in own)
    assert [bucket.form for bucket in known] == sorted(bucket.form for bucket in known)


def test_exact_dims_are_named() -> None:
    buckets = table((1, 2), ((8,), None, None))
    assert buckets.is_exact
    assert buckets.exact_dims == ("d1", "d2")
    assert not table((1,), ((8,),)).is_exact
    assert table((1,), ()).exact_dims == ()


@pytest.mark.parametrize(
    ("bucket", "label", "volume"),
    [
        (Bucket(8), "8", 8),
        (Bucket(1, (640, 960)), "1x640x960", 614400),
        (Bucket(4, (16,)), "4x16", 64),
        (Bucket(8, (), Form.MEDIA), "8:media", 8),
        (Bucket(4, (16,), Form.MEDIA), "4x16:media", 64),
    ],
)
def test_label_and_volume(bucket: Bucket, label: str, volume: int) -> None:
    assert (bucket.label, bucket.volume) == (label, volume)


@pytest.mark.parametrize(
    ("dim_sizes", "larger", "smaller", "expected"),
    [
        ((), (), (), True),
        (((8, 9), (8, 9)), (8, 8), (8, 8), True),
        (((8, 9), (8, 9)), (8, 9), (8, 8), True),
        (((8, 9), (7, 8)), (9, 7), (8, 8), False),
        (((8, 9), None), (9, 5), (8, 5), True),
        (((8, 9), None), (9, 6), (8, 5), False),
    ],
)
def test_covers(dim_sizes: tuple[DimSizes | None, ...], larger: DimSizes, smaller: DimSizes, expected: bool) -> None:
    """An exact size cannot be padded, so it covers itself alone."""
    buckets = table((1,), dim_sizes, (1,))
    for form in Form:
        assert buckets.covers(Home(larger, form), Home(smaller, form)) is expected


@given(TABLES, st.data())
def test_no_form_covers_another(buckets: BucketTable, data: st.DataObject) -> None:
    dims = tuple(data.draw(st.integers(1, 400)) for _ in buckets.dim_sizes)
    assert not buckets.covers(Home(dims, Form.MEDIA), Home(dims))
    assert not buckets.covers(Home(dims), Home(dims, Form.MEDIA))


@given(st.tuples(st.integers(1, 9)), FORMS)
def test_a_home_is_its_bucket_but_for_the_size(dims: DimSizes, form: Form) -> None:
    assert Bucket(3, dims, form).home == Home(dims, form)
    assert Bucket(3, *Home(dims, form)) == Bucket(3, dims, form)
    assert {Home(dims, form): 1}[Home(dims, Form(form.value))] == 1


@pytest.mark.parametrize(
    ("volume", "cost_ns"),
    [(10, 1000), (20, 1600), (15, 1300), (5, 500), (1, 100), (40, 3200), (0, 1)],
)
def test_costs_between_and_beyond_what_was_measured(volume: int, cost_ns: int) -> None:
    costs = CostTable({Bucket(1, (10,)): 1000, Bucket(2, (10,)): 1600})
    assert costs.cost_ns(Bucket(1, (volume,))) == cost_ns


def test_a_measured_cost_is_taken_as_it_is() -> None:
    costs = CostTable({Bucket(2, (10,)): 1600, Bucket(1, (20,)): 900})
    assert costs.cost_ns(Bucket(2, (10,))) == 1600
    assert costs.cost_ns(Bucket(1, (20,))) == 900
    assert costs.cost_ns(Bucket(4, (5,))) == 1600


def test_without_measurements_every_row_costs_the_same() -> None:
    costs = CostTable({}, default_row_ns=7)
    assert costs.cost_ns(Bucket(3, (500,))) == 21
    assert CostTable({}).cost_ns(Bucket(2)) == 2_000_000


def test_what_was_measured_in_one_form_says_nothing_of_the_other() -> None:
    costs = CostTable({Bucket(1, (10,)): 1000, Bucket(1, (20,), Form.MEDIA): 9}, default_row_ns=7)
    assert costs.cost_ns(Bucket(1, (20,))) == 2000
    assert costs.cost_ns(Bucket(1, (10,), Form.MEDIA)) == 4
    assert CostTable({Bucket(1): 1000}, default_row_ns=7).cost_ns(Bucket(2, (), Form.MEDIA)) == 14


@given(
    steps=st.lists(st.tuples(st.integers(1, 50), st.integers(0, 10**7)), max_size=6),
    volumes=st.tuples(st.integers(1, 500), st.integers(1, 500)),
)
def test_a_larger_volume_never_costs_less(steps: list[tuple[int, int]], volumes: tuple[int, int]) -> None:
    sizes = itertools.accumulate(step for step, _ in steps)
    costs_ns = itertools.accumulate(cost_ns for _, cost_ns in steps)
    costs = CostTable({Bucket(size): max(1, cost_ns) for size, cost_ns in zip(sizes, costs_ns, strict=True)})
    small, large = sorted(volumes)
    assert 1 <= costs.cost_ns(Bucket(small)) <= costs.cost_ns(Bucket(large))


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=6), FORMS)
def test_row_cost_is_the_best_that_any_batch_size_reaches(costs_ns: list[int], form: Form) -> None:
    costs = CostTable({Bucket(2**index, (), form): cost_ns for index, cost_ns in enumerate(costs_ns)})
    best = costs.row_cost_ns(Home((), form), [2**index for index in range(len(costs_ns))])
    assert best == min(cost_ns / 2**index for index, cost_ns in enumerate(costs_ns))


@given(TABLES, st.data())
def test_a_table_without_some_buckets_is_the_others(buckets: BucketTable, data: st.DataObject) -> None:
    known = list(buckets.known())[:200]
    unserved = data.draw(st.frozensets(st.sampled_from(known))) if known else frozenset()
    left = buckets.without(unserved)
    assert list(left.known()) == [bucket for bucket in buckets.known() if bucket not in unserved]
    for bucket in known:
        assert (bucket.padded_size in left.sizes_at(bucket.home)) is (bucket not in unserved)
        wanted = [size for size in left.sizes_at(bucket.home) if size >= bucket.padded_size]
        assert left.served_size(bucket.padded_size, bucket.home) == (wanted[0] if wanted else None)


@given(st.data(), st.sampled_from([(), (2,), (1, 2, 4)]), FORMS)
def test_home_is_the_least_bucket_that_is_served_and_holds_the_request(
    data: st.DataObject, media_sizes: tuple[int, ...], form: Form
) -> None:
    buckets = table((1, 2, 4), ((8, 16), (3, 5)), media_sizes)
    known = list(buckets.known())
    unserved = data.draw(st.frozensets(st.sampled_from(known)))
    rows, dims = data.draw(st.integers(1, 5)), (data.draw(st.integers(1, 16)), data.draw(st.integers(1, 5)))
    home = buckets.without(unserved).home(rows, dims, form)
    own = buckets.padded_dims(dims)
    holding = [
        bucket
        for bucket in known
        if bucket not in unserved and bucket.padded_size >= rows and buckets.covers(bucket.home, Home(dims, form))
    ]
    if not holding:
        assert home is None
    elif any(bucket.dims == own for bucket in holding):
        assert home == (own, form)
    else:
        assert home in {bucket.home for bucket in holding}
        least = min(bucket.volume for bucket in holding)
        assert min(bucket.volume for bucket in holding if bucket.home == home) == least


def test_a_request_that_exceeds_its_dims_or_every_batch_has_no_home() -> None:
    buckets = table((1, 2, 4), ((8,),), (1, 2))
    assert buckets.home(1, (9,)) is None
    assert buckets.home(4, (8,)) == Home((8,))
    assert buckets.home(5, (8,)) is None
    assert buckets.home(2, (8,), Form.MEDIA) == Home((8,), Form.MEDIA)
    assert buckets.home(3, (8,), Form.MEDIA) is None


def test_buckets_can_be_taken_away_twice() -> None:
    buckets = BucketTable((1, 2)).without({Bucket(1)})
    assert (buckets.sizes_at(Home(())), buckets.home(1, ())) == ((2,), Home(()))
    assert buckets.without({Bucket(2)}).home(1, ()) is None


def test_taking_a_bucket_of_one_form_leaves_the_other_s() -> None:
    buckets = table((1, 2), (), (1, 2)).without({Bucket(1, (), Form.MEDIA), Bucket(2, (), Form.MEDIA)})
    assert buckets.home(1, ()) == Home(())
    assert buckets.home(1, (), Form.MEDIA) is None
    assert [bucket.label for bucket in buckets.known()] == ["2", "1"]


def test_an_exact_size_keeps_its_home() -> None:
    assert BucketTable((1, 2), ("width",), (None,)).home(2, (7,)) == Home((7,))
