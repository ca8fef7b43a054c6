"""Time in which a device was idle although requests waited, by what filled it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.telemetry.idle_gaps import GAP_CAUSES, are_gaps, gaps_ns
from service.telemetry.totals import BATCH_FACTS, BATCH_ROW, BatchTotals, as_rows

FREE = 1000


def gaps(*, free=FREE, queued_at, dispatched, started, computing, kept_open=0, copying=0) -> dict[str, int]:
    waits = np.array([[kept_open, started - dispatched, copying]], np.int64)
    moments = [np.array([each], np.int64) for each in (free, queued_at, started, computing)]
    chosen = are_gaps(moments[0], moments[1], moments[3])
    found = gaps_ns(moments[0][chosen], moments[2][chosen], moments[3][chosen], waits[chosen])
    return {cause: ns for cause, ns in zip(GAP_CAUSES, found.tolist(), strict=True) if ns}


@pytest.mark.parametrize(
    ("moments", "found"),
    [
        pytest.param(
            {"queued_at": 900, "dispatched": 1030, "started": 1050, "computing": 1120, "copying": 60},
            {"sync_notify": 30, "host_submit": 30, "copy": 60},
            id="it waited behind the batch before",
        ),
        pytest.param(
            {"queued_at": 900, "dispatched": 1030, "started": 1050, "computing": 1120, "kept_open": 25},
            {"formation": 25, "sync_notify": 5, "host_submit": 90},
            id="kept open for company",
        ),
        pytest.param(
            {"queued_at": 900, "dispatched": 1030, "started": 1030, "computing": 1030, "kept_open": 500},
            {"formation": 30},
            id="kept open since before the gap",
        ),
        pytest.param(
            {"queued_at": 800, "dispatched": 900, "started": 950, "computing": 1010, "copying": 40},
            {"copy": 10},
            id="on the lane already",
        ),
        pytest.param(
            {"queued_at": 800, "dispatched": 900, "started": 1020, "computing": 1020},
            {"host_submit": 20},
            id="handed over",
        ),
        pytest.param(
            {"queued_at": 1000, "dispatched": 1030, "started": 1050, "computing": 1120},
            {},
            id="nobody had asked before",
        ),
        pytest.param({"queued_at": 800, "dispatched": 900, "started": 950, "computing": 990}, {}, id="side by side"),
        pytest.param(
            {"free": 0, "queued_at": 900, "dispatched": 950, "started": 960, "computing": 990}, {}, id="the first batch"
        ),
    ],
)
def test_what_fills_a_gap(moments, found):
    assert gaps(**moments) == found


@given(
    free=st.integers(1, 10**6),
    queued_at=st.integers(1, 10**6),
    steps=st.lists(st.integers(0, 10**5), min_size=3, max_size=3),
    kept_open=st.integers(0, 10**6),
    copying=st.integers(0, 10**6),
)
def test_causes_add_up_to_the_gap_and_none_is_negative(free, queued_at, steps, kept_open, copying):
    dispatched, started, computing = (int(moment) for moment in queued_at + np.cumsum(steps))
    found = gaps(
        free=free,
        queued_at=queued_at,
        dispatched=dispatched,
        started=started,
        computing=computing,
        kept_open=kept_open,
        copying=copying,
    )
    assert all(ns > 0 for ns in found.values())
    assert sum(found.values()) == (max(0, computing - free) if queued_at < free else 0)


def row(queued_at: int, dispatched: int, started: int, computing: int, computed: int) -> bytes:
    facts = dict.fromkeys(BATCH_FACTS, 0) | {"queued": dispatched - queued_at, "handed_over": started - dispatched}
    return BATCH_ROW.pack(0, 1, 1, 1, 0, started, computing, computed, computed, *facts.values())


BATCHES = [
    row(50, 60, 70, 100, 200),
    row(150, 210, 215, 230, 300),
    row(290, 295, 296, 300, 400),
    row(450, 455, 460, 470, 500),
]


@pytest.mark.parametrize("folds", [[4], [1, 3], [2, 2], [1, 1, 1, 1]])
def test_gaps_are_the_same_however_batches_are_folded(folds):
    totals, left = BatchTotals.empty(), list(BATCHES)
    for count in folds:
        packed = bytearray(b"".join(left[:count]))
        del left[:count]
        totals = totals.plus(as_rows(packed, BATCH_ROW))
    assert dict(zip(GAP_CAUSES, totals.gaps_ns.tolist(), strict=True)) == {
        "formation": 0,
        "host_submit": 20,
        "sync_notify": 10,
        "copy": 0,
    }
