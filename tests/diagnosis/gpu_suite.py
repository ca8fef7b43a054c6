"""Plays the recipes of a GPU: lays their models out, builds all plans side by side, and serves all by one server.

What equal models need is built once. A model whose plan was not done in time, and a recipe that fails, are told and
left out: the others are played all the same.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.diagnosis.card_change import tomllib
from tests.diagnosis.scenarios.play import Attempt, observe
from tests.diagnosis.scenarios.recipes import Recipe
from tests.doubles.running_server import RunningServer, add_model, end_server, launch_server, wait_ready

BUILD_S = 200.0
"""Seconds that builds may take: each begins at once, on a core of its own where there are enough."""

READY_S = 120.0
PLAN = "model.plan"
SERVER, EMULATED = "service.cli", "tests.doubles.emulated_server"
NOT_BUILT = frozenset({"lanes"})
"""Tables of a card that a plan does not depend on."""


@dataclass(frozen=True, slots=True)
class Played:
    """A recipe's attempt, or why there is none."""

    name: str
    attempt: Attempt | None
    problem: str = ""


def plan_key(recipe: Recipe) -> str:
    """The same for recipes whose plans are."""
    make = recipe.make if isinstance(recipe.make, partial) else partial(recipe.make)
    card = {key: value for key, value in tomllib.loads(recipe.card).items() if key not in NOT_BUILT}
    card.get("batching", {}).pop("max_queue_delay_ms", None)
    return json.dumps([make.func.__name__, make.keywords, card], sort_keys=True)


def lay_out(recipes: Mapping[str, Recipe], repository: Path) -> dict[str, str]:
    """Writes every model; says for each recipe whose plan it takes, of the first that is like it."""
    first: dict[str, str] = {}
    for name, recipe in recipes.items():
        add_model(repository, name, recipe.make, recipe.card)
        first.setdefault(plan_key(recipe), name)
    return {name: first[plan_key(recipe)] for name, recipe in recipes.items()}


def build(
    homes: Mapping[str, str],
    repository: Path,
    *,
    limit_s: float = BUILD_S,
    inferlane: Sequence[str] = (sys.executable, "-m", SERVER),
) -> dict[str, str]:
    """Builds what is not there yet, all at once; then each model has its plan, and no ONNX file to be held against.

    Args:
        homes: per model, the one whose plan it takes.
        repository: of the models; logs are written beside it.
        limit_s: when builds that still run are ended.
        inferlane: the command that builds.

    Returns:
        Per model that has no plan, why; its folder is gone.
    """
    command = [*inferlane, "build", "--repository", str(repository)]
    end_s = time.monotonic() + limit_s
    logs = {name: (repository.parent / f"{name}.log").open("wb") for name in set(homes.values())}
    jobs = {
        name: subprocess.Popen([*command, "--optimization-level", "1", name], stdout=log, stderr=log)
        for name, log in logs.items()
    }
    for name, job in jobs.items():
        try:
            job.wait(max(0.1, end_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()
        logs[name].close()
    problems = {}
    for name, home in homes.items():
        problem = _take_plan(repository / home / "1", repository / name / "1")
        if problem:
            problems[name] = f"{problem}: {Path(logs[home].name).read_text(errors='replace')[-600:]}"
    for name in homes:
        (repository / name / "1" / "model.onnx").unlink(missing_ok=True)
        if name in problems:
            shutil.rmtree(repository / name)
    return problems


def _take_plan(home: Path, own: Path) -> str:
    if not (home / PLAN).exists():
        return "no plan was built"
    if home != own:
        for path in home.glob(f"{PLAN}*"):
            shutil.copy(path, own / path.name)
    return ""


@contextmanager
def serving(repository: Path, *, module: str = SERVER) -> Iterator[RunningServer]:
    """One server of all models, ready; ended at the end."""
    with tempfile.TemporaryDirectory() as folder:
        server = launch_server(repository, Path(folder) / "log", module=module, cpu_threads=2)
        try:
            wait_ready(server, READY_S)
            yield server
        finally:
            end_server(server)


def play(
    recipes: Mapping[str, Recipe], problems: Mapping[str, str], server: RunningServer, has_time: Callable[[], bool]
) -> Iterator[Played]:
    """Every recipe in its turn, each on its own model, as long as there is time."""
    for name, recipe in recipes.items():
        if name in problems:
            yield Played(name, None, problems[name])
        elif not has_time():
            yield Played(name, None, "not played: no time was left")
        else:
            try:
                yield Played(name, observe(server, recipe, name))
            except AssertionError as error:
                yield Played(name, None, str(error)[-600:])
