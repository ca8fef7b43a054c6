"""The layers of an engine as TensorRT's inspector lists them, in the forms of 8.6 and 10 and of 11 alike."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.errors import ModelLoadFailed
from service.runtime.trt.context import Context
from service.runtime.trt.engine import Engine

_PROFILE = re.compile(r" \[profile (\d+)\]$")
_TYPE = re.compile(r"\b(BF16|BFLOAT16|FP\d{1,2}|FLOAT|HALF|U?INT\d{1,2}|BOOL)\b", re.IGNORECASE)
_TYPE_WORDS = {"FLOAT": "FP32", "HALF": "FP16", "BFLOAT16": "BF16"}


@dataclass(frozen=True, slots=True)
class LayerTensor:
    """What a layer reads or writes.

    Attributes:
        name: the tensor's, unique within the engine.
        dims: extents; -1 where the inspector was not told the shapes.
        dtype: such as `FP16`; empty where the inspector does not say it.
        format: how it lies in memory, in TensorRT's words.
    """

    name: str
    dims: tuple[int, ...]
    dtype: str
    format: str


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

    @property
    def inputs(self) -> tuple[LayerTensor, ...]:
        """What it reads; empty where the engine was built to keep names alone."""
        return tuple(map(layer_tensor, self.details.get("Inputs", ())))

    @property
    def outputs(self) -> tuple[LayerTensor, ...]:
        """What it writes; likewise."""
        return tuple(map(layer_tensor, self.details.get("Outputs", ())))

    @property
    def tactic(self) -> str:
        """The kernel's name, or TensorRT's number for it; empty where it has neither."""
        value = str(self.details.get("TacticValue", ""))
        return str(self.details.get("TacticName") or ("" if value.strip("0x") == "" else value))

    @property
    def profile(self) -> int:
        """The optimization profile that it belongs to: TensorRT writes every number but 0 into the name."""
        found = _PROFILE.search(self.name)
        return int(found[1]) if found else 0

    @property
    def precision(self) -> str:
        """The type that it computes in, such as `FP16` or from and to `FP32→FP16`; empty if it is not known."""
        ends = [tensors[0].dtype for tensors in (self.inputs, self.outputs) if tensors]
        return "→".join(dict.fromkeys(dtype for dtype in ends if dtype))


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What the inspector says of an engine: its layers in the order of execution, and its tensors' names."""

    layers: tuple[LayerInfo, ...]
    tensors: tuple[str, ...]


def inspect(engine: Engine, context: Context | None = None) -> EngineInfo | None:
    """Lists the layers; None where the installed TensorRT has no inspector. Holds the GIL: not while serving.

    Args:
        engine: the engine.
        context: whose shapes are told, once they are bound; without one, dynamic ones may be told as -1.

    Raises:
        ModelLoadFailed: the inspector gives no JSON.
    """
    if not engine.flavour.capabilities.inspector:
        return None
    inspector = engine.native.create_engine_inspector()
    if context is not None:
        context.show_to(inspector)
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


def layer_tensor(tensor: Mapping[str, Any]) -> LayerTensor:
    """One tensor of a layer: until version 10 type and layout are one text, such as `Row major linear FP16 format`."""
    layout = str(tensor.get("Format/Datatype", tensor.get("Format", "")))
    return LayerTensor(
        name=str(tensor.get("Name", "")),
        dims=tuple(map(int, tensor.get("Dimensions", ()))),
        dtype=data_type(str(tensor.get("Datatype", tensor.get("DataType", layout)))),
        format=layout,
    )


def data_type(words: str) -> str:
    """The type that `words` name, such as `FP16` of `Half` or of `Row major linear FP16 format`; empty if none."""
    found = _TYPE.search(words)
    dtype = found[0].upper() if found else ""
    return _TYPE_WORDS.get(dtype, dtype)


def without_profile(name: str) -> str:
    """A layer's name without the number of its profile."""
    return _PROFILE.sub("", name)


def _tensors(content: Mapping[str, Any]) -> tuple[str, ...]:
    """Until version 10 a list of names, one more for each further profile; from 11 on a list of objects."""
    if "I/O Tensors" in content:
        return tuple(str(tensor["Name"]) for tensor in content["I/O Tensors"])
    names = (str(name).partition(" [profile ")[0] for name in content["Bindings"])
    return tuple(dict.fromkeys(names))
