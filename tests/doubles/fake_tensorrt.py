"""TensorRT without a GPU, on the fake CUDA: its surface in five generations, its ways to fail, and NumPy for kernels.

A plan of the fake is a real header followed by a pickled `FakeModel`. What a generation does not have is missing here
too, so that `hasattr` finds what it would find. Rules that TensorRT leaves to its user (one thread per context, aligned
addresses, scratch before the first run) are checked, and end in TensorRT's own way: None, False or RuntimeError.
"""

from __future__ import annotations

import json
import pickle
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any

import numpy as np

from service.runtime.trt.plan import MAGIC
from tests.doubles.fake_cuda import FakeCuda

Shape = tuple[int, ...]
Range = tuple[Shape, Shape, Shape]
ALIGNMENT = 256
LINEAR = "Row major linear FP32 format"

VERSIONS = {
    "8.6": (8, 6, 1, 6),
    "10.0": (10, 0, 1, 6),
    "10": (10, 13, 3, 9),
    "11": (11, 4, 0, 106),
    "11-lean": (11, 4, 0, 106),
}
GENERATIONS = tuple(VERSIONS)

_NOT_IN_8 = {
    "device_memory_size_v2",
    "get_device_memory_size_for_profile",
    "get_device_memory_size_for_profile_v2",
    "set_device_memory",
}
_NOT_IN_10_0 = {"device_memory_size_v2", "get_device_memory_size_for_profile_v2", "set_device_memory"}
_NOT_IN_11 = {
    "device_memory_size",
    "get_device_memory_size_for_profile",
    "create_execution_context_without_device_memory",
}
MISSING: Mapping[str, set[str]] = {
    "8.6": _NOT_IN_8,
    "10.0": _NOT_IN_10_0,
    "10": set(),
    "11": _NOT_IN_11,
    "11-lean": _NOT_IN_11,
}

NUMPY = {
    "FLOAT": np.float32,
    "HALF": np.float16,
    "BF16": np.uint16,
    "INT8": np.int8,
    "INT32": np.int32,
    "INT64": np.int64,
    "UINT8": np.uint8,
    "BOOL": np.bool_,
    "FP8": np.uint8,
}

PROGRAMS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "double": lambda x: (x + x,),
    "pair": lambda a, b: (a + b, a - b),
    "sum_rows": lambda x: (np.sum(x, axis=0, keepdims=True),),
}


class DataType(Enum):
    FLOAT = 0
    HALF = 1
    INT8 = 2
    INT32 = 3
    BOOL = 4
    UINT8 = 5
    FP8 = 6
    BF16 = 7
    INT64 = 8


class TensorIOMode(Enum):
    NONE = 0
    INPUT = 1
    OUTPUT = 2


class TensorLocation(Enum):
    DEVICE = 0
    HOST = 1


class ExecutionContextAllocationStrategy(Enum):
    STATIC = 0
    ON_PROFILE_CHANGE = 1
    USER_MANAGED = 2


class LayerInformationFormat(Enum):
    ONELINE = 0
    JSON = 1


class ErrorCode(Enum):
    INVALID_ARGUMENT = 3
    INVALID_STATE = 9


@dataclass(frozen=True)
class FakeModel:
    """What a plan holds.

    Attributes:
        inputs: by name (type, dims), -1 for a dynamic one.
        outputs: likewise.
        profiles: per profile the range of every input.
        program: a name in `PROGRAMS`.
        scratch: bytes per profile.
        host_tensors: those that TensorRT would read on the host.
        data_dependent: outputs whose sizes depend on the data.
        layouts: format descriptions other than linear.
        shares_profiles: whether 8.6 was asked for PROFILE_SHARING_0806.
        is_capturable: whether a capture of it succeeds.
        replay_error: added to the outputs of captured work alone.
    """

    inputs: Mapping[str, tuple[str, Shape]]
    outputs: Mapping[str, tuple[str, Shape]]
    profiles: tuple[Mapping[str, Range], ...]
    program: str
    scratch: tuple[int, ...] = (1024, 4096)
    host_tensors: frozenset[str] = frozenset()
    data_dependent: frozenset[str] = frozenset()
    layouts: Mapping[str, str] = field(default_factory=dict)
    shares_profiles: bool = True
    is_capturable: bool = True
    replay_error: int = 0


def plan_of(model: FakeModel, version: tuple[int, int, int, int]) -> bytes:
    """The model as a plan that TensorRT `version` built."""
    header = struct.pack("<II16x", MAGIC, 0) + bytes(min(number, 255) for number in version)
    return header + pickle.dumps(model)


