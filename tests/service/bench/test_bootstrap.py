"""Simulated noise: how often the intervals cry wolf, and what they find."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.bench.bootstrap import Pair, Ratio, ratios
from service.bench.compare import Tolerance, Verdict, judged
from service.bench.recording import Rounds

ROUNDS = 20
TOLERANCE = Tolerance(0.05)

Noise = Callable[[np.random.Generator], float]

NOISES: dict[str, Noise] = {
    "normal": lambda rng: rng.normal(0.0, 0.03),
    "heavy tails": lambda rng: 0.03 * rng.standard_t(3),
    "skewed": lambda rng: rng.exponential(0.03),
    "disturbed rounds": lambda rng: rng.normal(0.0, 0.02) + 0.4 * (rng.random() < 0.1),
}


def side(rng: np.random.Generator, noise: Noise, factor: float = 1.0, rounds: int = ROUNDS) -> Rounds:
    """Rounds with noise of their own, and samples that vary around each."""
    centres = [1e6 * factor * np.exp(noise(rng)) for _ in range(rounds)]
    return tuple(tuple(map(float, centre * np.exp(rng.normal(0.0, 0.01, 5)))) for centre in centres)


def pairs(
    rng: np.random.Generator, noise: Noise, factor: float, places: int, *, is_paired: bool, rounds: int = ROUNDS
) -> list[Pair]:
    """`places` that did not change but for noise, the first one slower by `factor`."""
    return [
        Pair(side(rng, noise, rounds=rounds), side(rng, noise, factor if place == 0 else 1.0, rounds), is_paired)
        for place in range(places)
    ]


def holds(ratio: Ratio, value: float) -> bool:
    assert ratio.low is not None
    assert ratio.high is not None
    return ratio.low <= value <= ratio.high


@pytest.mark.parametrize("is_paired", [True, False], ids=["in turns", "apart"])
@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_no_more_comparisons_find_a_difference_than_the_error_rate_allows(noise: Noise, is_paired: bool) -> None:
    """Ten places at once: ten separate intervals of 95 % would cry wolf in two of five comparisons."""
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(40):
        found = ratios(pairs(rng, noise, 1.0, 10, is_paired=is_paired), 0.05)
        wrong += not all(holds(ratio, 1.0) for ratio in found)
    assert wrong <= 6, "the chance of more than 6 of 40 is below 0.5 % where the rate is 5 %"


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_a_tenth_more_is_found_among_places_that_did_not_change(noise: Noise) -> None:
    rng = np.random.default_rng(8)
    found = [ratios(pairs(rng, noise, 1.1, 5, is_paired=True), 0.05)[0] for _ in range(20)]
    verdicts = [judged(ratio, 1e6, 0.0, TOLERANCE) for ratio in found]
    assert verdicts.count(Verdict.SLOWER) >= 17


def test_what_disturbs_both_sides_cancels_where_they_are_measured_in_turns() -> None:
    rng = np.random.default_rng(9)
    drift = np.exp(np.linspace(0.0, 0.5, ROUNDS) + rng.normal(0.0, 0.1, ROUNDS))
    was = tuple((float(1e6 * each),) for each in drift)
    now = tuple((float(1.08e6 * each * np.exp(rng.normal(0.0, 0.01))),) for each in drift)
    in_turns, apart = ratios([Pair(was, now, True)], 0.05)[0], ratios([Pair(was, now)], 0.05)[0]
    assert not holds(in_turns, 1.0)
    assert holds(apart, 1.0)


def test_more_places_make_every_interval_wider() -> None:
    rng = np.random.default_rng(10)
    many = pairs(rng, NOISES["normal"], 1.0, 30, is_paired=True)
    (alone,) = ratios(many[:1], 0.05)
    together = ratios(many, 0.05)[0]
    assert together.value == alone.value
    assert together.high is not None
    assert alone.high is not None
    assert together.high > alone.high


def test_the_same_rounds_give_the_same_intervals() -> None:
    given_pairs = pairs(np.random.default_rng(11), NOISES["normal"], 1.2, 3, is_paired=False)
    assert ratios(given_pairs, 0.05) == ratios(given_pairs, 0.05)


def test_one_value_varies_as_the_other_side_does_and_two_tell_nothing() -> None:
    rng = np.random.default_rng(12)
    one, several = ((1.5e6,),), side(rng, NOISES["normal"])
    faster, lone, slower = ratios([Pair(one, several), Pair(one, one), Pair(several, one)], 0.05)
    assert faster.value < 1.0
    assert not holds(faster, 1.0)
    assert (lone.value, lone.low, lone.high) == (1.0, None, None)
    assert slower.value > 1.0
    assert not holds(slower, 1.0)
    assert ratios([Pair(one, ((3e6,),))], 0.05)[0].low is None


def test_a_coarse_clock_makes_no_interval_endless() -> None:
    rng = np.random.default_rng(13)
    coarse = tuple((float(np.round(5.4 + rng.normal(0.0, 0.6))) * 1e3,) for _ in range(10))
    (ratio,) = ratios([Pair(((5.0,),), coarse)], 0.05)
    assert ratio.value == pytest.approx(1000.0, rel=0.2)
    assert ratio.low is not None
    assert ratio.low > 300.0


@settings(max_examples=25, deadline=None)
@given(
    factor=st.floats(0.01, 100.0),
    rounds=st.integers(5, 30),
    is_paired=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_intervals_hold_their_estimate_and_turn_with_the_sides(
    factor: float, rounds: int, is_paired: bool, seed: int
) -> None:
    (pair,) = pairs(np.random.default_rng(seed), NOISES["heavy tails"], factor, 1, is_paired=is_paired, rounds=rounds)
    (ratio,) = ratios([pair], 0.05)
    (turned,) = ratios([Pair(pair.now, pair.was, is_paired)], 0.05)
    assert holds(ratio, ratio.value)
    assert turned.value == pytest.approx(1.0 / ratio.value)


@given(rounds=st.integers(5, 30), time_ns=st.floats(1.0, 1e12), is_paired=st.booleans())
@settings(max_examples=25, deadline=None)
def test_times_that_do_not_vary_are_known_no_better_than_the_clock(
    rounds: int, time_ns: float, is_paired: bool
) -> None:
    same = ((time_ns,),) * rounds
    (ratio,) = ratios([Pair(same, same, is_paired)], 0.05)
    assert ratio.value == pytest.approx(1.0)
    assert holds(ratio, 1.0)
    assert holds(ratio, 1.001)
    assert not holds(ratio, 1.01)


def test_times_that_vary_beyond_all_sense_have_an_endless_interval_and_no_overflow() -> None:
    wild = tuple((value,) for value in (1.0, 1e300, 1e-300, 1e250))
    (ratio,) = ratios([Pair(wild, tuple(reversed(wild)))], 0.001)
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low < 1e-200
    assert 1e200 < ratio.high < float("inf")
