"""Plays a recipe: serves it, loads it, and asks the server what limits it. Knows nothing of pytest.

An attempt whose machine was disturbed does not count, whatever was found: see `disturbance.py`.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import jsonschema

from service.diagnosis.schema import document_schema
from tests.diagnosis.scenarios.disturbance import Disturbance, between, core_count, look
from tests.diagnosis.scenarios.loads import Load
from tests.diagnosis.scenarios.recipes import MODEL, Document, Recipe
from tests.doubles.running_server import RunningServer, add_model, end_server, launch_server, wait_for, wait_ready

ATTEMPTS = 3
"""Attempts that count: neighbours come and go within seconds, and are a fault of their own then."""

DISTURBED = 2
"""Attempts that do not count, at most: a machine that is never left alone ends the test without a verdict."""

PROBES_TIMEOUT_S = 60.0
PROBE_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One server under one load, and what it said of itself.

    Attributes:
        expected: the class that was injected; `healthy` where nothing was.
        confirmed: the classes that were confirmed, ranked.
        is_healthy: whether the server called itself so.
        disturbance: what others took of the machine meanwhile.
        document: the whole diagnosis.
    """

    expected: str
    confirmed: tuple[str, ...]
    is_healthy: bool
    disturbance: Disturbance
    document: Document

    @property
    def found(self) -> str:
        """The class that came first; `healthy` or `undecided` where none was confirmed."""
        return self.confirmed[0] if self.confirmed else "healthy" if self.is_healthy else "undecided"

    @property
    def is_right(self) -> bool:
        """Whether the injected class came first."""
        return self.found == self.expected

    def __str__(self) -> str:
        counted = "did not count" if self.disturbance.is_much else "counted"
        return f"found {self.found} of {list(self.confirmed)}; {self.disturbance}: {counted}"


@contextmanager
def serving(recipe: Recipe, repository: Path) -> Iterator[RunningServer]:
    """A server of the recipe alone, ready; ended at the end."""
    write_model(recipe, repository)
    with tempfile.TemporaryDirectory() as folder:
        server = launch_server(repository, Path(folder) / "log", **{"cpu_threads": 1, **recipe.settings})
        try:
            wait_ready(server)
            yield server
        finally:
            end_server(server)


def write_model(recipe: Recipe, repository: Path) -> None:
    """Lays the recipe's model out under `repository`."""
    add_model(repository, MODEL, recipe.make, recipe.card)


def attempt(recipe: Recipe, repository: Path) -> Attempt:
    """Serves, loads, experiments where the recipe says so, and diagnoses: once."""
    with serving(recipe, repository) as server:
        return observe(server, recipe)


def observe(server: RunningServer, recipe: Recipe, model: str = MODEL) -> Attempt:
    """Loads a server that runs the recipe's model, and asks it what limits it."""
    if recipe.probes:
        recipe.load.lasting(recipe.warm_s).run(server.url, model)
        run_probes(server, recipe.probes, model)
    before = look([server.process.pid])
    recipe.load.run(server.url, model)
    after = look([server.process.pid])
    document = diagnosis(server, recipe.load, model)
    return Attempt(
        expected=recipe.expected_text,
        confirmed=tuple(one["class"] for one in document["findings"] if one["verdict"] == "confirmed"),
        is_healthy=document["healthy"],
        disturbance=between(before, after, core_count()),
        document=document,
    )


def attempts(play: Callable[[], Attempt]) -> list[Attempt]:
    """Plays until the injected class comes first, at most `ATTEMPTS` times undisturbed and `DISTURBED` times not so."""
    made: list[Attempt] = []
    while sum(one.disturbance.is_much for one in made) < DISTURBED and len(counted(made)) < ATTEMPTS:
        made.append(play())
        if made[-1].is_right:
            break
    return made


def counted(made: Sequence[Attempt]) -> list[Attempt]:
    """The attempts that tell something: those that were right, and those on a machine that was left alone."""
    return [one for one in made if one.is_right or not one.disturbance.is_much]


def diagnosis(server: RunningServer, load: Load, model: str = MODEL) -> Document:
    """The diagnosis of the load that has just ended, held against its schema."""
    with server.client() as client:
        answer = client.get("/diagnose", params={"model": model, "window": load.seconds})
    assert answer.status_code == 200, answer.text
    document: Document = json.loads(answer.content)
    jsonschema.validate(document, document_schema())
    return document


def run_probes(server: RunningServer, names: Sequence[str], model: str = MODEL) -> Document:
    """Runs probes without traffic and waits for their end; says what became of each."""
    with server.client() as client:
        order = {"model": model, "probes": list(names), "mode": "exclusive"}
        answer = client.post("/diagnose/probes", json=order)
        assert answer.status_code == 202, answer.text
        place = answer.headers["Location"]
        told: list[Document] = []

        def is_over() -> bool:
            told.append(client.get(place).json())
            time.sleep(PROBE_PAUSE_S)
            return told[-1]["state"] not in ("waiting", "running")

        wait_for(is_over, PROBES_TIMEOUT_S)
    return told[-1]
