"""The CUDA double against the binding, where it is installed: names, parameters and values. That needs no GPU."""

from __future__ import annotations

import inspect
from enum import IntEnum

import pytest

from service.runtime.cuda.api import RuntimeApi
from service.runtime.cuda.check import STICKY
from tests.doubles.fake_cuda import FakeCuda


@pytest.fixture(scope="module")
def binding():
    return pytest.importorskip("cuda.bindings.runtime", reason="cuda-bindings is not installed")


def members(owner: type) -> list[str]:
    return [name for name in dir(owner) if name.startswith("cuda")]


def of_cuda_13(binding, name: str):
    """12.x has those functions on graphs that know of edge data under a name of their own."""
    return getattr(binding, f"{name}_v2" if name.startswith("cudaGraph") else name, getattr(binding, name))


@pytest.mark.parametrize("name", [name for name in members(FakeCuda) if inspect.isfunction(getattr(FakeCuda, name))])
def test_double_takes_what_the_binding_takes(binding, name: str) -> None:
    mine = inspect.signature(getattr(FakeCuda, name)).parameters
    theirs = inspect.signature(of_cuda_13(binding, name)).parameters
    assert [*mine][1:] == [*theirs]


@pytest.mark.parametrize("name", [name for name in members(FakeCuda) if isinstance(getattr(FakeCuda, name), type)])
def test_double_has_the_values_of_the_binding(binding, name: str) -> None:
    mine, theirs = getattr(FakeCuda, name), getattr(binding, name)
    if issubclass(mine, IntEnum):
        assert {member.name: int(member) for member in mine} == {
            member.name: int(getattr(theirs, member.name)) for member in mine
        }
    else:
        assert all(hasattr(theirs(), field) for field in vars(mine()))


@pytest.mark.parametrize("name", [name for name in members(FakeCuda) if isinstance(getattr(FakeCuda, name), int)])
def test_double_has_the_flags_of_the_binding(binding, name: str) -> None:
    assert getattr(FakeCuda, name) == getattr(binding, name)


@pytest.mark.parametrize("name", RuntimeApi.__annotations__)
def test_binding_and_double_have_what_the_service_calls(binding, name: str) -> None:
    assert hasattr(binding, name)
    assert hasattr(FakeCuda, name)


def test_sticky_errors_are_errors_of_the_binding(binding) -> None:
    since_12_8 = {"cudaErrorContained", "cudaErrorTensorMemoryLeak"}
    assert set(STICKY) - since_12_8 <= {error.name for error in binding.cudaError_t}
