"""docs/diagnosis.md against the rules: every class has its section, and every number there is the code's."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

from service.diagnosis import misconceptions
from service.diagnosis.finding import BottleneckClass

HANDBOOK = (Path(__file__).parents[3] / "docs" / "diagnosis.md").read_text(encoding="utf-8")
CLASSES = list(BottleneckClass)

SECTION = re.compile(r"^## `([a-z-]+)`\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
SECTIONS = {heading: text for heading, text in SECTION.findall(HANDBOOK)}
THRESHOLD = re.compile(r"^\| `([\w.]+)` \| ([\d.]+) \| .+ \|$", re.MULTILINE)
CONSTANT = re.compile(r"^([A-Z][A-Z_]*)(?:: \w+)? = ", re.MULTILINE)
PARTS = (
    "**What it is.**",
    "**How Inferlane sees it.**",
    "**Confirm by hand.**",
    "**Mend it.**",
    "**What people get wrong.**",
)


def rule(kind: BottleneckClass) -> ModuleType:
    return importlib.import_module(f"service.diagnosis.rules.{kind.value.replace('-', '_')}")


def own_thresholds(module: ModuleType) -> set[str]:
    """The numbers that a rule's module defines by itself."""
    names = CONSTANT.findall(Path(str(module.__file__)).read_text(encoding="utf-8"))
    return {name for name in names if isinstance(getattr(module, name), int | float)}


def in_code(module: ModuleType, name: str) -> object:
    """The constant that the handbook means: of the rule's module, or of another one that it names."""
    other, _, constant = name.rpartition(".")
    return getattr(importlib.import_module(f"service.diagnosis.{other}") if other else module, constant)


def test_every_class_has_its_section_in_the_order_of_the_taxonomy() -> None:
    assert list(SECTIONS) == [kind.value for kind in CLASSES]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.value)
def test_a_section_has_all_its_parts(kind: BottleneckClass) -> None:
    places = [SECTIONS[kind.value].find(part) for part in PARTS]
    assert -1 not in places
    assert places == sorted(places)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.value)
def test_thresholds_are_those_of_the_code_and_none_is_missing(kind: BottleneckClass) -> None:
    module = rule(kind)
    told = dict(THRESHOLD.findall(SECTIONS[kind.value]))
    assert {name: float(value) for name, value in told.items()} == {name: in_code(module, name) for name in told}
    assert own_thresholds(module) <= set(told)
    assert told


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.value)
def test_a_misconception_that_a_finding_contradicts_is_quoted(kind: BottleneckClass) -> None:
    beliefs = {name: text for name, text in vars(misconceptions).items() if name.isupper()}
    contradicted = [text for name, text in beliefs.items() if getattr(rule(kind), name, None) == text]
    missing = [text for text in contradicted if f"> {text}\n" not in SECTIONS[kind.value]]
    assert missing == []


def test_every_misconception_is_in_the_handbook() -> None:
    assert [text for name, text in vars(misconceptions).items() if name.isupper() and text not in HANDBOOK] == []
