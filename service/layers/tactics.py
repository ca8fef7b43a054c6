"""What a kernel's name tells: whether it uses tensor cores, and whether its channels are what they take. Pure.

There is no field for it, so names decide, as they do in NVIDIA's own tools: TREx's linter of convolutions looks for
`imma`, `hmma`, `xmma`, `i88` and `884`, its trt-perf-analysis for `xmma`, `tensor`, `tc`, `cublaslt` and `mma`. `xmma`
alone is the name of a library that has plain kernels too: those say `simt` or `ffma`. Kernels of Hopper's warp groups
(`warpgroup`, as TensorRT 8.6 writes it on an H200) multiply by tensor cores alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from service.runtime.layer_trace import MATRIX_KINDS, Operation

_PLAIN = re.compile(r"simt|ffma|sgemm|scudnn|fp32_fma|dgemm", re.IGNORECASE)
_TENSOR = re.compile(
    r"[hiq]mma|w?gmma|warpgroup|tensor\d|tensorop|tensor_op|cutlass_tensor|i8816|i16832|h?16816|h?1688|h884|s884|mma_",
    re.IGNORECASE,
)
_XMMA = re.compile(r"xmma_(?:fprop|dgrad|wgrad|gemm|deconv)\w*?_(?:f16|bf16|i8|e4m3|e5m2|tf32)", re.IGNORECASE)

_MULTIPLES: Mapping[str, int] = {"FP16": 8, "BF16": 8, "INT8": 16, "FP8": 16}
"""What NVIDIA's guides ask of channels for tensor cores: 16 bytes of one operand."""

_LEAST_GROUP = 8


def could_use_tensor_cores(operation: Operation) -> bool:
    """Whether a layer is a product that tensor cores can run.

    A convolution whose groups have few channels each is none, such as a depthwise one: there is no matrix to multiply.
    """
    if operation.kind not in MATRIX_KINDS:
        return False
    fed = operation.inputs[0].dims if operation.inputs else ()
    return operation.groups == 1 or len(fed) < 2 or fed[1] // operation.groups >= _LEAST_GROUP


def uses_tensor_cores(operation: Operation) -> bool | None:
    """Whether a product's kernel uses them; None if it is no product, or its tactic does not say."""
    if not could_use_tensor_cores(operation):
        return None
    if _PLAIN.search(operation.tactic):
        return False
    return True if _TENSOR.search(operation.tactic) or _XMMA.search(operation.tactic) else None


def is_aligned(operation: Operation) -> bool | None:
    """Whether the channels of a product are multiples of what tensor cores take at once.

    Of images, dims [N, C, H, W], axis 1 of input and output; else the last one. None if it is no product, or its type
    or dims are not known.
    """
    multiple = _MULTIPLES.get(operation.dtype)
    if not could_use_tensor_cores(operation) or multiple is None or not operation.inputs or not operation.outputs:
        return None
    both = (operation.inputs[0].dims, operation.outputs[0].dims)
    if any(len(dims) < 2 or min(dims) < 0 for dims in both):
        return None
    return all(dims[1 if len(dims) > 3 else -1] % multiple == 0 for dims in both)
