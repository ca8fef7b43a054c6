"""The machine's own speed: measured beside the model, and no model is blamed for it."""

from __future__ import annotations

import itertools
import re

import pytest

from service.bench.bootstrap import Ratio
from service.bench.compare import Change, Comparison, Tolerance, Verdict
from service.bench.gate import GateResult, Outcome
from service.bench.gate_report import conclusion, notes, to_dict
from service.bench.recording import BATCH, Place, PlaceKind, Recording
from service.bench.reference import REFERENCE, SAMPLES, Reference, is_machine_slower, machine_ratio

TOLERANCE = Tolerance(0.1)
PLACE = Place("8", PlaceKind.STAGE, BATCH)
SLOWER = Comparison((Change(PLACE, 1e6, 2e6, Ratio(2.0, 1.9, 2.1), Verdict.SLOWER),), (), ())
SAME = Comparison((Change(PLACE, 1e6, 1e6, Ratio(1.0, 0.9, 1.1), Verdict.SAME),), (), ())


def recording(time_ns: float) -> Recording:
    return Recording({REFERENCE: tuple((time_ns * (1.0 + 0.001 * number),) for number in range(10))})


def test_every_round_is_timed_after_once_unmeasured() -> None:
    ticks = itertools.count(step=500)
    reference = Reference(clock=lambda: next(ticks))
    reference.run()
    reference.run()
    assert reference.rounds == [(500.0,) * SAMPLES] * 2
    assert next(ticks) == 500 * 2 * 2 * (SAMPLES + 1)


def test_the_machine_is_compared_where_both_tell_it() -> None:
    ratio = machine_ratio(recording(1e6), recording(2e6), 0.05)
    assert ratio is not None
    assert ratio.value == pytest.approx(2.0)
    assert is_machine_slower(ratio, TOLERANCE)
    assert not is_machine_slower(machine_ratio(recording(1e6), recording(1e6), 0.05), TOLERANCE)
    assert not is_machine_slower(machine_ratio(recording(2e6), recording(1e6), 0.05), TOLERANCE)
    assert machine_ratio(Recording({}), recording(1e6), 0.05) is None
    assert not is_machine_slower(None, TOLERANCE)


@pytest.mark.parametrize(
    ("comparison", "machine", "outcome", "said"),
    [
        (SAME, None, Outcome.PASSED, "nothing got slower, of 1 places"),
        (SAME, Ratio(3.0, 2.9, 3.1), Outcome.PASSED, "nothing got slower"),
        (SLOWER, None, Outcome.SLOWER, "1 of 1 places got slower, 8 stage batch the most: 2.00 times as long"),
        (SLOWER, Ratio(1.02, 0.99, 1.05), Outcome.SLOWER, "1 of 1 places got slower"),
        (SLOWER, Ratio(3.0, 2.9, 3.1), Outcome.UNDECIDED, "undecided: .* the machine itself takes 3.00 times as long"),
    ],
)
def test_what_a_slower_machine_explains_is_undecided(
    comparison: Comparison, machine: Ratio | None, outcome: Outcome, said: str
) -> None:
    result = GateResult(Recording({}), TOLERANCE, comparison, None, machine)
    assert result.outcome is outcome
    assert re.search(said, conclusion(result))
    assert to_dict(result)["outcome"] == outcome.name.lower()


def test_a_recording_alone_passes() -> None:
    assert GateResult(Recording({}), TOLERANCE).outcome is Outcome.PASSED


@pytest.mark.parametrize(("high", "is_said"), [(1.19, False), (1.3, True)])
def test_noise_that_hides_more_than_counts_is_said(high: float, is_said: bool) -> None:
    change = Change(PLACE, 1e6, 1e6, Ratio(1.0, 0.9, high), Verdict.SAME)
    told = list(notes(GateResult(Recording({}), TOLERANCE, Comparison((change,), (), ()))))
    assert any(f"may take {high:.2f} times as long, for noise hides as much" in line for line in told) is is_said
