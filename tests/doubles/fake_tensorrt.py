"""TensorRT without a GPU, on the fake CUDA: its surface in five generations, its ways to fail, and NumPy for kernels.

What a generation does not have is missing here too, so that `hasattr` finds what it would find. Rules that TensorRT
leaves to its user are checked, and end in TensorRT's own way: None, False or RuntimeError.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_tensorrt_builder import add_builder
from tests.doubles.fake_tensorrt_context import IExecutionContext
from tests.doubles.fake_tensorrt_engine import (
    ICudaEngine,
    IErrorRecorder,
    IOutputAllocator,
    IProfiler,
    Logger,
    Runtime,
)
from tests.doubles.fake_tensorrt_types import (
    DataType,
    ExecutionContextAllocationStrategy,
    LayerInformationFormat,
    TensorIOMode,
    TensorLocation,
)
from tests.doubles.fake_tensorrt_world import VERSIONS, World, surface


def fake_tensorrt(cuda: FakeCuda, generation: str = "10") -> Any:
    """Stands where the module `tensorrt` would; `.world` is what tests steer it by."""
    world = World(cuda, generation)
    module = SimpleNamespace(
        __version__=".".join(map(str, VERSIONS[generation])),
        world=world,
        Logger=Logger,
        IErrorRecorder=IErrorRecorder,
        IOutputAllocator=IOutputAllocator,
        IProfiler=IProfiler,
        Runtime=lambda logger: Runtime(world, logger),
        ICudaEngine=surface(ICudaEngine, world),
        IExecutionContext=surface(IExecutionContext, world),
        DataType=DataType,
        TensorIOMode=TensorIOMode,
        TensorLocation=TensorLocation,
        LayerInformationFormat=LayerInformationFormat,
    )
    if generation != "8.6":
        module.ExecutionContextAllocationStrategy = ExecutionContextAllocationStrategy
    if generation != "11-lean":
        module.EngineInspector = object
        add_builder(module, world)
    return module
