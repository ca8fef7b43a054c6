"""What is refused, and said, before TensorRT sees a plugin; what it makes of one is in tests/nets/test_plugin.py."""

from __future__ import annotations

import inspect
import struct
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from engines import plugins
from engines.onnx_facts import OnnxFacts, read_facts
from engines.plugins import register_plugins
from service.errors import ModelLoadFailed
from service.runtime.trt.flavour import Flavour, describe
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_tensorrt import fake_tensorrt
from tests.doubles.onnx_models import make_identity
from tests.doubles.plugin_models import make_residual_layernorm


def flavour() -> Flavour:
    return describe("tensorrt", fake_tensorrt(FakeCuda(), "10"))


@pytest.fixture
def named(tmp_path: Path) -> OnnxFacts:
    return read_facts(make_residual_layernorm(tmp_path / "model.onnx"))


def provide(monkeypatch: pytest.MonkeyPatch, **content: object) -> None:
    """A package `tensorrt` with a `plugin` of this content."""
    package, plugin = ModuleType("tensorrt"), ModuleType("tensorrt.plugin")
    vars(plugin).update(content)
    monkeypatch.setitem(sys.modules, "tensorrt", package)
    monkeypatch.setitem(sys.modules, "tensorrt.plugin", plugin)


def test_a_model_without_our_operators_needs_no_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt.plugin", None)  # an import would fail
    register_plugins(flavour(), read_facts(make_identity(tmp_path / "model.onnx")))


def test_an_operator_that_we_do_not_have(tmp_path: Path) -> None:
    facts = read_facts(make_residual_layernorm(tmp_path / "model.onnx", operator="rms_norm"))
    with pytest.raises(
        ModelLoadFailed, match=r"\['rms_norm'\] of the domain 'inferlane', which has residual_layernorm"
    ):
        register_plugins(flavour(), facts)


