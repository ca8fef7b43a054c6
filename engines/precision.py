"""In which precision an engine is built: the card's wish held against what model and TensorRT can do. Pure functions.

From TensorRT 11 on an engine computes in the types that its ONNX model has (strong typing), and before that it can be
asked to. Only 8.6 and 10 can lower the precision of a model in FP32 by themselves (weak typing), so the same key of the
card means either, and where neither is possible the message has the command that gives a model which carries it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engines.onnx_facts import OnnxFacts
from service.errors import ModelLoadFailed

AS_IS = "as-is"
QUANTIZED = ("int8", "fp8")
BF16_OPSET = 22
"""The first opset whose operators take BF16 throughout, to which ModelOpt's AutoCast converts."""

_FLAGS = {"fp16": "FP16", "bf16": "BF16", "int8": "INT8", "fp8": "FP8"}


@dataclass(frozen=True, slots=True)
class Typing:
    """How a TensorRT may choose types.

    Attributes:
        is_strong_offered: it can build with exactly the model's types.
        flags: precisions that it can choose by itself, empty where it never does.
        name: the flavour and its version, for messages.
    """

    is_strong_offered: bool
    flags: frozenset[str]
    name: str


@dataclass(frozen=True, slots=True)
class Precision:
    """How an engine is typed.

    Attributes:
        mode: the card's word.
        is_strongly_typed: it computes in the model's types.
        flags: names of the `BuilderFlag`s that allow lower precisions; empty where strongly typed.
    """

    mode: str
    is_strongly_typed: bool
    flags: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Such as `fp16 (weakly typed)`."""
        return f"{self.mode} ({'strongly' if self.is_strongly_typed else 'weakly'} typed)"


def typing_of(module: Any, name: str) -> Typing:
    """Looks at what an imported TensorRT with a builder has."""
    return Typing(
        is_strong_offered=hasattr(module.NetworkDefinitionCreationFlag, "STRONGLY_TYPED"),
        flags=frozenset(mode for mode, flag in _FLAGS.items() if hasattr(module.BuilderFlag, flag)),
        name=name,
    )


def choose_precision(mode: str, facts: OnnxFacts, typing: Typing, *, is_weak_typing_allowed: bool) -> Precision:
    """Decides the typing: strong where the model carries what is wanted and TensorRT can, else weak where allowed.

    Args:
        mode: `as-is`, `fp16`, `bf16`, `int8` or `fp8`.
        facts: of the model.
        typing: of the TensorRT.
        is_weak_typing_allowed: whether TensorRT may lower the precision of a model that does not carry it.

    Raises:
        ModelLoadFailed: neither model nor TensorRT can do it; the message says how to get a model that can.
    """
    is_carried = mode == AS_IS or mode in facts.precisions
    if is_carried and typing.is_strong_offered:
        return Precision(mode, is_strongly_typed=True)
    wanted = facts.precisions | ({mode} - {AS_IS})
    missing = sorted(wanted - typing.flags)
    can_lower = is_weak_typing_allowed and mode not in QUANTIZED and mode in typing.flags
    if not missing and (is_carried or can_lower):
        return Precision(mode, is_strongly_typed=False, flags=tuple(sorted(_FLAGS[each] for each in wanted)))
    if not is_carried:
        raise ModelLoadFailed(_how_to_carry(mode, facts, typing))
    raise ModelLoadFailed(
        f"the model computes in {', '.join(missing)}, which {typing.name} cannot; build with a newer TensorRT, or "
        "export the model in FP32 or FP16"
    )


def _how_to_carry(mode: str, facts: OnnxFacts, typing: Typing) -> str:
    if mode in QUANTIZED:
        return (
            f"precision.mode = '{mode}' needs a model with QuantizeLinear and DequantizeLinear nodes of {mode}, and "
            f"this one has {_carried(facts)}; make one with NVIDIA's ModelOpt (pip install 'nvidia-modelopt[onnx]'): "
            f"`python -m modelopt.onnx.quantization --onnx_path model.onnx --output_path model.{mode}.onnx "
            f"--quantize_mode {mode} --calibration_data_path calibration.npz`, with real inputs in calibration.npz, "
            "and put what it writes in the place of model.onnx"
        )
    why = "weak typing is switched off" if mode in typing.flags else f"{typing.name} computes in the model's own types"
    opset = f" --opset {BF16_OPSET}" if mode == "bf16" and facts.opset < BF16_OPSET else ""
    return (
        f"precision.mode = '{mode}' needs a model that carries it, because {why}, and this one has {_carried(facts)}; "
        "make one with NVIDIA's ModelOpt (pip install 'nvidia-modelopt[onnx]'): `python -m modelopt.onnx.autocast "
        f"--onnx_path model.onnx --output_path model.{mode}.onnx --low_precision_type {mode} --keep_io_types"
        f"{opset} --calibration_data calibration.npz`, with real inputs in calibration.npz, and put what it writes in "
        "the place of model.onnx; or set precision.mode = 'as-is'"
    )


def _carried(facts: OnnxFacts) -> str:
    return " and ".join(sorted(facts.precisions)) or "nothing below FP32"
