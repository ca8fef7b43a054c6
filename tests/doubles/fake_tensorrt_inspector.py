"""The engine inspector of the TensorRT double: one layer per profile, in the JSON of 8.6 and 10 and in that of 11.

As TensorRT does, it tells shapes and layouts of dynamic tensors for the profile of its context alone, and 8.6 also
without one. A tactic holds a raw control character, as 8.6 was seen to write.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.doubles.fake_tensorrt_types import LayerInformationFormat

if TYPE_CHECKING:
    from tests.doubles.fake_tensorrt_engine import ICudaEngine

TYPES = {"FLOAT": "FP32", "HALF": "FP16"}
NEW_TYPES = {"FLOAT": "Float", "HALF": "Half"}


class EngineInspector:
    """Tells of one engine; of a context too, once it has one."""

    def __init__(self, engine: ICudaEngine) -> None:
        self._engine = engine
        self._is_new = engine._world.generation.startswith("11")
        self.execution_context: Any = None

    def get_engine_information(self, form: LayerInformationFormat) -> str:
        assert form is LayerInformationFormat.JSON
        engine, model = self._engine, self._engine._model
        layers = [
            {
                "Name": f"{model.program}{_suffix(index)}",
                "LayerType": "PointWise",
                "Inputs": [self._tensor(name, index) for name in model.inputs],
                "Outputs": [self._tensor(name, index) for name in model.outputs],
                "TacticName": "fake\\u0007tactic",
            }
            for index in range(len(model.profiles))
        ]
        if self._is_new:
            return json.dumps({"Layers": layers, "I/O Tensors": [{"Name": name} for name in engine._tensors]})
        names = [f"{name}{_suffix(index)}" for index in range(len(model.profiles)) for name in engine._tensors]
        return json.dumps({"Layers": layers, "Bindings": names}).replace("\\\\u0007", "\a")

    def _tensor(self, name: str, profile: int) -> dict[str, Any]:
        dtype, shape = self._engine._tensors[name]
        context, model = self.execution_context, self._engine._model
        if context is not None and context.active_optimization_profile == profile:
            shape = tuple(context.get_tensor_shape(name))
        elif self._engine._world.generation == "8.6" and name in model.inputs:
            shape = model.profiles[profile][name][1]
        told: dict[str, Any] = {"Name": f"{name}{_suffix(profile)}", "Dimensions": list(shape)}
        if -1 in shape:
            return told
        if self._is_new:
            return {**told, "Format": "Row major linear", "Datatype": NEW_TYPES.get(dtype, dtype)}
        return {**told, "Format/Datatype": f"Row major linear {TYPES.get(dtype, dtype)} format"}


def _suffix(profile: int) -> str:
    return f" [profile {profile}]" if profile else ""
