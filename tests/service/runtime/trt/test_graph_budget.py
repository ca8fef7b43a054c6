"""Which buckets give up their graphs: as few as needed, the largest first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.buckets import Bucket
from service.runtime.trt.graph_budget import over_budget


@pytest.mark.parametrize(
    ("budget_bytes", "victims"),
    [
        (60, ()),
        (59, (Bucket(8),)),
        (31, (Bucket(8),)),
        (30, (Bucket(8),)),
        (29, (Bucket(8), Bucket(2))),
        (0, (Bucket(8), Bucket(2), Bucket(1))),
    ],
)
def test_the_largest_go_first(budget_bytes: int, victims: tuple[Bucket, ...]) -> None:
    graph_bytes = {Bucket(1): 10, Bucket(8): 30, Bucket(2): 20, Bucket(4): 0}
    assert over_budget(graph_bytes, budget_bytes) == victims


def test_size_is_rows_times_dims() -> None:
    assert over_budget({Bucket(8, (4,)): 10, Bucket(2, (64,)): 10}, 10) == (Bucket(2, (64,)),)


@given(
    st.dictionaries(st.integers(1, 64).map(Bucket), st.integers(0, 100), max_size=10),
    st.integers(0, 600),
)
def test_the_others_fit_and_none_goes_in_vain(graph_bytes: dict[Bucket, int], budget_bytes: int) -> None:
    victims = over_budget(graph_bytes, budget_bytes)
    kept = {bucket: nbytes for bucket, nbytes in graph_bytes.items() if bucket not in victims}
    assert sum(kept.values()) <= budget_bytes
    if victims:
        assert sum(kept.values()) + graph_bytes[victims[-1]] > budget_bytes
        assert all(bucket < victims[-1] for bucket, nbytes in kept.items() if nbytes)
