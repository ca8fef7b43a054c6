"""The recipes of a GPU can be laid out, built and played; what they find needs the GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from service.repository.card import load_card
from tests.diagnosis.confusion import main
from tests.diagnosis.gpu_suite import build, lay_out, plan_key, play
from tests.diagnosis.scenarios.gpu_recipes import TINY, Sizes, gpu_recipes

BUILDER = """
import pathlib, sys, time
repository, name = pathlib.Path(sys.argv[sys.argv.index("--repository") + 1]), sys.argv[-1]
if name == "hangs":
    time.sleep(600)
if name == "fails":
    sys.exit("no kernel fits")
(repository / name / "1" / "model.plan").write_text(name)
(repository / name / "1" / "model.plan.json").write_text("{}")
"""


def test_at_least_twenty_faults_have_a_recipe_each_named_after_its_class() -> None:
    recipes = gpu_recipes(Sizes())
    assert len([recipe for recipe in recipes.values() if recipe.expected]) >= 20
    assert all(name == recipe.expected_text for name, recipe in recipes.items())


def test_every_card_is_one(tmp_path: Path) -> None:
    homes = lay_out(gpu_recipes(TINY), tmp_path)
    for name in homes:
        assert load_card(tmp_path / name).name == name
        assert (tmp_path / name / "1" / "model.onnx").stat().st_size > 0


@pytest.mark.parametrize(
    ("one", "other", "is_shared"),
    [
        ("launch-bound", "graph-miss", True),
        ("healthy", "batch-formation-delay", True),
        ("launch-bound", "batch-too-small", False),
        ("healthy", "compute-bound", False),
    ],
)
def test_lanes_and_delays_need_no_plan_of_their_own(one: str, other: str, is_shared: bool) -> None:
    recipes = gpu_recipes(Sizes())
    assert (plan_key(recipes[one]) == plan_key(recipes[other])) is is_shared


@pytest.fixture
def builder(tmp_path: Path) -> tuple[str, str]:
    """What builds plans of models by their names."""
    script = tmp_path / "builder.py"
    script.write_text(BUILDER)
    return sys.executable, str(script)


def repository_of(homes: dict[str, str], repository: Path) -> Path:
    for name in homes:
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "1" / "model.onnx").touch()
    return repository


def test_plans_are_shared_and_what_has_none_is_left_out_and_told(tmp_path: Path, builder: tuple[str, str]) -> None:
    homes = {"first": "first", "alike": "first", "fails": "fails"}
    repository = repository_of(homes, tmp_path / "repository")
    problems = build(homes, repository, inferlane=builder)
    assert problems.keys() == {"fails"}
    assert "no kernel fits" in problems["fails"]
    assert sorted(path.name for path in repository.iterdir()) == ["alike", "first"]
    assert (repository / "alike" / "1" / "model.plan").read_text() == "first"
    assert not list(repository.glob("*/1/model.onnx"))


def test_a_build_that_does_not_end_is_ended(tmp_path: Path, builder: tuple[str, str]) -> None:
    homes = {"hangs": "hangs"}
    repository = repository_of(homes, tmp_path / "repository")
    assert build(homes, repository, limit_s=0.1, inferlane=builder).keys() == {"hangs"}
    assert list(repository.iterdir()) == []


def test_what_cannot_be_played_is_told() -> None:
    recipes = {name: gpu_recipes(TINY)[name] for name in ("healthy", "overload")}
    server = cast(Any, SimpleNamespace())
    told = list(play(recipes, {"healthy": "no plan was built: why"}, server, lambda: False))
    assert [(one.name, one.attempt, one.problem) for one in told] == [
        ("healthy", None, "no plan was built: why"),
        ("overload", None, "not played: no time was left"),
    ]


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_rehearsal_plays_on_the_emulated_device(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    main(json_file=record, only="client-limited", gpu=True, repository=tmp_path / "repository", rehearsal=True)
    told = json.loads(record.read_text())
    assert told["left_out"] == []
    (attempt,) = told["attempts"]
    assert (attempt["injected"], attempt["window"]["requests"] > 0) == ("client-limited", True)
    (launches,) = [one for one in attempt["findings"] if one["class"] == "launch-bound"]
    assert "CPU" not in launches["summary"]