@dataclass
class Faults:
    """What goes wrong next; set by tests."""

    runtime: bool = False
    engine: str = ""
    context: str = ""
    shapes: str = ""
    enqueues: int = 0
    addresses: frozenset[str] = frozenset()


@dataclass
class World:
    """What all objects of one fake module share."""

    cuda: FakeCuda
    generation: str
    faults: Faults = field(default_factory=Faults)
    deaths: list[str] = field(default_factory=list)
    static_contexts: int = 0


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
        return _surface(ICudaEngine, self._world)(self._world, self, pickle.loads(plan[28:]))

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

    def __del__(self) -> None:
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
        return _surface(IExecutionContext, self._world)(self._world, self)

    def create_execution_context_without_device_memory(self) -> Any:
        return self.create_execution_context(ExecutionContextAllocationStrategy.USER_MANAGED)

    def create_engine_inspector(self) -> Any:
        if self._world.generation == "11-lean":
            raise TypeError("Unable to convert function return value to a Python type")
        return SimpleNamespace(get_engine_information=self._information)

    def _information(self, form: LayerInformationFormat) -> str:
        assert form is LayerInformationFormat.JSON
        layers = [{"Name": f"{self._model.program}\\u0007", "LayerType": "PointWise"}]
        if self._world.generation.startswith("11"):
            return json.dumps({"Layers": layers, "I/O Tensors": [{"Name": name} for name in self._tensors]})
        profiles = range(1, len(self._model.profiles))
        names = [*self._tensors, *(f"{name} [profile {index}]" for index in profiles for name in self._tensors)]
        return json.dumps({"Layers": layers, "Bindings": names}).replace("\\\\u0007", "\a")

    def _complain(self, words: str) -> None:
        self._runtime.error_recorder.report_error(ErrorCode.INVALID_ARGUMENT, words)

    def _shares_profiles(self) -> bool:
        return self._world.generation != "8.6" or self._model.shares_profiles


