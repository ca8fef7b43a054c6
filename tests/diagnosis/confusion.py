"""`python -m tests.diagnosis.confusion --json FILE`: what was injected into running servers, and what they said of it.

Plays every recipe `--rounds` times, in turns so that what drifts reaches all of them, and prints the confusion matrix
in markdown. Every attempt is told; none is repeated until it is right. `--gains` applies the fix that each finding
names instead, and holds what was achieved against what was predicted. With `--gpu` the recipes are those that need an
NVIDIA GPU; `--repository` then names the folder of the models with their plans.
"""

from __future__ import annotations

import json
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tests.diagnosis.gains import GainTrial, measure
from tests.diagnosis.gains import to_markdown as gains_to_markdown
from tests.diagnosis.matrix import Trial, to_markdown
from tests.diagnosis.scenarios.play import Attempt, attempt
from tests.diagnosis.scenarios.recipes import RECIPES, Recipe

BUDGET_S = 3600.0


def main(
    *,
    json_file: Annotated[Path, typer.Option("--json", help="File to write every attempt to.")],
    rounds: Annotated[int, typer.Option(min=1, help="Attempts of each recipe.")] = 1,
    only: Annotated[str, typer.Option(help="Recipes by name, with commas between; by default all.")] = "",
    gains: Annotated[bool, typer.Option("--gains", help="Apply the fixes, and review them.")] = False,
    budget: Annotated[float, typer.Option(min=1, help="Seconds after which no further attempt begins.")] = BUDGET_S,
) -> None:
    """Plays recipes and writes down what came of them."""
    chosen = choose(RECIPES, [name for name in only.split(",") if name])
    end_s = time.monotonic() + budget
    record: dict[str, object] = {"about": about(), "attempts": [], "gains": []}

    def keep(kind: str, entries: Sequence[object]) -> None:
        # After every attempt, so that an end by force loses one attempt at most.
        record[kind] = entries
        json_file.write_text(json.dumps(record, indent=1))

    if gains:
        tried: list[GainTrial] = []
        for name, recipe in in_turns(with_fix(chosen), rounds, lambda: time.monotonic() < end_s):
            tried.append(measure(recipe))
            keep("gains", [asdict(one) for one in tried])
            typer.echo(f"{name}: {tried[-1].detail or tried[-1].found}")
        typer.echo(gains_to_markdown(tried))
        return
    made: list[Attempt] = []
    for name, recipe in in_turns(chosen, rounds, lambda: time.monotonic() < end_s):
        with tempfile.TemporaryDirectory() as folder:
            made.append(attempt(recipe, Path(folder)))
        keep("attempts", [told(one) for one in made])
        typer.echo(f"{name}: {made[-1]}")
    typer.echo(to_markdown([trial_of(one) for one in made]))


def choose(recipes: Mapping[str, Recipe], names: Sequence[str]) -> Mapping[str, Recipe]:
    """The recipes of these names; all without any.

    Raises:
        typer.BadParameter: there is none of that name.
    """
    unknown = sorted(set(names) - recipes.keys())
    if unknown:
        raise typer.BadParameter(f"no recipe is called {unknown[0]!r}; there are {', '.join(recipes)}")
    return {name: recipe for name, recipe in recipes.items() if not names or name in names}


def with_fix(recipes: Mapping[str, Recipe]) -> Mapping[str, Recipe]:
    """Those whose fix can be tried: the clients' to make, or some lines of the card."""
    return {name: recipe for name, recipe in recipes.items() if recipe.cure or recipe.is_mended_by_card}


def in_turns(recipes: Mapping[str, Recipe], rounds: int, has_time: Callable[[], bool]) -> Iterator[tuple[str, Recipe]]:
    """Every recipe once, then every one again, as long as there is time."""
    for _ in range(rounds):
        for name, recipe in recipes.items():
            if not has_time():
                return
            yield name, recipe


def trial_of(one: Attempt) -> Trial:
    """What counts of an attempt."""
    return Trial(one.expected, one.found, one.confirmed[1:], one.disturbance.is_much)


def told(one: Attempt) -> dict[str, object]:
    """An attempt as it is written down: the verdicts with their words, and who disturbed it."""
    findings = [
        {key: finding[key] for key in ("class", "verdict", "summary", "gain", "evidence")}
        for finding in one.document["findings"]
    ]
    return {
        "injected": one.expected,
        "found": one.found,
        "disturbance": asdict(one.disturbance),
        "counted": trial_of(one).is_counted,
        "window": one.document["window"],
        "stations": one.document["stations"],
        "findings": findings,
    }


def about() -> dict[str, object]:
    """When and on what."""
    return {
        "begun_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


if __name__ == "__main__":
    typer.run(main)
