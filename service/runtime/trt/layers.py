"""The layers of an engine with shapes and layouts, which the inspector tells of a context alone."""

from __future__ import annotations

from dataclasses import replace

from service.errors import ModelLoadFailed
from service.runtime.cuda.stream import Stream
from service.runtime.trt.context import Context
from service.runtime.trt.engine import Engine
from service.runtime.trt.inspector import EngineInfo, inspect


def layers_at_optimum(engine: Engine, *, stream: Stream) -> EngineInfo | None:
    """Lists the layers of every profile as they are at its optimum; None where TensorRT has no inspector.

    From TensorRT 10 on an engine by itself has no shapes where they are dynamic, and then says no layouts either. Of a
    profile whose optimum cannot be set, such as with values on the host that do not fit it, what the engine says stays.
    Holds the GIL: not while serving.

    Args:
        engine: the engine.
        stream: orders what choosing a profile may copy.

    Raises:
        ModelLoadFailed: the inspector gives no JSON.
        DeviceError: CUDA failed.
    """
    info = inspect(engine)
    if info is None:
        return None
    by_name = {layer.name: layer for layer in info.layers}
    for index, ranges in enumerate(engine.profiles):
        try:
            context = Context.create(engine, index, stream=stream)
        except ModelLoadFailed:
            continue
        try:
            context.bind_shapes(ranges[tensor.name].opt for tensor in engine.inputs)
            told = inspect(engine, context)
        except ModelLoadFailed:
            continue
        finally:
            context.close()
        assert told is not None
        by_name.update((layer.name, layer) for layer in told.layers if layer.profile == index)
    return replace(info, layers=tuple(by_name.values()))
