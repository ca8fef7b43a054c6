"""What counts as slower, by table; what only one recording has; and what a whole batch is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.bench.bootstrap import Ratio
from service.bench.compare import MATERIAL, Tolerance, Verdict, batch_times, compare, judged, median_ns
from service.bench.recording import BATCH, Place, PlaceKind, Recording, Rounds

STAGE, LAYER = PlaceKind.STAGE, PlaceKind.LAYER


def flat(time_ns: float, rounds: int = 10) -> Rounds:
    return tuple((time_ns * (1.0 + 0.002 * (index % 3)),) for index in range(rounds))


@pytest.mark.parametrize(
    ("ratio", "added_share", "verdict"),
    [
        pytest.param(Ratio(1.10, 1.02, 1.18), 1.0, Verdict.SLOWER, id="surely, and by much"),
        pytest.param(Ratio(1.10, 0.99, 1.21), 1.0, Verdict.SAME, id="by much, not surely"),
        pytest.param(Ratio(1.04, 1.03, 1.05), 1.0, Verdict.SAME, id="surely, not by much"),
        pytest.param(Ratio(1.05, 1.01, 1.09), 1.0, Verdict.SLOWER, id="just enough"),
        pytest.param(Ratio(2.00, 1.90, 2.10), 0.004, Verdict.SAME, id="a trifle of the batch"),
        pytest.param(Ratio(0.90, 0.85, 0.95), 1.0, Verdict.FASTER, id="faster"),
        pytest.param(Ratio(0.96, 0.95, 0.97), 1.0, Verdict.SAME, id="hardly faster"),
        pytest.param(Ratio(0.90, 0.80, 1.01), 1.0, Verdict.SAME, id="not surely faster"),
        pytest.param(Ratio(9.00, None, None), 1.0, Verdict.UNKNOWN, id="one value on either side"),
    ],
)
def test_verdicts(ratio: Ratio, added_share: float, verdict: Verdict) -> None:
    was_ns = 1000.0 * added_share
    assert judged(ratio, was_ns, MATERIAL * 1000.0, Tolerance(0.05)) is verdict


@given(value=st.floats(0.1, 10.0), half=st.floats(0.001, 0.5), least_ns=st.floats(0.0, 100.0))
def test_nothing_is_slower_and_within_its_noise(value: float, half: float, least_ns: float) -> None:
    verdict = judged(Ratio(value, value - half, value + half), 1000.0, least_ns, Tolerance(0.05))
    if verdict is Verdict.SLOWER:
        assert value - half > 1.0
        assert value >= 1.05
        assert (value - 1.0) * 1000.0 >= least_ns


def test_places_are_compared_by_bucket_and_name() -> None:
    was = Recording(
        {
            Place("8", STAGE, BATCH): flat(1000.0),
            Place("8", STAGE, "compute"): flat(800.0),
            Place("8", STAGE, "d2h"): flat(5.0),
            Place("4", STAGE, BATCH): flat(500.0),
        }
    )
    now = Recording(
        {
            Place("8", STAGE, BATCH): flat(1200.0),
            Place("8", STAGE, "compute"): flat(1000.0),
            Place("8", STAGE, "d2h"): flat(10.0),
            Place("2", STAGE, BATCH): flat(300.0),
        }
    )
    comparison = compare(was, now, Tolerance(0.05))
    assert [change.place.name for change in comparison.slower] == ["compute", BATCH], "the worst comes first"
    assert [change.verdict for change in comparison.changes] == [Verdict.SLOWER, Verdict.SLOWER, Verdict.SAME]
    assert comparison.gone == (Place("4", STAGE, BATCH),)
    assert comparison.new == (Place("2", STAGE, BATCH),)
    assert comparison.slower[0].ratio.value == pytest.approx(1.25, rel=0.01)


def test_a_layer_is_found_that_the_batch_hides() -> None:
    names = [f"layer {index}" for index in range(20)]
    was = Recording({Place("8", LAYER, name): flat(50.0) for name in names})
    now = Recording({Place("8", LAYER, name): flat(80.0 if name == "layer 3" else 50.0) for name in names})
    assert [change.place.name for change in compare(was, now, Tolerance(0.05)).slower] == ["layer 3"]


def test_a_batch_is_its_stage_or_all_layers() -> None:
    series = {
        Place("8", LAYER, "a"): flat(10.0, 1),
        Place("8", LAYER, "b"): flat(20.0, 1),
        Place("4", LAYER, "a"): flat(7.0, 1),
        Place("4", STAGE, BATCH): flat(9.0, 1),
        Place("4", STAGE, "compute"): flat(8.0, 1),
    }
    assert batch_times(series) == {"8": 30.0, "4": 9.0}


def test_the_median_is_of_the_rounds_medians() -> None:
    assert median_ns(((1.0, 2.0, 99.0), (4.0,), (3.0, 3.0))) == 3.0
