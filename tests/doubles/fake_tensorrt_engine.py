"""The runtime and the engines of the TensorRT double, with the logger and the error recorder that they report to."""

from __future__ import annotations

import warnings
from typing import Any

from tests.doubles.fake_tensorrt_context import IExecutionContext
from tests.doubles.fake_tensorrt_inspector import EngineInspector
from tests.doubles.fake_tensorrt_model import FakeModel, Shape, model_in
from tests.doubles.fake_tensorrt_types import (
    DataType,
    ErrorCode,
    ExecutionContextAllocationStrategy,
    TensorIOMode,
    TensorLocation,
)
from tests.doubles.fake_tensorrt_world import World, surface

LINEAR = "Row major linear FP32 format"


class Logger:
    """TensorRT's own logger; the fake logs nothing."""

    WARNING = 2

    def __init__(self, severity: int) -> None:
        self.severity = severity
        self.world: World | None = None

    def __del__(self) -> None:
        if self.world is not None:
            self.world.deaths.append("logger")


class IErrorRecorder:
    """Base of error recorders; like pybind11's, it must be initialised by the subclass."""

    def __init__(self) -> None:
        self._is_initialised = True


class IOutputAllocator(IErrorRecorder):
    """Base of output allocators, which must be initialised too."""


class IProfiler(IErrorRecorder):
    """Base of profilers, likewise."""


class Runtime:
    """Deserialises plans."""

    def __init__(self, world: World, logger: Logger) -> None:
        if world.faults.runtime:
            raise TypeError("pybind11::init(): factory function returned nullptr")
        logger.world = world
        self._world = world
        self._logger = logger
        self._recorder: Any = None
        self.engine_host_code_allowed = False

    @property
    def error_recorder(self) -> Any:
        return self._recorder

    @error_recorder.setter
    def error_recorder(self, recorder: Any) -> None:
        assert recorder._is_initialised
        self._recorder = recorder

    def deserialize_cuda_engine(self, plan: bytes) -> Any:
        if self._world.faults.engine:
            self._recorder.report_error(ErrorCode.INVALID_ARGUMENT, self._world.faults.engine)
            return None
        return surface(ICudaEngine, self._world)(self._world, self, model_in(plan))

    def __del__(self) -> None:
        if hasattr(self, "_world"):
            self._world.deaths.append("runtime")


class ICudaEngine:
    """An engine; `MISSING` says what a generation lacks of it."""

    def __init__(self, world: World, runtime: Runtime, model: FakeModel) -> None:
        self._world = world
        self._runtime = runtime
        self._model = model
        self._tensors = {**model.inputs, **model.outputs}
        self._users: dict[int, int] = {}
        self.num_io_tensors = len(self._tensors)
        self.num_optimization_profiles = len(model.profiles)
        self.num_aux_streams = 0
        self._device = world.take_memory(model.weights_bytes)

    def __del__(self) -> None:
        self._world.give_memory(self._device, self._model.weights_bytes)
        self._world.deaths.append("engine")

    def get_tensor_name(self, index: int) -> str:
        return list(self._tensors)[index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode.INPUT if name in self._model.inputs else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> DataType:
        return DataType[self._tensors[name][0]]

    def get_tensor_shape(self, name: str) -> Shape:
        return self._tensors[name][1]

    def get_tensor_location(self, name: str) -> TensorLocation:
        return TensorLocation.HOST if name in self._model.host_tensors else TensorLocation.DEVICE

    def is_shape_inference_io(self, name: str) -> bool:
        return name in self._model.host_tensors

    def get_tensor_format_desc(self, name: str) -> str:
        return self._model.layouts.get(name, LINEAR)

    def get_tensor_profile_shape(self, name: str, profile: int) -> list[Shape]:
        if name not in self._model.inputs:
            raise ValueError("Dims with nbDims = -1 have no length")
        return list(self._model.profiles[profile][name])

    def get_profile_shape_input(self, profile: int, name: str) -> list[list[int]]:
        warnings.warn("Use get_tensor_profile_shape instead.", DeprecationWarning, stacklevel=1)
        return [values[:1] for values in self._profile_values(profile, name)]

    def get_tensor_profile_values(self, profile: int, name: str, /) -> list[list[int]]:
        return self._profile_values(profile, name)

    def _profile_values(self, profile: int, name: str) -> list[list[int]]:
        if name not in self._model.inputs or name not in self._model.host_tensors:
            raise RuntimeError("the tensor is no shape input")
        return [list(values) for values in self._model.profiles[profile][name]]

    @property
    def device_memory_size(self) -> int:
        return max(self._model.scratch[: len(self._model.profiles)])

    @property
    def device_memory_size_v2(self) -> int:
        return max(self._model.scratch[: len(self._model.profiles)])

    def get_device_memory_size_for_profile(self, profile: int) -> int:
        return self._model.scratch[profile]

    def get_device_memory_size_for_profile_v2(self, profile: int) -> int:
        return self._model.scratch[profile]

    def create_execution_context(self, strategy: Any = ExecutionContextAllocationStrategy.STATIC) -> Any:
        if strategy is not ExecutionContextAllocationStrategy.USER_MANAGED:
            self._world.static_contexts += 1
        if self._world.faults.context:
            self._complain(self._world.faults.context)
            return None
        return surface(IExecutionContext, self._world)(self._world, self)

    def create_execution_context_without_device_memory(self) -> Any:
        return self.create_execution_context(ExecutionContextAllocationStrategy.USER_MANAGED)

    def create_engine_inspector(self) -> Any:
        if self._world.generation == "11-lean":
            raise TypeError("Unable to convert function return value to a Python type")
        return EngineInspector(self)

    def _complain(self, words: str) -> None:
        self._runtime.error_recorder.report_error(ErrorCode.INVALID_ARGUMENT, words)

    def _shares_profiles(self) -> bool:
        return self._world.generation != "8.6" or self._model.shares_profiles
