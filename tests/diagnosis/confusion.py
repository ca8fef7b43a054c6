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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from tests.diagnosis.gains import GainTrial, measure
from tests.diagnosis.gains import to_markdown as gains_to_markdown
from tests.diagnosis.gpu_suite import EMULATED, SERVER, build, lay_out, play
from tests.diagnosis.gpu_suite import serving as serving_all
from tests.diagnosis.matrix import Trial, to_markdown
from tests.diagnosis.scenarios.gpu_recipes import NOT_REHEARSED, TINY, Sizes, gpu_recipes
from tests.diagnosis.scenarios.play import Attempt, attempt
from tests.diagnosis.scenarios.recipes import RECIPES, Recipe

BUDGET_S = 3600.0
GPU_BUDGET_S = 520.0
"""Of the nine minutes that a visit to a GPU may take, builds included; what is begun then is finished."""

REHEARSAL_S = 1.5


def main(
    *,
    json_file: Annotated[Path, typer.Option("--json", help="File to write every attempt to.")],
    rounds: Annotated[int, typer.Option(min=1, help="Attempts of each recipe, but for --gpu.")] = 1,
    only: Annotated[str, typer.Option(help="Recipes by name, with commas between; by default all.")] = "",
    gains: Annotated[bool, typer.Option("--gains", help="Apply the fixes, and review them.")] = False,
    gpu: Annotated[bool, typer.Option("--gpu", help="The recipes that need an NVIDIA GPU.")] = False,
    repository: Annotated[Path | None, typer.Option(help="With --gpu: folder to make models and plans in.")] = None,
    rehearsal: Annotated[bool, typer.Option("--rehearsal", help="With --gpu: on no GPU, for plumbing alone.")] = False,
    budget: Annotated[float | None, typer.Option(min=1, help="Seconds after which no further attempt begins.")] = None,
) -> None:
    """Plays recipes and writes down what came of them."""
    end_s = time.monotonic() + (budget or (GPU_BUDGET_S if gpu else BUDGET_S))
    book = Book(json_file)
    names = [name for name in only.split(",") if name]

    def has_time() -> bool:
        return time.monotonic() < end_s

    if gpu:
        if repository is None:
            raise typer.BadParameter("--gpu needs --repository, a folder that models and plans are made in")
        recipes = choose(gpu_recipes(TINY if rehearsal else Sizes()), names)
        on_gpu(rehearsed(recipes) if rehearsal else recipes, repository, book, has_time, is_rehearsal=rehearsal)
    elif gains:
        with_gains(in_turns(with_fix(choose(RECIPES, names)), rounds, has_time), book)
    else:
        on_cpu(in_turns(choose(RECIPES, names), rounds, has_time), book)


class Book:
    """What is written down: after every attempt, so that an end by force loses one at most.

    Args:
        path: of the JSON file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._record: dict[str, object] = {"about": about()}

    def keep(self, kind: str, entries: Sequence[object]) -> None:
        """Writes these entries in place of the former ones of the kind."""
        self._record[kind] = list(entries)
        self._path.write_text(json.dumps(self._record, indent=1))


def on_cpu(turns: Iterable[tuple[str, Recipe]], book: Book) -> None:
    """Plays each recipe on a server of its own."""
    made: list[Attempt] = []
    for name, recipe in turns:
        with tempfile.TemporaryDirectory() as folder:
            made.append(attempt(recipe, Path(folder)))
        book.keep("attempts", [told(one) for one in made])
        typer.echo(f"{name}: {made[-1]}")
    typer.echo(to_markdown([trial_of(one) for one in made]))


def with_gains(turns: Iterable[tuple[str, Recipe]], book: Book) -> None:
    """Plays each recipe, applies its fix, and plays it again."""
    tried: list[GainTrial] = []
    for name, recipe in turns:
        tried.append(measure(recipe))
        book.keep("gains", [asdict(one) for one in tried])
        typer.echo(f"{name}: {tried[-1].detail or tried[-1].found}")
    typer.echo(gains_to_markdown(tried))


def on_gpu(
    recipes: Mapping[str, Recipe], repository: Path, book: Book, has_time: Callable[[], bool], *, is_rehearsal: bool
) -> None:
    """Builds all models, serves them by one server, and plays each recipe once."""
    homes = lay_out(recipes, repository)
    problems = {} if is_rehearsal else build(homes, repository)
    made: list[Attempt] = []
    left_out: list[dict[str, str]] = []
    with serving_all(repository, module=EMULATED if is_rehearsal else SERVER) as server:
        for played in play(recipes, problems, server, has_time):
            if played.attempt is None:
                left_out.append({"recipe": played.name, "problem": played.problem})
            else:
                made.append(played.attempt)
            book.keep("attempts", [told(one) for one in made])
            book.keep("left_out", left_out)
            typer.echo(f"{played.name}: {played.attempt or played.problem}")
    typer.echo(to_markdown([trial_of(one) for one in made]))


def rehearsed(recipes: Mapping[str, Recipe]) -> Mapping[str, Recipe]:
    """The same recipes, too short to find anything."""
    return {
        name: replace(recipe, load=recipe.load.lasting(REHEARSAL_S), warm_s=REHEARSAL_S)
        for name, recipe in recipes.items()
        if name not in NOT_REHEARSED
    }


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
        "left_alone": not one.disturbance.is_much,
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
