"""What is counted of attempts, and how it is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.diagnosis.matrix import Trial, accuracy, to_markdown

CLASSES = ("healthy", "overload", "padding-waste")
TRIALS = st.lists(
    st.builds(Trial, injected=st.sampled_from(CLASSES), found=st.sampled_from(CLASSES), is_disturbed=st.booleans()),
    max_size=8,
)


@pytest.mark.parametrize(
    ("found", "is_disturbed", "is_counted"),
    [("overload", False, True), ("overload", True, True), ("healthy", False, True), ("healthy", True, False)],
)
def test_a_wrong_answer_on_a_disturbed_machine_does_not_count(found: str, is_disturbed: bool, is_counted: bool) -> None:
    assert Trial("overload", found, is_disturbed=is_disturbed).is_counted is is_counted


def test_a_row_tells_what_came_first_what_else_and_what_was_left_out() -> None:
    trials = [
        Trial("overload", "overload", ("batch-too-small",)),
        Trial("overload", "healthy"),
        Trial("overload", "cpu-starved", is_disturbed=True),
    ]
    (row,) = [line for line in to_markdown(trials).splitlines() if line.startswith("| overload")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["overload", "healthy (1), overload (1)", "batch-too-small (1)", "1 of 2", "cpu-starved (1)"]


@given(TRIALS)
def test_no_attempt_is_lost(trials: list[Trial]) -> None:
    right, counted = accuracy(trials)
    assert right == sum(trial.injected == trial.found for trial in trials)
    assert counted + sum(trial.is_disturbed and trial.injected != trial.found for trial in trials) == len(trials)
    assert to_markdown(trials).endswith(f"{right} of {counted} attempts found the injected class first.")


@given(TRIALS)
def test_every_injected_class_has_one_row(trials: list[Trial]) -> None:
    rows = [line.split("|")[1].strip() for line in to_markdown(trials).splitlines()[2:] if line.startswith("|")]
    assert rows == list(dict.fromkeys(trial.injected for trial in trials))
