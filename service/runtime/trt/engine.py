"""An engine: deserialised once, never changed, shared by all lanes of its model."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from service.cards import ShapeRange
from service.errors import ModelLoadFailed, ServiceError
from service.runtime.trt.flavour import Flavour
from service.runtime.trt.profiles import Profile
from service.runtime.trt.shape_inputs import fixed_values
from service.tensors import Dim, DType, HostArray, TensorSpec

T = TypeVar("T")

MAX_KEPT_ERRORS = 16

_DTYPES = {
    "BOOL": DType.BOOL,
    "UINT8": DType.UINT8,
    "INT8": DType.INT8,
    "INT32": DType.INT32,
    "INT64": DType.INT64,
    "HALF": DType.FP16,
    "BF16": DType.BF16,
    "FLOAT": DType.FP32,
}
_LINEAR = "row major linear"


class ErrorLog:
    """What TensorRT has complained of since it was last asked. Thread-safe: TensorRT calls from threads of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: deque[tuple[Any, str]] = deque(maxlen=MAX_KEPT_ERRORS)

    def add(self, code: Any, description: str) -> None:
        """Keeps one complaint; the oldest goes when there are too many."""
        with self._lock:
            self._entries.append((code, description.strip()))

    def entries(self) -> tuple[tuple[Any, str], ...]:
        """Every complaint as TensorRT's error code and its words, the oldest first."""
        with self._lock:
            return tuple(self._entries)

    def clear(self) -> None:
        """Forgets all complaints."""
        with self._lock:
            self._entries.clear()

    def take(self) -> str:
        """All complaints in one line, forgotten from then on."""
        entries = self.entries()
        self.clear()
        return "; ".join(dict.fromkeys(description for _, description in entries)) or "it gave no reason"


def trt_check(value: T | None, call: str, errors: ErrorLog, raised: type[ServiceError] = ModelLoadFailed) -> T:
    """Gives what a TensorRT call returned, unless that is None or False: its two ways to say no.

    Args:
        value: what it returned.
        call: the call, with the arguments that help to understand a failure.
        errors: where TensorRT's own words are.
        raised: the class of the error.

    Raises:
        ServiceError: `raised`, with TensorRT's own words.
    """
    if value is None or value is False:
        raise raised(f"TensorRT refused {call}: {errors.take()}")
    return value


