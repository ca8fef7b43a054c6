"""ONNX Runtime sessions: how they are opened, and what a model's tensors are to the server.

ONNX Runtime is imported when a session is opened: what only looks at cards or types does without it.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from service.errors import ModelLoadFailed
from service.tensors import Dim, DType, HostArray, TensorSpec

if TYPE_CHECKING:
    from types import ModuleType

    from onnxruntime import InferenceSession, NodeArg, SessionOptions

_DTYPES: dict[str, DType] = {
    "tensor(bool)": DType.BOOL,
    "tensor(uint8)": DType.UINT8,
    "tensor(uint16)": DType.UINT16,
    "tensor(uint32)": DType.UINT32,
    "tensor(uint64)": DType.UINT64,
    "tensor(int8)": DType.INT8,
    "tensor(int16)": DType.INT16,
    "tensor(int32)": DType.INT32,
    "tensor(int64)": DType.INT64,
    "tensor(float16)": DType.FP16,
    "tensor(bfloat16)": DType.BF16,
    "tensor(float)": DType.FP32,
    "tensor(double)": DType.FP64,
    "tensor(string)": DType.BYTES,
}

_BFLOAT16_ELEMENT_TYPE = 16
_LOG_FATAL = 4
_PROVIDERS = ["CPUExecutionProvider"]
_SOURCE_PATH = re.compile(r"/\S+\.(?:h|hpp|cc|cpp)(?::\d+)?\s*")


def open_session(
    model_path: Path, *, threads: int, is_optimized: bool = True, profile_prefix: str | None = None
) -> InferenceSession:
    """Loads a model on the CPU; the session may then be used by the calling thread alone.

    Args:
        model_path: the ONNX file.
        threads: intra-op threads, the calling thread among them.
        is_optimized: False where only the model's tensors are of interest, which is quicker.
        profile_prefix: path, without its end, of the file that the session's profiler writes; None for no profiler.

    Raises:
        ModelLoadFailed: ONNX Runtime is not installed, or refuses the model.
    """
    ort = _onnxruntime(model_path.name)
    options = _options(ort, threads)
    if profile_prefix is not None:
        options.enable_profiling = True
        options.profile_file_prefix = profile_prefix
    if not is_optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return ort.InferenceSession(str(model_path), options, providers=_PROVIDERS)
    except Exception as error:
        raise ModelLoadFailed(
            f"ONNX Runtime {ort.__version__} cannot load the model: {without_paths(str(error), model_path)}; "
            "check that the file is complete and its operators are supported (`onnxruntime_test`, or export it again)"
        ) from error


def open_model_bytes(model: bytes, *, threads: int) -> InferenceSession:
    """Loads a model of our own making, as `open_session` does others'.

    Raises:
        ModelLoadFailed: ONNX Runtime is not installed.
    """
    ort = _onnxruntime("measuring the CPU's peaks")
    return ort.InferenceSession(model, _options(ort, threads), providers=_PROVIDERS)


def input_tensors(session: InferenceSession) -> tuple[TensorSpec, ...]:
    """The model's inputs in its own order; every dynamic dimension has a name.

    Raises:
        ModelLoadFailed: an input's type is none of the protocol's.
    """
    return _tensors("input", session.get_inputs())


def output_tensors(session: InferenceSession) -> tuple[TensorSpec, ...]:
    """The model's outputs; as `input_tensors`."""
    return _tensors("output", session.get_outputs())


def element_type(dtype: DType) -> object:
    """What I/O binding takes for a type: NumPy's, or ONNX's number where NumPy has none."""
    return _BFLOAT16_ELEMENT_TYPE if dtype is DType.BF16 else dtype.numpy.type


def refuses(session: InferenceSession, inputs: Sequence[TensorSpec], host_inputs: Sequence[HostArray]) -> bool:
    """Whether a run on these inputs ends with "invalid argument": not the machine's fault but the values'.

    A BF16 input cannot be given unbound, so there the answer is no.
    """
    from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument  # noqa: PLC0415

    if any(tensor.dtype is DType.BF16 for tensor in inputs):
        return False
    try:
        session.run(None, {tensor.name: host for tensor, host in zip(inputs, host_inputs, strict=True)})
    except InvalidArgument:
        return True
    except Exception:
        return False
    return False


def without_paths(message: str, model_path: Path) -> str:
    """ONNX Runtime's message without the server's folders and the library's source files."""
    for folder in {str(model_path.parent), str(model_path.resolve().parent)}:
        message = message.replace(f"{folder}/", "")
    return _SOURCE_PATH.sub("", message)


def _onnxruntime(purpose: str) -> ModuleType:
    try:
        return importlib.import_module("onnxruntime")
    except ImportError as error:
        raise ModelLoadFailed(
            f"{purpose} needs ONNX Runtime, which cannot be imported ({error}); pip install -e '.[cpu]'"
        ) from error


def _options(ort: ModuleType, threads: int) -> SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    # A run that fails raises; logged too, every bad index of any client would be lines on standard error.
    options.log_severity_level = _LOG_FATAL
    # The lane shares its cores with the event loop: a pool that spins wins where nobody else wants the
    # cores and loses far more where somebody does, in throughput as in the loop's wake-ups.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _tensors(role: str, arguments: Iterable[NodeArg]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(argument.name, _dtype(role, argument), _dims(argument.name, argument.shape))
        for argument in arguments
    )


def _dtype(role: str, argument: NodeArg) -> DType:
    dtype = _DTYPES.get(argument.type)
    if dtype is None:
        raise ModelLoadFailed(
            f"{role} '{argument.name}' has type {argument.type}, supported are {', '.join(sorted(_DTYPES))}; "
            "cast it inside the model"
        )
    return dtype


def _dims(name: str, shape: list[int | str | None]) -> tuple[Dim, ...]:
    return tuple(f"{name}_{axis}" if extent in {None, "", "?"} else extent for axis, extent in enumerate(shape))
