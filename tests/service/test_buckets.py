from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.buckets import Bucket, BucketTable, CostTable, DimSizes, powers_of_two

ASCENDING = st.sets(st.integers(1, 300), min_size=1, max_size=6).map(lambda sizes: tuple(sorted(sizes)))
DIM_SIZES = st.lists(st.none() | ASCENDING, max_size=3).map(tuple)


def table(batch_sizes: tuple[int, ...], dim_sizes: tuple[tuple[int, ...] | None, ...]) -> BucketTable:
    return BucketTable(batch_sizes, tuple(f"d{index}" for index in range(len(dim_sizes))), dim_sizes)


TABLES = st.builds(table, ASCENDING, DIM_SIZES)


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


@given(TABLES, st.integers(1, 400))
def test_padded_size_is_the_smallest_that_holds_the_rows(buckets: BucketTable, size: int) -> None:
    padded = buckets.padded_size(size)
    holding = [known for known in buckets.batch_sizes if known >= size]
    assert padded == (holding[0] if holding else None)
    assert (padded is None) is (size > buckets.max_size)


@given(TABLES, st.data())
def test_padded_dims_are_minimal_and_cover(buckets: BucketTable, data: st.DataObject) -> None:
    dims = tuple(data.draw(st.integers(1, 400)) for _ in buckets.dim_sizes)
    padded = buckets.padded_dims(dims)
    if any(sizes is not None and size > sizes[-1] for size, sizes in zip(dims, buckets.dim_sizes, strict=True)):
        assert padded is None
        return
    assert padded is not None
    assert buckets.covers(padded, dims)
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
    assert sorted(known) == sorted(
        Bucket(rows, dims) for dims in itertools.product(*sizes) for rows in buckets.batch_sizes
    )
    assert known[0] == Bucket(buckets.max_size, tuple(largest[-1] for largest in sizes))
    assert known[0].volume == max(bucket.volume for bucket in known)


def test_exact_dims_are_named() -> None:
    buckets = table((1, 2), ((8,), None, None))
    assert buckets.is_exact
    assert buckets.exact_dims == ("d1", "d2")
    assert not table((1,), ((8,),)).is_exact
    assert table((1,), ()).exact_dims == ()


@pytest.mark.parametrize(
    ("bucket", "label", "volume"),
    [(Bucket(8), "8", 8), (Bucket(1, (640, 960)), "1x640x960", 614400), (Bucket(4, (16,)), "4x16", 64)],
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
    assert table((1,), dim_sizes).covers(larger, smaller) is expected


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


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=6))
def test_row_cost_is_the_best_that_any_batch_size_reaches(costs_ns: list[int]) -> None:
    costs = CostTable({Bucket(2**index): cost_ns for index, cost_ns in enumerate(costs_ns)})
    best = costs.row_cost_ns((), [2**index for index in range(len(costs_ns))])
    assert best == min(cost_ns / 2**index for index, cost_ns in enumerate(costs_ns))


@given(TABLES, st.data())
def test_a_table_without_some_buckets_is_the_others(buckets: BucketTable, data: st.DataObject) -> None:
    known = list(buckets.known())[:200]
    unserved = data.draw(st.frozensets(st.sampled_from(known))) if known else frozenset()
    left = buckets.without(unserved)
    assert list(left.known()) == [bucket for bucket in buckets.known() if bucket not in unserved]
    for bucket in known:
        assert (bucket.padded_size in left.sizes_at(bucket.dims)) is (bucket not in unserved)
        wanted = [size for size in left.sizes_at(bucket.dims) if size >= bucket.padded_size]
        assert left.served_size(bucket.padded_size, bucket.dims) == (wanted[0] if wanted else None)


@given(st.data())
def test_home_is_the_least_bucket_that_is_served_and_holds_the_request(data: st.DataObject) -> None:
    buckets = BucketTable((1, 2, 4), ("a", "b"), ((8, 16), (3, 5)))
    known = list(buckets.known())
    unserved = data.draw(st.frozensets(st.sampled_from(known)))
    rows, dims = data.draw(st.integers(1, 4)), (data.draw(st.integers(1, 16)), data.draw(st.integers(1, 5)))
    home = buckets.without(unserved).home(rows, dims)
    own = buckets.padded_dims(dims)
    holding = [
        bucket
        for bucket in known
        if bucket not in unserved and bucket.padded_size >= rows and buckets.covers(bucket.dims, dims)
    ]
    if not holding:
        assert home is None
    elif any(bucket.dims == own for bucket in holding):
        assert home == own
    else:
        assert home in {bucket.dims for bucket in holding}
        least = min(bucket.volume for bucket in holding)
        assert min(bucket.volume for bucket in holding if bucket.dims == home) == least


def test_buckets_can_be_taken_away_twice() -> None:
    buckets = BucketTable((1, 2)).without({Bucket(1)})
    assert (buckets.sizes_at(()), buckets.home(1, ())) == ((2,), ())
    assert buckets.without({Bucket(2)}).home(1, ()) is None


def test_an_exact_size_keeps_its_home() -> None:
    assert BucketTable((1, 2), ("width",), (None,)).home(2, (7,)) == (7,)
