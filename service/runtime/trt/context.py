"""Execution contexts, each bound for life: profile, then all shapes, then scratch and addresses, and never again.

A CUDA Graph that was captured from a context is defined only as long as nobody changes that context. So every graph has
a context of its own, and what several contexts need but cannot use at the same time, the scratch, comes from the lane.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from service.buckets import Bucket
from service.errors import ModelLoadFailed
from service.models import ModelSpec
from service.runtime.cuda.memory import DeviceBuffer
from service.runtime.cuda.stream import Stream
from service.runtime.trt.engine import Engine, trt_check
from service.runtime.trt.profiles import BucketShapes, Shape, input_shapes, profile_by_bucket


class Context:
    """One native execution context on one profile; used by one thread at a time.

    Attributes:
        outputs: the shapes of the engine's outputs, once `bind_shapes` has been called; an extent below 0 depends on
            the data.
    """

    def __init__(self, engine: Engine, native: Any) -> None:
        self._engine = engine
        self._native: Any = native
        self.outputs: tuple[Shape, ...] = ()

    @classmethod
    def create(cls, engine: Engine, profile: int, *, stream: Stream) -> Context:
        """Makes a context without scratch and puts it on its profile.

        Args:
            engine: what it executes.
            profile: index of the profile.
            stream: orders the copies that choosing a profile may need; all later work must come after it.

        Raises:
            ModelLoadFailed: TensorRT has no memory for it, or the profile is taken.
        """
        context = cls(engine, _create_native(engine))
        try:
            context._choose_profile(profile, stream)
        except BaseException:
            context.close()
            raise
        return context

    def bind_shapes(self, inputs: Iterable[Shape]) -> None:
        """Sets the shapes of all inputs, in the order of `Engine.inputs`, and learns those of the outputs.

        Inputs that are read on the host get their fixed values, which shapes follow from.

        Raises:
            ModelLoadFailed: the profile does not allow them.
        """
        native, errors = self._native, self._engine.errors
        for tensor, shape in zip(self._engine.inputs, inputs, strict=True):
            call = f"shape {list(shape)} for input '{tensor.name}'"
            trt_check(native.set_input_shape(tensor.name, shape), call, errors)
        for name, values in self._engine.shape_inputs.items():
            call = f"the values {values.tolist()} for input '{name}'"
            trt_check(native.set_tensor_address(name, values.ctypes.data), call, errors)
        try:
            missing = native.infer_shapes()
        except RuntimeError as error:
            raise ModelLoadFailed(f"TensorRT cannot infer the shapes of the outputs: {errors.take()}") from error
        if missing:
            raise ModelLoadFailed(f"TensorRT lacks the shapes of {sorted(missing)}: {errors.take()}")
        self.outputs = tuple(tuple(native.get_tensor_shape(tensor.name)) for tensor in self._engine.outputs)

    def bind_memory(self, scratch: DeviceBuffer | None, addresses: Mapping[str, int]) -> None:
        """Gives the context its scratch and every tensor its device address, a multiple of 256.

        Args:
            scratch: shared with contexts that never run at the same time alone; None if the profile needs none.
            addresses: by tensor: inputs, and the outputs whose sizes do not depend on the data.

        Raises:
            ModelLoadFailed: TensorRT refuses an address.
        """
        native = self._native
        if scratch is not None and self._engine.flavour.capabilities.sized_scratch:
            native.set_device_memory(scratch.address, scratch.nbytes)
        elif scratch is not None:
            native.device_memory = scratch.address
        for name, address in addresses.items():
            call = f"address {address:#x} for tensor '{name}'"
            trt_check(native.set_tensor_address(name, address), call, self._engine.errors)

    def bind_allocator(self, names: Iterable[str], allocator: Any) -> dict[str, int]:
        """Lets TensorRT ask `allocator`, an `IOutputAllocator`, for the memory of outputs; once in a context's life.

        Returns:
            The most bytes that each of them can need.

        Raises:
            ModelLoadFailed: TensorRT refuses it.
        """
        native = self._native
        most_bytes = {}
        for name in names:
            call = f"an allocator for output '{name}'"
            trt_check(native.set_output_allocator(name, allocator), call, self._engine.errors)
            most_bytes[name] = int(native.get_max_output_size(name))
        return most_bytes

    def show_to(self, inspector: Any) -> None:
        """Lets an engine inspector tell the shapes and layouts of this context."""
        inspector.execution_context = self._native

    def attach_profiler(self, profiler: Any) -> None:
        """Has the times of all layers told to `profiler`, an `IProfiler`; once in a context's life, before a capture.

        They are told when `report_layers` asks for them: by default TensorRT would wait within every enqueue.
        """
        self._native.profiler = profiler
        self._native.enqueue_emits_profile = False

    def report_layers(self) -> bool:
        """Tells the profiler of the latest run, or of the latest replay of a graph captured from here; once it is done.

        The stream of the latest enqueue must still exist. False where TensorRT has nothing to tell.
        """
        return bool(self._native.report_to_profiler())

    def enqueue(self, *, stream: Stream) -> bool:
        """Gives the work to `stream` without waiting for it; False if TensorRT refuses."""
        return bool(self._native.execute_async_v3(stream.handle))

    def close(self) -> None:
        """Drops the native context; idempotent. Its work must be done, and graphs captured from it closed."""
        self._native = None

    def _choose_profile(self, profile: int, stream: Stream) -> None:
        if self._native.active_optimization_profile == profile:
            return
        engine = self._engine
        try:
            is_chosen = self._native.set_optimization_profile_async(profile, stream.handle)
        except RuntimeError:
            is_chosen = False
        if not is_chosen:
            raise ModelLoadFailed(
                f"TensorRT {engine.flavour.version} cannot put another context on profile {profile}: "
                f"{engine.errors.take()}; on 8.6 an engine serves several buckets only if it was built with "
                "PreviewFeature.PROFILE_SHARING_0806"
            )
        stream.sync()


def scratch_bytes(engine: Engine, profile: int) -> int:
    """Device memory that a context on `profile` needs while it runs, beside its tensors; 0 if none."""
    native, capabilities = engine.native, engine.flavour.capabilities
    if capabilities.profile_scratch_v2:
        return int(native.get_device_memory_size_for_profile_v2(profile))
    if capabilities.profile_scratch:
        return int(native.get_device_memory_size_for_profile(profile))
    return int(native.device_memory_size)


def survey(engine: Engine, spec: ModelSpec, *, stream: Stream) -> tuple[BucketShapes, ...]:
    """Finds the profile and all shapes of every known bucket, with contexts that are dropped again.

    Raises:
        ModelLoadFailed: some bucket cannot be run.
    """
    profiles = profile_by_bucket(spec, engine.profiles)
    found: dict[int, list[BucketShapes]] = {}
    for profile in sorted(set(profiles.values())):
        context = Context.create(engine, profile, stream=stream)
        try:
            found[profile] = [
                _bucket_shapes(context, spec, bucket, profile) for bucket in profiles if profiles[bucket] == profile
            ]
        finally:
            context.close()
    by_bucket = {shapes.bucket: shapes for group in found.values() for shapes in group}
    return tuple(by_bucket[bucket] for bucket in profiles)


def shapes_on(engine: Engine, spec: ModelSpec, bucket: Bucket, profile: int, *, stream: Stream) -> BucketShapes:
    """All shapes of a bucket, known or not, on a profile that allows it.

    Raises:
        ModelLoadFailed: the profile does not allow it, or takes no other context.
    """
    context = Context.create(engine, profile, stream=stream)
    try:
        return _bucket_shapes(context, spec, bucket, profile)
    finally:
        context.close()


def _bucket_shapes(context: Context, spec: ModelSpec, bucket: Bucket, profile: int) -> BucketShapes:
    inputs = input_shapes(spec, bucket)
    context.bind_shapes(inputs)
    return BucketShapes(bucket, profile, inputs, context.outputs)


def _create_native(engine: Engine) -> Any:
    native, module = engine.native, engine.flavour.module
    if engine.flavour.capabilities.user_managed_strategy:
        made = native.create_execution_context(module.ExecutionContextAllocationStrategy.USER_MANAGED)
    else:
        made = native.create_execution_context_without_device_memory()
    return trt_check(made, "an execution context", engine.errors)
