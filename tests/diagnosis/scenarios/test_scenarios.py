"""A fault injected into a real server under real load comes first in its diagnosis."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from service.diagnosis.schema import document_schema
from service.diagnosis_text.report import to_text
from tests.diagnosis.scenarios.recipes import MODEL, RECIPES, Recipe
from tests.doubles.running_server import RunningServer, StartServer, add_model, start_server

__all__ = ["start_server"]

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def serve(recipe: Recipe, repository: Path, start_server: StartServer) -> RunningServer:
    add_model(repository, MODEL, recipe.make, recipe.card)
    return start_server(repository, **{"cpu_threads": 1, **recipe.settings})


def diagnosis(server: RunningServer, window_s: float) -> dict[str, Any]:
    with server.client() as client:
        answer = client.get("/diagnose", params={"model": MODEL, "window": window_s})
    assert answer.status_code == 200, answer.text
    document = json.loads(answer.content)
    jsonschema.validate(document, document_schema())
    return document


@pytest.mark.parametrize("name", RECIPES)
def test_the_injected_fault_comes_first(name: str, start_server: StartServer, tmp_path: Path) -> None:
    recipe = RECIPES[name]
    server = serve(recipe, tmp_path, start_server)
    recipe.load.run(server.url)
    document = diagnosis(server, recipe.load.seconds)
    server.stop()
    confirmed = [finding["class"] for finding in document["findings"] if finding["verdict"] == "confirmed"]
    expected = [] if recipe.expected is None else [recipe.expected.value]
    assert confirmed[:1] == expected, to_text(document)
