"""What is looked at, and what is printed and run."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from service.cli import app
from service.errors import InvalidInput
from service.timeline.run import Tool, show_and_run
from service.timeline.subject import Subject, subject_of


def layer(name: str, kind: str, time_s: float | None) -> dict[str, Any]:
    return {"name": name, "class": kind, "time_s": time_s, "tactic": f"tactic_of_{name}"}


def bucket(label: str, batches: int, batch_s: float | None, cost_s: float | None = None) -> dict[str, Any]:
    return {"bucket": label, "batches": batches, "batch_s": batch_s, "cost_s": cost_s}


def document(found: Sequence[dict[str, Any]] = (), **rest: Any) -> dict[str, Any]:
    tables = [{"bucket": "8", "layers": list(found)}] if found else []
    buckets = [bucket("1", 10, 1e-3), bucket("8", 5, 3e-3), bucket("4", 12, None, 1e-4)]
    return {"model": {"name": "m"}, "layers": tables, "buckets": buckets, **rest}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (document(), Subject("m", "8")),
        (document([layer("a", "compute", 2.0), layer("b", "memory", 1.0)]), Subject("m", "8", "a", "tactic_of_a")),
        (
            document([layer("a", "compute", 9.0), layer("b", "inefficient", 1.0), layer("c", "inefficient", 2.0)]),
            Subject("m", "8", "c", "tactic_of_c"),
        ),
        (document([layer("a", "unknown", None)]), Subject("m", "8", "a", "tactic_of_a")),
        (document(layers=[{"bucket": "4", "layers": []}]), Subject("m", "8")),
    ],
)
def test_what_is_looked_at(found: dict[str, Any], expected: Subject) -> None:
    assert subject_of(found) == expected


@pytest.mark.parametrize("found", [document(buckets=[]), {"outcomes": []}])
def test_nothing_to_look_at(found: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="no bucket to look at"):
        subject_of(found)


def shown(tool: Tool, commands: list[Sequence[str]], status: int = 0) -> tuple[str, int]:
    console = Console(file=io.StringIO(), width=40, record=True)

    def run(command: Sequence[str]) -> int:
        commands.append(command)
        return status

    found = document([layer("/a[0]", "inefficient", 1.0)])
    got = show_and_run(tool, found, Path("my models"), console, run=run)
    return console.export_text(), got


@pytest.mark.parametrize("tool", ["nsys", "ncu"])
def test_without_the_tool_the_command_is_printed(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    commands: list[Sequence[str]] = []
    text, status = shown(tool, commands)
    assert f"{tool} is not installed here" in text
    assert "inferlane bench m --bucket 8 --repository 'my models'" in text
    assert ("layer /a[0] of bucket 8" in text) is (tool == "ncu")
    assert (commands, status) == ([], 0)


def test_with_the_tool_it_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ncu").write_text("#!/bin/sh\n")
    (tmp_path / "ncu").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    commands: list[Sequence[str]] = []
    text, status = shown("ncu", commands, status=7)
    assert "not installed" not in text
    assert status == 7
    assert [command[0] for command in commands] == ["ncu"]


def test_from_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("service.diagnosis_text.client.fetch", lambda url, query, api_key: document())
    result = CliRunner().invoke(app, ["diagnose", "--nsys", "--repository", "elsewhere"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "nsys profile" in result.output
    assert "elsewhere" in result.output