class IExecutionContext:
    """A context; its profile is its own or shared, its shapes are forgotten when the profile changes."""

    def __init__(self, world: World, engine: ICudaEngine) -> None:
        self._world = world
        self._engine = engine
        self._thread = threading.get_ident()
        self._shapes: dict[str, Shape] = {}
        self._addresses: dict[str, int] = {}
        self._scratch: tuple[int, int] | None = None
        self._is_warm = False
        self.active_optimization_profile = -1
        if engine._shares_profiles() or not engine._users.get(0):
            self._take(0)

    def __del__(self) -> None:
        self._release()
        self._world.deaths.append("context")

    def set_optimization_profile_async(self, profile: int, stream: int) -> bool:
        self._require_stream(stream)
        engine = self._engine
        is_taken = bool(engine._users.get(profile)) and not engine._shares_profiles()
        if is_taken or not 0 <= profile < engine.num_optimization_profiles:
            engine._complain(f"Profile {profile} has been chosen by another IExecutionContext")
            raise RuntimeError("Error in set optimization profile async.")
        self._release()
        self._take(profile)
        self._shapes.clear()
        return True

    def set_input_shape(self, name: str, shape: Shape) -> bool:
        if name not in self._engine._model.inputs:
            return False
        low, _, high = self._engine._model.profiles[self.active_optimization_profile][name]
        is_inside = len(shape) == len(low) and all(a <= b <= c for a, b, c in zip(low, shape, high, strict=True))
        if not is_inside:
            self._engine._complain(f"Set dimension {shape} for tensor {name} does not satisfy any profile")
            return False
        self._is_warm = self._is_warm and self._shapes.get(name) == tuple(shape)
        self._shapes[name] = tuple(shape)
        return True

    def infer_shapes(self) -> list[str]:
        if self._world.faults.shapes:
            self._engine._complain(self._world.faults.shapes)
            raise RuntimeError("Error in infer shapes.")
        return [name for name in self._engine._model.inputs if name not in self._all_shapes()]

    def get_tensor_shape(self, name: str) -> Shape:
        model = self._engine._model
        if name in model.inputs:
            return self._all_shapes().get(name, model.inputs[name][1])
        if self.infer_shapes():
            return model.outputs[name][1]
        shape = self._outputs_of([np.zeros(*self._typed(name)) for name in model.inputs])[name].shape
        return tuple(-1 for _ in shape) if name in model.data_dependent else shape

    def set_tensor_address(self, name: str, address: int) -> bool:
        if address % ALIGNMENT or name in self._world.faults.addresses or name not in self._engine._tensors:
            self._engine._complain(f"address of {name} must be aligned to {ALIGNMENT} bytes")
            return False
        self._addresses[name] = address
        return True

    def set_device_memory(self, address: int, nbytes: int) -> None:
        self._scratch = (address, nbytes)

    @property
    def device_memory(self) -> int:
        raise AttributeError("unreadable attribute")

    @device_memory.setter
    def device_memory(self, address: int) -> None:
        self._scratch = (address, self._needed)

    def execute_async_v3(self, stream: int) -> bool:
        self._require_stream(stream)
        problem = self._problem()
        if problem is not None:
            self._engine._complain(problem)
            return False
        model, is_capturing = self._engine._model, self._world.cuda.is_capturing(stream)
        if is_capturing and not (model.is_capturable and self._is_warm):
            self._world.cuda.cudaStreamSynchronize(stream)
            self._engine._complain("operation not permitted when stream is capturing")
            return False
        self._is_warm = True
        kernel = self._kernel(model.replay_error if is_capturing else 0)
        return not self._world.cuda.launch_kernel(stream, kernel)

    @property
    def _needed(self) -> int:
        if self._world.generation == "8.6":
            return self._engine.device_memory_size
        return self._engine._model.scratch[self.active_optimization_profile]

    def _problem(self) -> str | None:
        faults = self._world.faults
        if faults.enqueues:
            faults.enqueues -= 1
            return "enqueue was told to fail"
        if self._thread != threading.get_ident():
            return "a context is used by a second thread"
        if self.infer_shapes() or set(self._addresses) != set(self._engine._tensors):
            return "shapes or addresses are missing"
        if self._needed and (self._scratch is None or self._scratch[1] < self._needed):
            return "the device memory is missing or too small"
        return None

    def _kernel(self, error: int) -> Callable[[], None]:
        """Shapes and addresses are those of the enqueue, whatever the context is told later."""
        cuda, model = self._world.cuda, self._engine._model
        inputs = {name: (*self._typed(name), self._addresses[name]) for name in model.inputs}
        addresses, scratch, run = dict(self._addresses), self._scratch, self._outputs_of

        def kernel() -> None:
            if scratch is not None:
                cuda.device_view(*scratch)[:] = 0x5A
            values = []
            for shape, dtype, address in inputs.values():
                count = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
                values.append(cuda.device_view(address, count).view(dtype).reshape(shape))
            for name, output in run(values).items():
                given = np.ascontiguousarray(output) + np.asarray(error, output.dtype)
                cuda.device_view(addresses[name], given.nbytes)[:] = given.view(np.uint8).reshape(-1)

        return kernel

    def _outputs_of(self, inputs: list[Any]) -> dict[str, Any]:
        model = self._engine._model
        return dict(zip(model.outputs, PROGRAMS[model.program](*inputs), strict=True))

    def _typed(self, name: str) -> tuple[Shape, Any]:
        return self._all_shapes()[name], NUMPY[self._engine._model.inputs[name][0]]

    def _all_shapes(self) -> dict[str, Shape]:
        static = {name: dims for name, (_, dims) in self._engine._model.inputs.items() if -1 not in dims}
        return {**static, **self._shapes}

    def _require_stream(self, stream: int) -> None:
        assert isinstance(stream, int), "a stream is given as a number"

    def _take(self, profile: int) -> None:
        self._engine._users[profile] = self._engine._users.get(profile, 0) + 1
        self.active_optimization_profile = profile

    def _release(self) -> None:
        if self.active_optimization_profile >= 0:
            self._engine._users[self.active_optimization_profile] -= 1


def fake_tensorrt(cuda: FakeCuda, generation: str = "10") -> Any:
    """Stands where the module `tensorrt` would; `.world` is what tests steer it by."""
    world = World(cuda, generation)
    module = SimpleNamespace(
        __version__=".".join(map(str, VERSIONS[generation])),
        world=world,
        Logger=Logger,
        IErrorRecorder=IErrorRecorder,
        Runtime=lambda logger: Runtime(world, logger),
        ICudaEngine=_surface(ICudaEngine, world),
        IExecutionContext=_surface(IExecutionContext, world),
        DataType=DataType,
        TensorIOMode=TensorIOMode,
        TensorLocation=TensorLocation,
        LayerInformationFormat=LayerInformationFormat,
    )
    if generation != "8.6":
        module.ExecutionContextAllocationStrategy = ExecutionContextAllocationStrategy
    if generation != "11-lean":
        module.EngineInspector = object
    return module


def _surface(base: type, world: World) -> type:
    """`base` as the generation has it."""
    missing = MISSING[world.generation] | {"__dict__", "__weakref__"}
    return type(base.__name__, (), {name: value for name, value in vars(base).items() if name not in missing})