class Engine:
    """A deserialised plan and what was needed to make it; they are dropped in the order that TensorRT demands.

    Attributes:
        flavour: the TensorRT that runs it.
        native: the engine itself; None after `close`.
        errors: TensorRT's complaints about everything made from it.
        inputs: in the engine's order; every dynamic dimension has a name. Without `shape_inputs`.
        shape_inputs: inputs that TensorRT reads on the host, with the values that the profiles fix for them.
        outputs: likewise.
        profiles: the shapes that it allows, at least one profile.
    """

    def __init__(self, flavour: Flavour) -> None:
        self.flavour = flavour
        self.errors = ErrorLog()
        self.native: Any = None
        self.inputs: tuple[TensorSpec, ...] = ()
        self.shape_inputs: Mapping[str, HostArray] = {}
        self.outputs: tuple[TensorSpec, ...] = ()
        self.profiles: tuple[Profile, ...] = ()
        self._recorder: Any = None
        self._logger: Any = None
        self._runtime: Any = None

    @classmethod
    def deserialise(
        cls, flavour: Flavour, plan: bytes, name: str, *, dims: dict[str, tuple[Dim, ...]], host_code_allowed: bool
    ) -> Engine:
        """Makes the engine on the calling thread's device.

        Args:
            flavour: the TensorRT to run it.
            plan: the plan's bytes, checked by `check_plan`.
            name: the file's name, for messages.
            dims: names for dynamic dimensions by tensor; where there are none, `<tensor>_<axis>` is used.
            host_code_allowed: whether the plan may bring its own lean runtime, which is code for the CPU.

        Raises:
            ModelLoadFailed: TensorRT cannot run the plan, or a tensor cannot be served.
        """
        engine = cls(flavour)
        try:
            engine._load(plan, name, host_code_allowed=host_code_allowed)
            engine._read(dims)
        except BaseException:
            engine.close()
            raise
        return engine

    def close(self) -> None:
        """Drops engine, runtime and logger, in this order; idempotent. No context of it may be left."""
        self.native = None
        self._runtime = None
        self._logger = None
        self._recorder = None

    def _load(self, plan: bytes, name: str, *, host_code_allowed: bool) -> None:
        module = self.flavour.module
        self._recorder = _native_recorder(module.IErrorRecorder, self.errors)
        self._logger = module.Logger(module.Logger.WARNING)
        try:
            self._runtime = module.Runtime(self._logger)
        except TypeError as error:
            raise ModelLoadFailed(
                f"{self.flavour.name} {self.flavour.version} is installed but does not start: no driver or GPU, or "
                "libraries that do not fit together; `inferlane doctor` looks closer"
            ) from error
        self._runtime.error_recorder = self._recorder
        if host_code_allowed:
            self._runtime.engine_host_code_allowed = True
        self.native = self._runtime.deserialize_cuda_engine(plan)
        if self.native is None:
            raise ModelLoadFailed(
                f"{self.flavour.name} {self.flavour.version} cannot load {name}: {self.errors.take()}; build it again "
                "on this machine, with the plugins that it needs"
            )

    def _read(self, dims: dict[str, tuple[Dim, ...]]) -> None:
        names = [self.native.get_tensor_name(index) for index in range(self.native.num_io_tensors)]
        mode = self.flavour.module.TensorIOMode
        specs = {name: self._tensor(name, dims.get(name)) for name in names}
        inputs = [name for name in names if self.native.get_tensor_mode(name) == mode.INPUT]
        on_host = [name for name in names if self.native.get_tensor_location(name) != self._device_location]
        self._refuse_shapes([name for name in names if name not in on_host or name not in inputs])
        self.shape_inputs = {name: fixed_values(self.flavour, self.native, specs[name]) for name in on_host}
        self.inputs = tuple(specs[name] for name in inputs if name not in on_host)
        self.outputs = tuple(specs[name] for name in names if name not in inputs)
        self.profiles = tuple(self._profile(index) for index in range(self.native.num_optimization_profiles))

    def _tensor(self, name: str, dims: tuple[Dim, ...] | None) -> TensorSpec:
        native = self.native
        # Without a profile's number: with it, TensorRT 8.6.0 under the 8.6.1 bindings crashes (seen on an H200).
        layout = str(native.get_tensor_format_desc(name))
        if layout and not layout.lower().replace("-", " ").startswith(_LINEAR):
            raise ModelLoadFailed(
                f"tensor '{name}' has the layout '{layout}', only row major linear ones can be served; build the "
                "engine without --inputIOFormats and --outputIOFormats"
            )
        dtype = _DTYPES.get(native.get_tensor_dtype(name).name)
        if dtype is None:
            raise ModelLoadFailed(
                f"tensor '{name}' has type {native.get_tensor_dtype(name).name}, served are "
                f"{', '.join(sorted(_DTYPES))}; cast it inside the model"
            )
        return TensorSpec(name, dtype, _named(name, tuple(native.get_tensor_shape(name)), dims))

    def _refuse_shapes(self, names: Iterable[str]) -> None:
        for name in names:
            if self.native.is_shape_inference_io(name):
                raise ModelLoadFailed(
                    f"tensor '{name}' holds a shape, which this server runs only as an input that TensorRT reads on "
                    "the host: an output would tell the padded shape instead of the request's; export the model "
                    "without it, or serve the ONNX model on the CPU"
                )

    @property
    def _device_location(self) -> Any:
        return self.flavour.module.TensorLocation.DEVICE

    def _profile(self, index: int) -> Profile:
        return {tensor.name: self._range(tensor, index) for tensor in self.inputs}

    def _range(self, tensor: TensorSpec, index: int) -> ShapeRange:
        if -1 not in tensor.wire_shape:
            # Of an input without dynamic dimensions TensorRT 8.6 does not say any.
            return ShapeRange(*(tuple(tensor.wire_shape),) * 3)
        low, best, high = self.native.get_tensor_profile_shape(tensor.name, index)
        return ShapeRange(tuple(low), tuple(best), tuple(high))


def _named(name: str, extents: tuple[int, ...], dims: tuple[Dim, ...] | None) -> tuple[Dim, ...]:
    """The extents, with a name for each -1: the given one where it fits, which a manifest of another model may not."""
    if dims is None or len(dims) != len(extents):
        dims = extents
    return tuple(
        extent if extent >= 0 else dim if isinstance(dim, str) else f"{name}_{axis}"
        for axis, (extent, dim) in enumerate(zip(extents, dims, strict=True))
    )


def _native_recorder(base: Any, errors: ErrorLog) -> Any:
    """What TensorRT writes its complaints to. The class is made here: its base is known once TensorRT is imported."""

    class Recorder(base):  # type: ignore[misc]
        """As TensorRT's interface asks."""

        def __init__(self) -> None:
            base.__init__(self)

        def report_error(self, code: Any, description: str) -> bool:
            errors.add(code, description)
            return False

        def num_errors(self) -> int:
            return len(errors.entries())

        def get_error_code(self, index: int) -> Any:
            return errors.entries()[index][0]

        def get_error_desc(self, index: int) -> str:
            return errors.entries()[index][1]

        def has_overflowed(self) -> bool:
            return len(errors.entries()) == MAX_KEPT_ERRORS

        def clear(self) -> None:
            errors.clear()

    return Recorder()
