"""Where the CUDA binding is imported, and the one check that all its return values go through.

A failure becomes a `DeviceError` that reads `NAME: explanation, in CALL`, and knows whether the process can go on.
"""

from __future__ import annotations

from typing import TypeVar, cast, overload

from service.errors import DeviceError, ModelLoadFailed
from service.runtime.cuda.api import Code, RuntimeApi

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")

STICKY = frozenset(
    {
        "cudaErrorAssert",
        "cudaErrorContained",
        "cudaErrorContextIsDestroyed",
        "cudaErrorECCUncorrectable",
        "cudaErrorExternalDevice",
        "cudaErrorHardwareStackError",
        "cudaErrorIllegalAddress",
        "cudaErrorIllegalInstruction",
        "cudaErrorInvalidAddressSpace",
        "cudaErrorInvalidPc",
        "cudaErrorLaunchFailure",
        "cudaErrorLaunchTimeout",
        "cudaErrorMisalignedAddress",
        "cudaErrorMpsClientTerminated",
        "cudaErrorNvlinkUncorrectable",
        "cudaErrorTensorMemoryLeak",
        "cudaErrorUnknown",
    }
)
"""Errors after which the process's device context is lost, or cannot be trusted with anybody's results."""


def runtime_api() -> RuntimeApi:
    """The real binding, imported at the first call, so that a machine without it can import this package.

    Raises:
        ModelLoadFailed: it is not installed, or does not load.
    """
    try:
        from cuda.bindings import runtime  # noqa: PLC0415 - only servers with a GPU have it
    except ImportError as error:
        raise ModelLoadFailed(
            f"CUDA cannot be used: the Python package cuda-bindings does not load ({error}); "
            "pip install -e '.[gpu]', or serve the model with backend = 'onnxruntime'"
        ) from error
    return cast("RuntimeApi", runtime)


@overload
def check(api: RuntimeApi, call: str, result: tuple[Code]) -> None: ...
@overload
def check(api: RuntimeApi, call: str, result: tuple[Code, T]) -> T: ...
@overload
def check(api: RuntimeApi, call: str, result: tuple[Code, T, U]) -> tuple[T, U]: ...
@overload
def check(api: RuntimeApi, call: str, result: tuple[Code, T, U, V]) -> tuple[T, U, V]: ...
def check(api: RuntimeApi, call: str, result: tuple[object, ...]) -> object:
    """Gives what a CUDA call returned beside its error code: nothing, one value, or a tuple of them.

    Args:
        api: the binding that was called; it knows the errors' names and explanations.
        call: the function's name, and its arguments where they help to understand a failure.
        result: what it returned.

    Raises:
        DeviceError: the code is an error. The thread's "last error" is cleared then, so that nobody else, such as
            TensorRT, finds it and takes it for its own.
    """
    if result[0]:
        raise device_error(api, call, cast("Code", result[0]))
    if len(result) == 1:
        return None
    return result[1] if len(result) == 2 else result[1:]


def device_error(api: RuntimeApi, call: str, code: Code) -> DeviceError:
    """The error that a failed call is reported as; clears the thread's "last error"."""
    api.cudaGetLastError()
    name = api.cudaGetErrorName(code)[1].decode()
    explanation = api.cudaGetErrorString(code)[1].decode()
    return DeviceError(f"{name}: {explanation}, in {call}", is_sticky=name in STICKY)
