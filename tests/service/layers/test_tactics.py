"""Kernels' names, as TensorRT 8.6 wrote them on an H200 or as NVIDIA's tools look for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.layers.tactics import could_use_tensor_cores, is_aligned, uses_tensor_cores
from service.runtime.layer_trace import Operand, Operation, OperationKind


def convolution(tactic: str = "", *, dtype: str = "FP16", channels: tuple[int, int] = (8, 64)) -> Operation:
    return Operation(
        name="a",
        word="CaskConvolution",
        kind=OperationKind.CONVOLUTION,
        inputs=(Operand((1, channels[0], 9, 9), dtype),),
        outputs=(Operand((1, channels[1], 9, 9), dtype),),
        dtype=dtype,
        tactic=tactic,
    )


@pytest.mark.parametrize(
    ("tactic", "expected"),
    [
        ("sm90_xmma_fprop_image_first_layer_f16f16_f32_f16_nhwckrsc_nhwc_hmma_k64c4r7s7_tensor1688", True),
        ("sm80_xmma_fprop_implicit_gemm_f16f16_f16f16_f16_nhwckrsc_nhwc_tilesize128x128x32_tensor16x8x16", True),
        ("sm90_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize128x128x64_cgasize1x1x1_warpgroupsize1x1x1_beta0", True),
        ("sm80_xmma_gemm_tf32f32_tf32f32_f32_nn_n", True),
        ("turing_h1688cudnn_256x64_ldg8_relu_exp_small_nhwc_tn_v1", True),
        ("ampere_int8_i16832cudnn_int8_128x128_ldg16_relu_singleBuffer_small_nt_v1", True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x128x8_simt", False),
        ("ampere_scudnn_128x64_relu_medium_nn_v1", False),
        ("sm80_xmma_fprop_implicit_gemm_indexed_f32f32_f32f32_f32_nchwkcrs_nchw_simt_small", False),
        ("0x00000000000203e8", None),
        ("", None),
    ],
)
def test_tensor_cores_by_name(tactic: str, expected: bool | None) -> None:
    assert uses_tensor_cores(convolution(tactic)) is expected


def test_only_products_use_tensor_cores() -> None:
    pooling = Operation(name="a", word="", kind=OperationKind.POOLING, tactic="sm80_hmma_pooling")
    assert uses_tensor_cores(pooling) is None
    assert is_aligned(pooling) is None


@pytest.mark.parametrize(("groups", "expected"), [(1, True), (4, True), (8, False), (32, False)])
def test_groups_of_few_channels_are_no_matrices(groups: int, expected: bool) -> None:
    operation = replace(convolution("sm80_simt", channels=(32, 32)), groups=groups)
    assert could_use_tensor_cores(operation) is expected
    assert (uses_tensor_cores(operation), is_aligned(operation)) == ((False, True) if expected else (None, None))


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (convolution(channels=(8, 64)), True),
        (convolution(channels=(3, 64)), False),
        (convolution(channels=(8, 12)), False),
        (convolution(dtype="INT8", channels=(8, 64)), False),
        (convolution(dtype="INT8", channels=(16, 64)), True),
        (convolution(dtype="FP32", channels=(8, 64)), None),
        (convolution(channels=(8, -1)), None),
    ],
)
def test_alignment_of_channels(operation: Operation, expected: bool | None) -> None:
    assert is_aligned(operation) is expected


def test_a_matrix_product_is_aligned_by_its_last_extents() -> None:
    ends = {"inputs": (Operand((3, 16), "FP16"),), "outputs": (Operand((3, 24), "FP16"),)}
    product = Operation(name="a", word="", kind=OperationKind.MATRIX_PRODUCT, dtype="FP16", **ends)  # type: ignore[arg-type]
    assert is_aligned(product)
