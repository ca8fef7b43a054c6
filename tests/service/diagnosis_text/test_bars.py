from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.diagnosis_text.bars import bar, duration, rate, share, sparkline


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.0, "0 us"), (1.5e-6, "1.5 us"), (0.00125, "1.25 ms"), (1.0, "1 s"), (12.345, "12.3 s")],
)
def test_durations_have_the_unit_that_suits_them(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(("per_s", "text"), [(None, "-"), (0.5, "0.5"), (794.94, "794.9"), (30769.2, "30,769")])
def test_rates(per_s, text):
    assert rate(per_s) == text


def test_shares():
    assert (share(None), share(0.1251)) == ("-", "12.5 %")


@pytest.mark.parametrize(
    ("ratio", "text"), [(None, ""), (0.0, ""), (-1.0, ""), (0.5, "█████"), (1.0, "█" * 10), (7.0, "█" * 10)]
)
def test_bars(ratio, text):
    assert bar(ratio, 10) == text


def test_a_bar_has_parts_of_a_character():
    assert bar(0.125, 1) == "▏"
    assert bar(0.55, 10) == "█████▌"


@given(st.lists(st.floats(0, 1e9), max_size=30))
def test_a_sparkline_has_a_character_per_value(values):
    assert len(sparkline(values)) == len(values)


def test_a_sparkline_is_as_high_as_the_value_among_all():
    assert sparkline([0.0, 1.0, 2.0, 4.0, 8.0]) == " ▁▂▄█"
    assert sparkline([0.0, 0.0]) == "  "