def test_a_tensorrt_without_plugins_in_python(named: OnnxFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", ModuleType("tensorrt"))
    monkeypatch.delitem(sys.modules, "tensorrt.plugin", raising=False)
    with pytest.raises(ModelLoadFailed, match=r"tensorrt\.plugin does not import .*10\.9 or later, or write the node"):
        register_plugins(flavour(), named)


def test_one_whose_plugins_run_python(named: OnnxFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    """10.6 to 10.8: their plugins would take the interpreter's lock inside every enqueue."""
    provide(monkeypatch, register=lambda name: None, impl=lambda name: None)
    with pytest.raises(ModelLoadFailed, match=r"its tensorrt\.plugin has no aot_impl"):
        register_plugins(flavour(), named)


def test_a_plugin_that_is_registered_is_not_registered_again(named: OnnxFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    namespace, operators = ModuleType("inferlane"), ModuleType("op")
    vars(namespace)["residual_layernorm"] = vars(operators)["inferlane"] = namespace
    provide(monkeypatch, aot_impl=lambda name: None, op=operators)
    monkeypatch.setattr(plugins, "compile_ptx", lambda source: pytest.fail("nothing is to be compiled"))
    register_plugins(flavour(), named)


class FakePlugin:
    """What of `tensorrt.plugin` a registration touches; the real one is in tests/nets/test_plugin.py."""

    class TensorDesc:
        def __init__(self, dtype: object, *shape: Dim) -> None:
            self.dtype, self.shape_expr = dtype, shape

        def like(self) -> FakePlugin.TensorDesc:
            return self

    KernelLaunchParams = SimpleNamespace

    class SymIntExprs(list[int]):
        def __init__(self, length: int) -> None:
            super().__init__([0] * length)

    def __init__(self) -> None:
        self.functions: dict[str, Callable[..., Any]] = {}
        self.op = ModuleType("op")
        self.SymInt32 = int

    def register(self, plugin_id: str) -> Callable[..., None]:
        return lambda function: self.functions.update({f"register {plugin_id}": function})

    def aot_impl(self, plugin_id: str) -> Callable[..., None]:
        return lambda function: self.functions.update({f"aot_impl {plugin_id}": function})


class Dim(int):
    """A dimension that is fixed if it is positive."""

    @property
    def is_constant(self) -> bool:
        return self > 0

    def constant_value(self) -> int:
        return int(self)


@pytest.fixture
def registered(named: OnnxFacts, monkeypatch: pytest.MonkeyPatch) -> FakePlugin:
    fake = FakePlugin()
    names = ("op", "register", "aot_impl", "TensorDesc", "KernelLaunchParams", "SymIntExprs", "SymInt32")
    provide(monkeypatch, **{name: getattr(fake, name) for name in names})
    monkeypatch.setattr(plugins, "compile_ptx", lambda source: f"PTX of {source}".encode())
    register_plugins(flavour(), named)
    return fake


PLUGIN_ID = "inferlane::residual_layernorm"


def tensors(fake: FakePlugin, dtype: object, *shape: int) -> list[FakePlugin.TensorDesc]:
    return [fake.TensorDesc(dtype, *map(Dim, shape)) for _ in range(4)]


def test_signatures_name_tensors_and_epsilon_as_tensorrt_reads_them(registered: FakePlugin) -> None:
    described, implemented = (inspect.signature(function) for function in registered.functions.values())
    assert list(described.parameters) == ["x", "residual", "gamma", "beta", "epsilon"]
    assert list(implemented.parameters) == [*described.parameters, "outputs", "tactic"]
    assert described.parameters["x"].annotation is described.return_annotation is registered.TensorDesc
    assert typing.get_args(implemented.return_annotation)[:2] == (str, bytes)


@pytest.mark.parametrize(("dtype", "entry"), [("HALF", "layernorm_fp16"), ("FLOAT", "layernorm_fp32")])
def test_the_launch_is_a_block_per_row(registered: FakePlugin, dtype: str, entry: str) -> None:
    inputs = tensors(registered, getattr(flavour().module.DataType, dtype), 2, 3, 64)
    epsilon = struct.pack("<f", 1.0)
    assert registered.functions[f"register {PLUGIN_ID}"](*inputs, epsilon=epsilon) is inputs[0]
    name, code, launch, arguments = registered.functions[f"aot_impl {PLUGIN_ID}"](*inputs, epsilon, (inputs[0],), 0)
    assert (name, code) == (entry, b"PTX of layernorm")
    assert (launch.grid_x, launch.block_x) == (6, 256)
    assert arguments == [64, 0x3F800000]


@pytest.mark.parametrize(
    ("dtypes", "shape", "words"),
    [
        (["HALF", "FLOAT", "HALF", "HALF"], (2, 64), "its four inputs are FP16"),
        (["INT32"] * 4, (2, 64), "its four inputs are FP16"),
        (["FLOAT"] * 4, (64,), "one row without a batch"),
        (["FLOAT"] * 4, (2, 66), "a multiple of 4"),
        (["HALF"] * 4, (2, 68), "a multiple of 8"),
        (["FLOAT"] * 4, (2, -1), "any number of elements"),
        (["FLOAT"] * 4, (2, 8196), "at most 8192"),
    ],
)
def test_what_the_kernel_cannot_do(
    registered: FakePlugin, dtypes: list[str], shape: tuple[int, ...], words: str
) -> None:
    types = [getattr(flavour().module.DataType, name) for name in dtypes]
    inputs = [registered.TensorDesc(dtype, *map(Dim, shape)) for dtype in types]
    epsilon = struct.pack("<f", 1e-5)
    with pytest.raises(ModelLoadFailed, match=words):
        _run_both(registered, inputs, epsilon)


def test_an_epsilon_that_is_no_float(registered: FakePlugin) -> None:
    inputs = tensors(registered, flavour().module.DataType.FLOAT, 2, 64)
    with pytest.raises(ModelLoadFailed, match="an epsilon of 8 bytes; the attribute is one float"):
        _run_both(registered, inputs, b"12345678")


def _run_both(fake: FakePlugin, inputs: list[FakePlugin.TensorDesc], epsilon: object) -> None:
    fake.functions[f"register {PLUGIN_ID}"](*inputs, epsilon=epsilon)
    fake.functions[f"aot_impl {PLUGIN_ID}"](*inputs, epsilon, (inputs[0],), 0)
