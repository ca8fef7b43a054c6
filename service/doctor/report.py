"""The doctor's facts and verdicts for people (rich) and for scripts (JSON). Pure."""

from __future__ import annotations

from collections.abc import Iterable

import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from service.doctor.facts import Facts, Package
from service.doctor.verdicts import Verdict, can_serve

_GIB = 1 << 30


def to_json(facts: Facts, found: tuple[Verdict, ...]) -> str:
    """Facts and verdicts as one JSON object; `ok` says whether the server on the CPU can run."""
    report = {"ok": can_serve(found), "facts": facts, "verdicts": found}
    return orjson.dumps(report, option=orjson.OPT_INDENT_2).decode()


def render(facts: Facts, found: Iterable[Verdict]) -> RenderableType:
    """Two tables for a terminal: what is here, and what that is enough for."""
    # Text, not markup: the brackets of `inferlane[cpu]` would be taken for a style.
    here = Table("here", "", box=None, header_style="bold", pad_edge=False)
    for name, words in _fact_rows(facts):
        here.add_row(Text(name, style="cyan"), Text(words))
    enough = Table("enough to", "", "", box=None, header_style="bold", pad_edge=False)
    for verdict in found:
        style, word = ("green", "yes") if verdict.is_possible else ("red", "no")
        if verdict.is_possible and verdict.warnings:
            style = "yellow"
        enough.add_row(Text(verdict.purpose, style="cyan"), Text(word, style=style), _reasons(verdict))
    return Group(here, Text(), enough)


def _reasons(verdict: Verdict) -> Text:
    text = Text()
    if verdict.missing:
        text.append(f"missing: {'; '.join(verdict.missing)}")
    for line in (*verdict.warnings, *verdict.fixes):
        text.append("\n" if text else "")
        text.append(line, style="bold" if line in verdict.fixes else "yellow")
    return text


def _fact_rows(facts: Facts) -> Iterable[tuple[str, str]]:
    yield "Python", f"{'.'.join(map(str, facts.python))}  {facts.executable}"
    yield "system", facts.system
    yield "CPU", f"{facts.cpu_model}: {facts.usable_cores:g} of {facts.machine_cores} logical cores usable"
    yield "memory", f"{facts.memory_bytes / _GIB:.1f} GiB"
    yield "ONNX Runtime", _package(facts.onnxruntime)
    yield "OpenCV", _package(facts.opencv)
    nvidia = facts.nvidia
    yield "NVIDIA driver", nvidia.driver or f"none ({nvidia.note or 'not found'})"
    for index, gpu in enumerate(nvidia.gpus):
        yield f"GPU {index}", f"{gpu.name}, {gpu.memory_bytes / _GIB:.0f} GiB, SM {gpu.compute_capability}"
    if nvidia.driver and nvidia.note:
        yield "GPUs", nvidia.note
    for package in (*facts.tensorrt, *facts.others):
        yield package.name, _package(package)


def _package(package: Package) -> str:
    words = package.version or "not installed"
    if package.details:
        words += f" ({', '.join(package.details)})"
    return f"{words}: does not import: {package.error}" if package.error else words
