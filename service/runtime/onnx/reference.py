"""ONNX Runtime on the CPU as the reference that other backends' answers are held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from service.bfloat16 import bfloat16_values
from service.errors import ModelLoadFailed
from service.models import ModelSpec
from service.runtime.golden import ReferenceFailed
from service.runtime.onnx.session import input_tensors, open_session, output_tensors, without_paths
from service.tensors import DType, HostArray, TensorSpec

PLAN_SUFFIX = ".plan"

_NONE_FIXED: Mapping[str, HostArray] = MappingProxyType({})

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


class OnnxReference:
    """One ONNX model as it is, all optimisations on. Implements `runtime.golden.Reference`; used by one thread.

    Args:
        session: of the model.
        spec: what is compared with it.
        model_path: for messages.
        fixed_inputs: values of the inputs that `spec` does not have.
    """

    def __init__(
        self, session: InferenceSession, spec: ModelSpec, model_path: Path, fixed_inputs: Mapping[str, HostArray]
    ) -> None:
        self._session = session
        self._model_path = model_path
        names = [*(tensor.name for tensor in spec.inputs), *fixed_inputs]
        own = _matching("input", names, input_tensors(session))
        count = len(spec.inputs)
        self._inputs = tuple(zip(spec.inputs, own[:count], strict=True))
        self._fixed = {tensor.name: fixed_inputs[tensor.name].astype(tensor.dtype.numpy) for tensor in own[count:]}
        _matching("output", [tensor.name for tensor in spec.outputs], output_tensors(session))
        self._output_names = [tensor.name for tensor in spec.outputs]

    def run(self, inputs: Sequence[HostArray]) -> tuple[HostArray, ...]:
        """As `Reference.run`: an input is cast where the ONNX model wants another type than `spec` has.

        Raises:
            ReferenceFailed: ONNX Runtime cannot run on them.
        """
        feeds = dict(self._fixed)
        for (given, own), values in zip(self._inputs, inputs, strict=True):
            feeds[own.name] = _cast(values, given.dtype, own.dtype)
        try:
            return tuple(self._session.run(self._output_names, feeds))
        except Exception as error:
            raise ReferenceFailed(
                f"ONNX Runtime cannot run {self._model_path.name} as the reference: "
                f"{without_paths(str(error), self._model_path)}"
            ) from error


def open_reference(
    model_path: Path,
    spec: ModelSpec,
    *,
    cpu_threads: int,
    fixed_inputs: Mapping[str, HostArray] = _NONE_FIXED,
    max_bytes: int | None = None,
) -> OnnxReference:
    """Opens the ONNX model that a plan was built from; blocking, for seconds where it is large.

    Args:
        model_path: the ONNX file.
        spec: what is compared with it: the order of inputs and outputs, and their types.
        cpu_threads: intra-op threads.
        fixed_inputs: by name, inputs of the model that are not in `spec` because their values never change.
        max_bytes: of the file and of what lies beside it, such as weights, plans apart; more is not opened. None opens
            any model.

    Raises:
        ModelLoadFailed: it is larger than `max_bytes`, ONNX Runtime is not installed or refuses the model, its inputs
            or outputs are not those of `spec`, or one of its tensors is BF16, which ONNX Runtime cannot pass to NumPy.
    """
    nbytes = sum(
        file.stat().st_size for file in model_path.parent.iterdir() if file.is_file() and file.suffix != PLAN_SUFFIX
    )
    if max_bytes is not None and nbytes > max_bytes:
        raise ModelLoadFailed(
            f"it has {nbytes} bytes with what lies beside it, and up to {max_bytes} are opened; "
            "`inferlane build` compares models of any size"
        )
    return OnnxReference(open_session(model_path, threads=cpu_threads), spec, model_path, fixed_inputs)


def _matching(role: str, wanted: Sequence[str], own: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """The model's own tensors in the order of the names that are wanted."""
    by_name = {tensor.name: tensor for tensor in own}
    for name in wanted:
        if name not in by_name:
            raise ModelLoadFailed(
                f"{role} '{name}' is not in the ONNX model, which has {sorted(by_name)}; "
                "put the model beside the plan that the plan was built from"
            )
        if by_name[name].dtype is DType.BF16:
            raise ModelLoadFailed(
                f"{role} '{name}' of the ONNX model is BF16, which ONNX Runtime cannot compare; "
                "cast it to FP32 inside the model"
            )
    if role == "input" and len(by_name) > len(wanted):
        raise ModelLoadFailed(
            f"the ONNX model has the inputs {sorted(by_name)}, the plan {sorted(wanted)}; "
            "put the model beside the plan that the plan was built from"
        )
    return tuple(by_name[name] for name in wanted)


def _cast(values: HostArray, given: DType, wanted: DType) -> HostArray:
    if given is wanted:
        return values
    return (bfloat16_values(values) if given is DType.BF16 else values).astype(wanted.numpy)
