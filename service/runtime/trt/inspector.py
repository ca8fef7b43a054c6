"""The layers of an engine as TensorRT's inspector lists them, in the forms of 8.6 and 10 and of 11 alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.errors import ModelLoadFailed
from service.runtime.trt.engine import Engine


@dataclass(frozen=True, slots=True)
class LayerInfo:
    """One layer of an engine, that is one or more kernels.

    Attributes:
        name: by which a profile's times are joined to it.
        kind: TensorRT's word for it; empty where the engine was built to keep names alone.
        details: all that the inspector says, in its own keys.
    """

    name: str
    kind: str
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What the inspector says of an engine: its layers in the order of execution, and its tensors' names."""

    layers: tuple[LayerInfo, ...]
    tensors: tuple[str, ...]


def inspect(engine: Engine) -> EngineInfo | None:
    """Lists the layers; None where the installed TensorRT has no inspector. Holds the GIL: not while serving.

    Raises:
        ModelLoadFailed: the inspector gives no JSON.
    """
    if not engine.flavour.capabilities.inspector:
        return None
    inspector = engine.native.create_engine_inspector()
    return parse(str(inspector.get_engine_information(engine.flavour.module.LayerInformationFormat.JSON)))


def parse(text: str) -> EngineInfo:
    """Reads the inspector's JSON, whose strings may hold raw control characters.

    Raises:
        ModelLoadFailed: it is no JSON, or none of an engine.
    """
    try:
        content = json.loads(text, strict=False)
        layers = tuple(map(_layer, content["Layers"]))
        return EngineInfo(layers, _tensors(content))
    except (ValueError, KeyError, TypeError) as error:
        raise ModelLoadFailed(f"TensorRT's inspector gave what is no description of an engine: {error!r}") from error


def _layer(layer: str | Mapping[str, Any]) -> LayerInfo:
    if isinstance(layer, str):
        return LayerInfo(layer, "", {})
    return LayerInfo(str(layer["Name"]), str(layer.get("LayerType", "")), layer)


def _tensors(content: Mapping[str, Any]) -> tuple[str, ...]:
    """Until version 10 a list of names, one more for each further profile; from 11 on a list of objects."""
    if "I/O Tensors" in content:
        return tuple(str(tensor["Name"]) for tensor in content["I/O Tensors"])
    names = (str(name).partition(" [profile ")[0] for name in content["Bindings"])
    return tuple(dict.fromkeys(names))
