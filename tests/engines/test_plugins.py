"""What is refused, and said, before TensorRT sees a plugin; what it makes of one is in tests/nets/test_plugin.py."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

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
