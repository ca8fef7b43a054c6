from __future__ import annotations

import sys

import pytest

from service.errors import DeviceError, ModelLoadFailed
from service.runtime.cuda.check import STICKY, check, runtime_api
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_cuda_types import cudaError_t as E


@pytest.mark.parametrize(
    ("values", "given"), [((), None), ((5,), 5), ((0,), 0), ((None,), None), (((),), ()), ((1, "two"), (1, "two"))]
)
def test_success_gives_the_values(fake: FakeCuda, values: tuple[object, ...], given: object) -> None:
    assert check(fake, "cudaAnything", (E.cudaSuccess, *values)) == given


@pytest.mark.parametrize("code", [code for code in E if code], ids=lambda code: code.name)
@pytest.mark.parametrize("values", [(), (None,), (None, None)], ids=len)
def test_failure_names_error_and_call(fake: FakeCuda, code: E, values: tuple[None, ...]) -> None:
    with pytest.raises(DeviceError) as raised:
        check(fake, "cudaAnything(3)", (code, *values))
    explanation = fake.cudaGetErrorString(code)[1].decode()
    assert raised.value.message == str(raised.value) == f"{code.name}: {explanation}, in cudaAnything(3)"
    assert raised.value.is_sticky == (code.name in STICKY)
    assert raised.value.status == 500
    assert raised.value.reason == "device"


@pytest.mark.parametrize(
    ("code", "is_sticky"),
    [
        (E.cudaErrorIllegalAddress, True),
        (E.cudaErrorLaunchFailure, True),
        (E.cudaErrorUnknown, True),
        (E.cudaErrorMemoryAllocation, False),
        (E.cudaErrorInvalidValue, False),
        (E.cudaErrorStreamCaptureInvalidated, False),
        (E.cudaErrorNotReady, False),
    ],
)
def test_which_errors_end_the_process(fake: FakeCuda, code: E, is_sticky: bool) -> None:
    with pytest.raises(DeviceError) as raised:
        check(fake, "cudaAnything", (code,))
    assert raised.value.is_sticky is is_sticky


def test_failure_is_not_left_for_the_next_library(fake: FakeCuda) -> None:
    result = fake.cudaFree(12345)
    assert fake.cudaPeekAtLastError() == (E.cudaErrorInvalidValue,)
    with pytest.raises(DeviceError, match="invalid argument, in cudaFree"):
        check(fake, "cudaFree", result)
    assert fake.cudaPeekAtLastError() == (E.cudaSuccess,)


def test_binding_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(ModelLoadFailed, match=r"cuda-bindings does not load .*-e '\.\[gpu\]'.*onnxruntime"):
        runtime_api()


def test_binding_is_there() -> None:
    pytest.importorskip("cuda.bindings.runtime", reason="cuda-bindings is not installed")
    assert callable(runtime_api().cudaStreamSynchronize)
