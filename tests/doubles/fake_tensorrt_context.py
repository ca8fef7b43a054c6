"""The contexts of the TensorRT double: profiles, shapes, addresses and runs, and the rules left to whoever runs them.

One thread per context, aligned addresses, scratch before the first run: what breaks a rule ends in TensorRT's own way.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.doubles.fake_tensorrt_model import NUMPY, Shape
from tests.doubles.fake_tensorrt_world import World

if TYPE_CHECKING:
    from tests.doubles.fake_tensorrt_engine import ICudaEngine

ALIGNMENT = 256


class IExecutionContext:
    """A context; its profile is its own or shared, its shapes are forgotten when the profile changes."""

    def __init__(self, world: World, engine: ICudaEngine) -> None:
        self._world = world
        self._engine = engine
        self._thread = threading.get_ident()
        self._shapes: dict[str, Shape] = {}
        self._addresses: dict[str, int] = {}
        self._allocators: dict[str, Any] = {}
        self._scratch: tuple[int, int] | None = None
        self._is_warm = False
        self._profiler: Any = None
        self._told_of: tuple[int, bool] | None = None
        self.enqueue_emits_profile = True
        self._device = world.take_memory(engine._model.persistent_bytes)
        self.active_optimization_profile = -1
        if engine._shares_profiles() or not engine._users.get(0):
            self._take(0)

    def __del__(self) -> None:
        self._release()
        self._world.give_memory(self._device, self._engine._model.persistent_bytes)
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
        hosts = self._engine._model.host_tensors
        known = {*self._all_shapes()} - (hosts - {*self._addresses})
        return [name for name in self._engine._model.inputs if name not in known]

    def get_tensor_shape(self, name: str) -> Shape:
        model = self._engine._model
        if name in model.inputs:
            return self._all_shapes().get(name, model.inputs[name][1])
        if self.infer_shapes():
            return model.outputs[name][1]
        inputs = [
            self._host_values(each) if each in model.host_tensors else np.zeros(*self._typed(each))
            for each in model.inputs
        ]
        shape = self._outputs_of(inputs)[name].shape
        if name in model.data_dependent:
            return model.data_dependent_dims or model.outputs[name][1]
        return shape

    def set_tensor_address(self, name: str, address: int) -> bool:
        if address % ALIGNMENT or name in self._world.faults.addresses or name not in self._engine._tensors:
            self._engine._complain(f"address of {name} must be aligned to {ALIGNMENT} bytes")
            return False
        self._addresses[name] = address
        return True

    def set_output_allocator(self, name: str, allocator: Any) -> bool:
        if name not in self._engine._model.outputs or name in self._world.faults.addresses:
            self._engine._complain(f"{name} cannot have an output allocator")
            return False
        assert name not in self._allocators, "every further allocator would live as long as the context"
        assert allocator._is_initialised
        self._allocators[name] = allocator
        return True

    def get_max_output_size(self, name: str) -> int:
        return self._engine._model.max_output_bytes

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
        if self._profiler is not None:
            assert not self.enqueue_emits_profile, "every enqueue would wait for its own work"
            self._told_of = stream, is_capturing
        if model.data_dependent and not self._place_outputs(stream):
            return False
        kernel = self._kernel(model.replay_error if is_capturing else 0)
        if model.is_cleared:
            self._clear_outputs(stream)
        return not self._world.cuda.launch_kernel(stream, kernel)

    @property
    def profiler(self) -> Any:
        return self._profiler

    @profiler.setter
    def profiler(self, profiler: Any) -> None:
        assert self._profiler is None, "every further profiler would live as long as the context"
        assert profiler._is_initialised
        self._profiler = profiler

    def report_to_profiler(self) -> bool:
        """Of the latest enqueue with a profiler, or the graph that it was captured into; its stream must be there."""
        silent = self._world.faults.reports
        if self._told_of is None or silent == "all" or (silent == "replays" and self._told_of[1]):
            return False
        self._world.cuda._stream(self._told_of[0])
        suffix = f" [profile {self.active_optimization_profile}]" if self.active_optimization_profile else ""
        self._profiler.report_layer_time(f"{self._engine._model.program}{suffix}", self._world.layer_ms())
        return True

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
        if self.infer_shapes() or {*self._addresses, *self._allocators} != set(self._engine._tensors):
            return "shapes or addresses are missing"
        if self._needed and (self._scratch is None or self._scratch[1] < self._needed):
            return "the device memory is missing or too small"
        return None

    def _place_outputs(self, stream: int) -> bool:
        """Waits for the inputs, and asks for memory once the outputs' sizes are known: while the host waits too."""
        if self._world.cuda.cudaStreamSynchronize(stream)[0]:
            self._engine._complain("the inputs never came")
            return False
        for name, output in self._outputs_of(self._values()).items():
            allocator = self._allocators.get(name)
            if allocator is None:
                continue
            old = self._addresses.get(name, 0)
            if self._world.generation == "8.6":
                address = allocator.reallocate_output(name, old, output.nbytes, ALIGNMENT)
            else:
                address = allocator.reallocate_output_async(name, old, output.nbytes, ALIGNMENT, stream)
            if not address:
                self._engine._complain(f"no memory for {name}")
                return False
            self._addresses[name] = address
            allocator.notify_shape(name, output.shape)
        return True

    def _clear_outputs(self, stream: int) -> None:
        """As convolutions do that split their sums; odd halves, so that no fill begins where the next one does."""
        for name, output in self._outputs_of(self._values()).items():
            address, half = self._addresses[name], output.nbytes // 2 | 1
            self._world.cuda.cudaMemsetAsync(address, 0, half, stream)
            self._world.cuda.cudaMemsetAsync(address + half, 0, output.nbytes - half, stream)

    def _values(self) -> list[Any]:
        """The inputs, as they lie on the device now."""
        return [
            self._host_values(name)
            if name in self._engine._model.host_tensors
            else self._read(*self._typed(name), self._addresses[name])
            for name in self._engine._model.inputs
        ]

    def _host_values(self, name: str) -> Any:
        shape, dtype = self._typed(name)
        nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(self._addresses[name]), dtype).reshape(shape)

    def _read(self, shape: Shape, dtype: Any, address: int) -> Any:
        count = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        return self._world.cuda.device_view(address, count).view(dtype).reshape(shape)

    def _kernel(self, error: int) -> Callable[[], None]:
        """Shapes and addresses are those of the enqueue, whatever the context is told later."""
        cuda, model = self._world.cuda, self._engine._model
        hosts = {name: self._host_values(name).copy() for name in model.inputs if name in model.host_tensors}
        inputs = {name: (*self._typed(name), self._addresses[name]) for name in model.inputs}
        addresses, scratch, run = dict(self._addresses), self._scratch, self._outputs_of

        def kernel() -> None:
            if scratch is not None:
                cuda.device_view(*scratch)[:] = 0x5A
            values = [hosts[name] if name in hosts else self._read(*each) for name, each in inputs.items()]
            for name, output in run(values).items():
                given = np.ascontiguousarray(output) + np.asarray(error, output.dtype)
                place = cuda.device_view(addresses[name], given.nbytes)
                if model.is_cleared:
                    given = given + place.view(given.dtype).reshape(given.shape)
                place[:] = given.reshape(-1).view(np.uint8)

        return kernel

    def _outputs_of(self, inputs: list[Any]) -> dict[str, Any]:
        model = self._engine._model
        return dict(zip(model.outputs, model.run(inputs), strict=True))

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
