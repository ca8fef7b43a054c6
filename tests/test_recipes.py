"""The recipes of docs/clients.md and docs/streams.md run as they stand, and print what stands below them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doubles.demo_server import ROOT, demo_repository, demo_server
from tests.doubles.running_server import start_server
from tests.test_docs import FENCE

__all__ = ["demo_repository", "demo_server", "start_server"]

FENCES = {
    name: [(fence[1], fence[2]) for fence in FENCE.finditer((ROOT / "docs" / name).read_text(encoding="utf-8"))]
    for name in ("clients.md", "streams.md")
}
RECIPES = [
    pytest.param(language, code, fences[number + 1], id=f"{name}-{language}-{number}")
    for name, fences in FENCES.items()
    for number, (language, code) in enumerate(fences)
    if language in {"python", "js"}
]
INTERPRETERS = {"python": (sys.executable, "recipe.py"), "js": (shutil.which("node"), "recipe.mjs")}
WEBSOCKETS = {"NODE_OPTIONS": "--experimental-websocket"}
"""Later versions of node have them without being asked."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    script = ROOT / "docs" / "examples" / "make_pages.py"
    subprocess.run([sys.executable, str(script)], cwd=folder, check=True, capture_output=True, timeout=60)
    return folder


@pytest.mark.e2e
@pytest.mark.parametrize(("language", "code", "shown"), RECIPES)
def test_a_recipe_prints_what_is_shown(language, code, shown, pages, demo_server):
    interpreter, file_name = INTERPRETERS[language]
    if interpreter is None:
        pytest.skip(f"needs an interpreter of {language}: node is not installed")
    (pages / file_name).write_text(code.replace("localhost:8000", demo_server.address), encoding="utf-8")
    environment = {**os.environ, **(WEBSOCKETS if "WebSocket" in code and language == "js" else {})}
    done = subprocess.run(
        [interpreter, file_name], cwd=pages, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    if "is not allowed in NODE_OPTIONS" in done.stderr:
        pytest.skip("needs WebSockets, which this version of node does not have")
    assert done.returncode == 0, done.stderr
    assert shown == ("text", done.stdout)


def test_recipes_are_found():
    assert [recipe.values[0] for recipe in RECIPES] == [
        "python",
        "python",
        "python",
        "js",
        "js",
        "python",
        "python",
        "js",
    ]
