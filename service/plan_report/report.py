"""The facts of a plan for people (rich) and for scripts (JSON). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from service.cards import ShapeRange
from service.plan_report.facts import EngineFacts, LayerRow, PlanFacts
from service.tensors import TensorSpec

_WORDS = {True: ("yes", "green"), False: ("no", "red"), None: ("not known", "yellow")}
_TOLD_ELSEWHERE = ("format", "plan")
_MB = 1e6


def to_json(facts: PlanFacts, *, are_layers_wanted: bool) -> str:
    """The facts as one JSON object; `is_runnable` is true, false, or null where it could not be found out."""
    content = {**asdict(facts), "is_runnable": facts.is_runnable}
    engine = facts.engine
    if engine is not None:
        content["engine"]["inputs"] = [_tensor_content(tensor) for tensor in engine.inputs]
        content["engine"]["outputs"] = [_tensor_content(tensor) for tensor in engine.outputs]
        content["engine"]["layer_count"] = None if engine.layers is None else len(engine.layers)
        content["engine"]["layer_precisions"] = dict(_precisions(engine.layers or ()))
        if not are_layers_wanted:
            del content["engine"]["layers"]
    return orjson.dumps(_encodable(content), option=orjson.OPT_INDENT_2).decode()


def render(facts: PlanFacts, *, are_layers_wanted: bool) -> RenderableType:
    """Tables for a terminal: the plan, what was checked, and what the GPU told of the engine."""
    # Text, not markup: brackets of shapes and names would be taken for styles.
    plan = _table()
    for name, words in _plan_rows(facts):
        plan.add_row(Text(_printable(name), style="cyan"), Text(_printable(words)))
    checks = Table("runs here", "", "", box=None, header_style="bold", pad_edge=False)
    for check in facts.checks:
        word, style = _WORDS[check.is_passed]
        checks.add_row(Text(check.subject, style="cyan"), Text(word, style=style), Text(_printable(check.words)))
    parts: list[RenderableType] = [plan, Text(), checks]
    if facts.engine is not None:
        parts += [Text(), _engine(facts.engine)]
        if are_layers_wanted:
            parts += [Text(), _layers(facts.engine.layers)]
    elif are_layers_wanted:
        parts += [Text(), Text("layers: only an engine that was loaded lists them", style="yellow")]
    return Group(*parts)


def _table() -> Table:
    return Table(box=None, show_header=False, pad_edge=False)


def _plan_rows(facts: PlanFacts) -> Iterable[tuple[str, str]]:
    yield "plan", f"{facts.path}, {_size(facts.plan_bytes)}"
    yield "built by", f"{facts.product} {facts.version}"
    yield "SHA-256", facts.sha256
    if facts.manifest is None:
        return
    for key, value in facts.manifest.items():
        if key not in _TOLD_ELSEWHERE and value is not None:
            yield key.replace("_", " "), _words(value).strip()


def _words(value: Any) -> str:
    """Any part of a manifest in a line or, where it is a list of larger things, in a line each."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        if value.keys() == {"min", "opt", "max"} and all(isinstance(part, list) for part in value.values()):
            return f"{_extents(value['min'])} to {_extents(value['max'])}, best at {_extents(value['opt'])}"
        told = {str(name).replace("_", " "): part for name, part in value.items() if part is not None and part != ""}
        return ", ".join(f"{name} {_words(part)}" for name, part in told.items())
    if isinstance(value, str) or not isinstance(value, Sequence):
        return str(value)
    if any(isinstance(part, Mapping) for part in value):
        return "".join(f"\n{index}: {_words(part)}" for index, part in enumerate(value))
    return f"[{', '.join(map(str, value))}]"


def _engine(engine: EngineFacts) -> Table:
    table = _table()
    for role, tensors in (("input", engine.inputs), ("output", engine.outputs)):
        for tensor in tensors:
            dims = ", ".join(map(str, tensor.dims))
            table.add_row(Text(role, style="cyan"), Text(_printable(f"{tensor.name} {tensor.dtype.value} [{dims}]")))
    for name, values in engine.fixed_inputs.items():
        table.add_row(Text("fixed input", style="cyan"), Text(_printable(f"{name} = {list(values)}")))
    for index, (profile, scratch) in enumerate(zip(engine.profiles, engine.scratch_bytes, strict=True)):
        ranges = ", ".join(f"{name} {_range(shapes)}" for name, shapes in profile.items())
        words = f"{ranges}; scratch {_size(scratch)}"
        table.add_row(Text(f"profile {index}", style="cyan"), Text(_printable(words)))
    if engine.layers is not None:
        counts = ", ".join(f"{precision} {count}" for precision, count in _precisions(engine.layers).most_common())
        table.add_row(Text("layers", style="cyan"), Text(f"{len(engine.layers)}{f' ({counts})' if counts else ''}"))
    return table


def _layers(layers: Sequence[LayerRow] | None) -> RenderableType:
    if layers is None:
        return Text("layers: this TensorRT has no inspector; the full package has", style="yellow")
    table = Table("#", "layer", "type", "precision", "inputs → outputs", "tactic", header_style="bold", box=None)
    for index, layer in enumerate(layers):
        shapes = f"{' '.join(layer.inputs)} → {' '.join(layer.outputs)}" if layer.inputs or layer.outputs else ""
        cells = (str(index), layer.name, layer.kind, layer.precision, shapes, layer.tactic)
        table.add_row(*(Text(_printable(cell), overflow="fold") for cell in cells))
    if any(layer.kind for layer in layers):
        return table
    hint = "names alone: the plan was built without ProfilingVerbosity.DETAILED"
    return Group(table, Text(hint, style="yellow"))


def _encodable(value: Any) -> Any:
    """The value with `?` where UTF-8 has no bytes for a character: paths may hold such, and strange manifests."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, Mapping):
        return {_encodable(name): _encodable(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(part) for part in value]
    return value


def _printable(text: str) -> str:
    """The text without what would steer a terminal: TensorRT 8.6 writes such characters, and a stranger's plan may."""
    return "".join(character if character.isprintable() or character == "\n" else "�" for character in text)


def _precisions(layers: Iterable[LayerRow]) -> Counter[str]:
    return Counter(layer.precision for layer in layers if layer.precision)


def _range(shapes: ShapeRange) -> str:
    return f"{_extents(shapes.min)} to {_extents(shapes.max)}, best at {_extents(shapes.opt)}"


def _size(nbytes: int) -> str:
    return f"{nbytes / _MB:,.1f} MB" if nbytes >= _MB else f"{nbytes:,} bytes"


def _extents(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))


def _tensor_content(tensor: TensorSpec) -> dict[str, object]:
    return {"name": tensor.name, "dtype": tensor.dtype.value, "dims": tensor.dims}
