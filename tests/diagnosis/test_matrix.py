"""What is counted of attempts, and how it is written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.diagnosis.matrix import Trial, accuracy, to_markdown

CLASSES = ("healthy", "overload", "padding-waste")
TRIALS = st.lists(
    st.builds(Trial, injected=st.sampled_from(CLASSES), found=st.sampled_from(CLASSES), is_disturbed=st.booleans()),
    max_size=8,
)


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_a_row_tells_what_came_first_and_what_else_of_all_and_of_those_left_alone() -> None:
    trials = [
        Trial("overload", "overload", ("batch-too-small",)),
        Trial("overload", "healthy"),
        Trial("overload", "cpu-starved", is_disturbed=True),
        Trial("overload", "overload", is_disturbed=True),
    ]
    row, whole = to_markdown(trials).splitlines()[-2:]
    found = "overload (2), cpu-starved (1), healthy (1)"
    assert cells(row) == ["overload", found, "batch-too-small (1)", "2 of 4", "1 of 2"]
    assert cells(whole) == ["all", "", "", "2 of 4", "1 of 2"]


@given(TRIALS)
def test_no_attempt_is_lost(trials: list[Trial]) -> None:
    right, every = accuracy(trials)
    assert (right, every) == (sum(trial.injected == trial.found for trial in trials), len(trials))
    calm = [trial for trial in trials if not trial.is_disturbed]
    told = cells(to_markdown(trials).splitlines()[-1])[-2:]
    assert told == [f"{right} of {every}", f"{accuracy(calm)[0]} of {len(calm)}"]


@given(TRIALS)
def test_every_injected_class_has_one_row(trials: list[Trial]) -> None:
    rows = [line.split("|")[1].strip() for line in to_markdown(trials).splitlines()[2:-1]]
    assert rows == list(dict.fromkeys(trial.injected for trial in trials))
