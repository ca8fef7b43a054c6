from __future__ import annotations

import pytest

from engines.onnx_facts import OnnxFacts
from engines.precision import Precision, Typing, choose_precision, typing_of
from service.errors import ModelLoadFailed
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_tensorrt import fake_tensorrt

V8 = Typing(is_strong_offered=False, flags=frozenset({"fp16", "int8", "fp8"}), name="tensorrt 8.6.1")
V10 = Typing(is_strong_offered=True, flags=frozenset({"fp16", "bf16", "int8", "fp8"}), name="tensorrt 10.13.3")
V11 = Typing(is_strong_offered=True, flags=frozenset(), name="tensorrt 11.4.0")


def facts(*precisions: str, opset: int = 17) -> OnnxFacts:
    return OnnxFacts(
        inputs=(), outputs=(), nodes=(), precisions=frozenset(precisions), opset=opset, nbytes=1, sha256="0"
    )


@pytest.mark.parametrize(
    ("mode", "carried", "typing", "expected"),
    [
        ("as-is", (), V8, Precision("as-is", is_strongly_typed=False)),
        ("as-is", (), V10, Precision("as-is", is_strongly_typed=True)),
        ("as-is", (), V11, Precision("as-is", is_strongly_typed=True)),
        ("as-is", ("fp16",), V8, Precision("as-is", is_strongly_typed=False, flags=("FP16",))),
        ("as-is", ("fp16", "int8"), V8, Precision("as-is", is_strongly_typed=False, flags=("FP16", "INT8"))),
        ("as-is", ("bf16",), V10, Precision("as-is", is_strongly_typed=True)),
        ("fp16", (), V8, Precision("fp16", is_strongly_typed=False, flags=("FP16",))),
        ("fp16", (), V10, Precision("fp16", is_strongly_typed=False, flags=("FP16",))),
        ("fp16", ("int8",), V10, Precision("fp16", is_strongly_typed=False, flags=("FP16", "INT8"))),
        ("fp16", ("fp16",), V8, Precision("fp16", is_strongly_typed=False, flags=("FP16",))),
        ("fp16", ("fp16",), V10, Precision("fp16", is_strongly_typed=True)),
        ("fp16", ("fp16",), V11, Precision("fp16", is_strongly_typed=True)),
        ("bf16", (), V10, Precision("bf16", is_strongly_typed=False, flags=("BF16",))),
        ("bf16", ("bf16",), V11, Precision("bf16", is_strongly_typed=True)),
        ("int8", ("int8",), V8, Precision("int8", is_strongly_typed=False, flags=("INT8",))),
        ("int8", ("int8",), V11, Precision("int8", is_strongly_typed=True)),
        ("fp8", ("fp8", "fp16"), V8, Precision("fp8", is_strongly_typed=False, flags=("FP16", "FP8"))),
        ("fp8", ("fp8",), V10, Precision("fp8", is_strongly_typed=True)),
    ],
)
def test_strong_where_carried_else_weak(
    mode: str, carried: tuple[str, ...], typing: Typing, expected: Precision
) -> None:
    assert choose_precision(mode, facts(*carried), typing, is_weak_typing_allowed=True) == expected


@pytest.mark.parametrize(
    ("mode", "carried", "typing", "words"),
    [
        ("fp16", (), V11, ["modelopt.onnx.autocast", "--low_precision_type fp16", "tensorrt 11.4.0 computes in"]),
        ("bf16", (), V11, ["--low_precision_type bf16", "--opset 22"]),
        ("bf16", (), V8, ["--low_precision_type bf16", "nothing below FP32"]),
        ("int8", (), V8, ["modelopt.onnx.quantization", "--quantize_mode int8", "--calibration_data_path"]),
        ("int8", ("fp16",), V10, ["QuantizeLinear", "this one has fp16"]),
        ("fp8", ("int8",), V11, ["--quantize_mode fp8", "this one has int8"]),
        ("as-is", ("bf16",), V8, ["computes in bf16, which tensorrt 8.6.1 cannot"]),
    ],
)
def test_what_nobody_can_do_is_refused_with_the_command_that_helps(
    mode: str, carried: tuple[str, ...], typing: Typing, words: list[str]
) -> None:
    with pytest.raises(ModelLoadFailed) as caught:
        choose_precision(mode, facts(*carried), typing, is_weak_typing_allowed=True)
    assert [each for each in words if each not in caught.value.message] == []


def test_a_model_of_opset_22_needs_no_conversion_to_it() -> None:
    with pytest.raises(ModelLoadFailed) as caught:
        choose_precision("bf16", facts(opset=22), V11, is_weak_typing_allowed=True)
    assert "--opset" not in caught.value.message


@pytest.mark.parametrize("typing", [V8, V10])
def test_weak_typing_that_is_switched_off_is_not_used_to_lower_precision(typing: Typing) -> None:
    with pytest.raises(ModelLoadFailed, match="weak typing is switched off"):
        choose_precision("fp16", facts(), typing, is_weak_typing_allowed=False)
    assert choose_precision("fp16", facts("fp16"), typing, is_weak_typing_allowed=False).mode == "fp16"


@pytest.mark.parametrize(
    ("generation", "is_strong_offered", "flags"),
    [
        ("8.6", False, {"fp16", "int8", "fp8"}),
        ("10", True, {"fp16", "bf16", "int8", "fp8"}),
        ("11", True, set()),
    ],
)
def test_what_each_generation_offers(generation: str, is_strong_offered: bool, flags: set[str]) -> None:
    typing = typing_of(fake_tensorrt(FakeCuda(), generation), "tensorrt")
    assert typing == Typing(is_strong_offered=is_strong_offered, flags=frozenset(flags), name="tensorrt")


def test_the_text_is_for_people() -> None:
    assert Precision("fp16", is_strongly_typed=False, flags=("FP16",)).text == "fp16 (weakly typed)"
    assert Precision("as-is", is_strongly_typed=True).text == "as-is (strongly typed)"
