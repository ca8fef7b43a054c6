"""The runner chooses, counts and writes down honestly; the servers themselves are played in `scenarios`."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace

import pytest
import typer

from tests.diagnosis.confusion import choose, in_turns, told, trial_of, with_fix
from tests.diagnosis.gains import GainTrial, to_markdown
from tests.diagnosis.scenarios.disturbance import Disturbance
from tests.diagnosis.scenarios.play import ATTEMPTS, DISTURBED, Attempt, attempts, counted
from tests.diagnosis.scenarios.recipes import RECIPES

QUIET, CROWDED = Disturbance(0.0, 0.0), Disturbance(0.5, 0.0)
FINDING = {"class": "overload", "verdict": "confirmed", "summary": "s", "gain": None, "evidence": [], "fix": None}


def an_attempt(*confirmed: str, healthy: bool = False, disturbance: Disturbance = QUIET) -> Attempt:
    document = {"findings": [FINDING], "window": {}, "stations": {}}
    return Attempt(
        expected="overload", confirmed=confirmed, is_healthy=healthy, disturbance=disturbance, document=document
    )


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (an_attempt("overload", "batch-too-small"), "overload"),
        (an_attempt(healthy=True), "healthy"),
        (an_attempt(), "undecided"),
    ],
)
def test_what_an_attempt_found(made: Attempt, found: str) -> None:
    trial = trial_of(made)
    assert (trial.found, trial.others) == (found, made.confirmed[1:])
    assert told(made)["found"] == found


@pytest.mark.parametrize(
    ("answers", "made", "tells"),
    [
        ([an_attempt("overload")], 1, 1),
        ([an_attempt(), an_attempt("overload")], 2, 2),
        ([an_attempt()] * 9, ATTEMPTS, ATTEMPTS),
        ([an_attempt(disturbance=CROWDED)] * 9, DISTURBED, 0),
        ([an_attempt(disturbance=CROWDED), an_attempt("overload", disturbance=CROWDED)], 2, 1),
        ([an_attempt(disturbance=CROWDED), *[an_attempt()] * 9], ATTEMPTS + 1, ATTEMPTS),
    ],
)
def test_attempts_end_and_disturbed_ones_do_not_count(answers: list[Attempt], made: int, tells: int) -> None:
    left = iter(answers)
    tried = attempts(lambda: next(left))
    assert (len(tried), len(counted(tried))) == (made, tells)


def test_recipes_are_played_in_turns_while_there_is_time() -> None:
    recipes = {name: RECIPES[name] for name in ("healthy", "overload")}
    assert [name for name, _ in in_turns(recipes, 2, lambda: True)] == ["healthy", "overload"] * 2
    moments = count()
    assert [name for name, _ in in_turns(recipes, 2, lambda: next(moments) < 3)] == ["healthy", "overload", "healthy"]


def test_recipes_are_chosen_by_name() -> None:
    assert list(choose(RECIPES, ["overload"])) == ["overload"]
    assert choose(RECIPES, []) == RECIPES
    with pytest.raises(typer.BadParameter, match="'no-such'; there are healthy, overload"):
        choose(RECIPES, ["no-such"])


def test_at_least_twelve_faults_are_injected_and_most_can_be_mended() -> None:
    assert len([recipe for recipe in RECIPES.values() if recipe.expected]) >= 12
    assert all(name == recipe.expected_text for name, recipe in RECIPES.items())
    assert len(with_fix(RECIPES)) >= 4
    assert "invalid-measurement" not in with_fix(RECIPES)


@pytest.mark.parametrize(("held", "word"), [(True, "yes"), (False, "**no**"), (None, "-")])
def test_a_gain_is_told_with_its_interval_and_whether_it_held(held: bool | None, word: str) -> None:
    trial = GainTrial(
        injected="lane-count",
        found="lane-count",
        change="[lanes] count = 2",
        metric="throughput",
        predicted=0.5,
        low=0.25,
        high=0.75,
        label="measured",
        achieved=None if held is None else 0.4,
        has_held=held,
        rates=(10.0, 14.0),
        means_s=(0.2, 0.1),
        others=(0.0, 0.02),
    )
    row = to_markdown([trial]).splitlines()[-1]
    assert "throughput 50% (25% to 75%, measured)" in row
    assert f"| {word} | 10 → 14 | 200 ms → 100 ms | 0 % → 2 % |" in row


def test_a_fix_that_was_not_tried_is_told_too() -> None:
    assert "nothing: healthy came first" in to_markdown([GainTrial(injected="overload", found="healthy")])


def test_as_many_clients_as_the_finding_asks_for() -> None:
    cure = RECIPES["client-limited"].cure
    assert cure is not None
    fix = SimpleNamespace(command="python -m loadtest.bench m --concurrency 7")
    assert cure({"findings": [{"fix": vars(fix)}]}).options == ("--concurrency", "7")
