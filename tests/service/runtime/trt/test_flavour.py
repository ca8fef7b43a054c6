"""Which TensorRT is taken, what it can do, and what is said where there is none."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from service.errors import ModelLoadFailed
from service.runtime.trt.flavour import FLAVOURS, Capabilities, describe, find_flavour
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_tensorrt import fake_tensorrt


def importer(**installed: Any) -> Callable[[str], Any]:
    def import_module(name: str) -> Any:
        found = installed.get(name, ModuleNotFoundError(f"No module named '{name}'", name=name))
        if isinstance(found, Exception):
            raise found
        return found

    return import_module


@pytest.mark.parametrize("name", FLAVOURS)
def test_whatever_is_installed_is_found(name: str) -> None:
    flavour = find_flavour(importer(**{name: fake_tensorrt(FakeCuda())}))
    assert flavour.name == name
    assert flavour.version == "10.13.3.9"
    assert flavour.version_numbers == (10, 13, 3, 9)


def test_the_most_capable_is_preferred_and_a_broken_one_passed_over() -> None:
    module = fake_tensorrt(FakeCuda())
    assert find_flavour(importer(tensorrt_lean=module, tensorrt=module)).name == "tensorrt"
    broken = ImportError("libnvinfer.so.10: cannot open shared object file")
    assert find_flavour(importer(tensorrt_lean=module, tensorrt=broken)).name == "tensorrt_lean"


@pytest.mark.parametrize(
    ("installed", "said"),
    [
        ({}, "none of tensorrt, tensorrt_lean, tensorrt_dispatch, tensorrt_rtx is installed"),
        (
            {"tensorrt": ImportError("libnvinfer.so.10 is missing")},
            "tensorrt does not load.*libnvinfer.so.10 is missing",
        ),
        (
            {"tensorrt_rtx": ModuleNotFoundError("no libs", name="tensorrt_rtx_libs")},
            "tensorrt_rtx lacks tensorrt_rtx_libs",
        ),
    ],
)
def test_none_usable_says_why(installed: dict[str, Exception], said: str) -> None:
    with pytest.raises(ModelLoadFailed, match=f"(?s){said}.*pip install.*inferlane doctor"):
        find_flavour(importer(**installed))


@pytest.mark.parametrize(
    ("generation", "capabilities"),
    [
        ("8.6", Capabilities(False, False, False, False, False, True, True)),
        ("10.0", Capabilities(True, False, True, True, False, True, True)),
        ("10", Capabilities(True, True, True, True, True, True, True)),
        ("11", Capabilities(True, True, False, True, True, True, True)),
        ("11-lean", Capabilities(True, True, False, True, True, False, False)),
    ],
)
def test_capabilities(generation: str, capabilities: Capabilities) -> None:
    assert describe("tensorrt", fake_tensorrt(FakeCuda(), generation)).capabilities == capabilities


@pytest.mark.parametrize(("text", "numbers"), [("10.13.3.9", (10, 13, 3, 9)), ("8.6.1.post1", (8, 6, 1)), ("dev", ())])
def test_version_numbers(text: str, numbers: tuple[int, ...]) -> None:
    module = SimpleNamespace(__version__=text, ICudaEngine=object, IExecutionContext=object)
    assert describe("tensorrt", module).version_numbers == numbers
