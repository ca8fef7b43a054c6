"""Layers of 8.6, 10 and 11 in common words."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from service.layers.flops import flops
from service.layers.tactics import uses_tensor_cores
from service.layers.traffic import nbytes
from service.runtime.layer_trace import Operand, OperationKind
from service.runtime.trt.inspector import LayerInfo, parse
from service.runtime.trt.operations import kind_of, operation, origin_of

SAMPLE = Path(__file__).parent / "samples" / "inspector_8.6.json"


def layer(word: str, name: str = "a", **details: Any) -> LayerInfo:
    return LayerInfo(name, word, details)


def tensor(*dims: int, dtype: str = "Half", layout: str = "Row major linear") -> dict[str, Any]:
    return {"Name": "t", "Dimensions": list(dims), "Format": layout, "Datatype": dtype}


def test_a_real_engine_of_8_6() -> None:
    """ResNet-50 with 8 images, by hand: 7 x 7 windows on 3 channels, padded to 4, make 64 of 112 x 112."""
    operations = [operation(each) for each in parse(SAMPLE.read_text(encoding="utf-8")).layers if each.profile == 0]
    assert not [each for each in operations if each.kind is OperationKind.UNKNOWN]
    first = next(each for each in operations if each.kind is OperationKind.CONVOLUTION)
    assert flops(first) == 2 * 8 * 64 * 112 * 112 * 3 * 7 * 7
    assert nbytes(first) == 2 * (8 * 4 * 224 * 224 + 9408 + 64 + 8 * 64 * 112 * 112)
    assert uses_tensor_cores(first)
    assert first.origin == ("/conv1/Conv", "/relu/Relu")
    assert (first.dtype, first.kernel) == ("FP16", (7, 7))
    reformat = next(each for each in operations if each.name.startswith("Reformatting") and each.word == "Reformat")
    assert reformat.kind is OperationKind.REFORMAT
    assert nbytes(reformat) == 8 * 3 * 224 * 224 * 4 + 8 * 4 * 224 * 224 * 2
    assert Counter(each.kind for each in operations)[OperationKind.NOTHING] >= 2


def test_a_generated_kernel_of_11() -> None:
    found = operation(
        layer(
            "kgen",
            "__myl_AddCastMaxrSubExpSumDiv_myl0_5",
            Inputs=[tensor(8, 12, 128, 128), tensor(8, 1, 1, 128)],
            Outputs=[tensor(8, 12, 128, 128)],
            Metadata="[ONNX Layer: /attention/Add]\x1e[ONNX Layer: /attention/Softmax]",
        )
    )
    assert (found.kind, found.steps, found.dtype) == (OperationKind.POINTWISE, 7, "FP16")
    assert found.origin == ("/attention/Add", "/attention/Softmax")
    assert flops(found) == 7 * 8 * 12 * 128 * 128


def test_a_matrix_product_of_11_with_its_weights_as_a_constant() -> None:
    found = operation(
        layer(
            "gemm",
            "/query/MatMul+/key/MatMul_myl0_2",
            Inputs=[tensor(1024, 768)],
            Outputs=[tensor(3, 1024, 768)],
            Constants=[tensor(768, 2304)],
            TacticName="sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
        )
    )
    assert found.kind is OperationKind.MATRIX_PRODUCT
    assert found.weights == (Operand((768, 2304), "FP16", "Row major linear"),)
    assert flops(found) == 2 * 1024 * 768 * 2304


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (layer("CaskConvolution", ParameterType="Convolution"), OperationKind.CONVOLUTION),
        (layer("CaskDeconvolutionV2"), OperationKind.DECONVOLUTION),
        (layer("CaskGemmConvolution"), OperationKind.CONVOLUTION),
        (layer("CudaDepthwiseConvolution"), OperationKind.CONVOLUTION),
        (layer("MatrixMultiply", ParameterType="MatrixMultiply"), OperationKind.MATRIX_PRODUCT),
        (layer("PointWiseV2", ParameterType="PointWise"), OperationKind.POINTWISE),
        (layer("CudaSoftMaxV2", ParameterType="SoftMax"), OperationKind.SOFTMAX),
        (layer("TiledPooling", ParameterType="Pooling"), OperationKind.POOLING),
        (layer("MyelinReformat"), OperationKind.REFORMAT),
        (layer("NoOp", ParameterType="Shuffle"), OperationKind.NOTHING),
        (layer("TrainStation"), OperationKind.NOTHING),
        (layer("signal"), OperationKind.NOTHING),
        (layer("Shuffle", ParameterType="Shuffle"), OperationKind.COPY),
        (layer("Gather", ParameterType="Gather"), OperationKind.GATHER),
        (layer("Myelin", "{ForeignNode[/a/MatMul.../b/Gemm]}"), OperationKind.UNKNOWN),
        (layer("kgen", "__myl_fmha_myl0_3"), OperationKind.ATTENTION),
        (layer("gemm", "_gemm_mha_v2_myl0_9"), OperationKind.ATTENTION),
        (layer("kgen", "__myl_FcAddMul_myl0_3"), OperationKind.MATRIX_PRODUCT),
        (layer("fusion", "__myl_CastMulAdd_myl0_3"), OperationKind.POINTWISE),
        (layer("Scale", "/x/QuantizeLinear", ParameterType="Scale"), OperationKind.QUANTIZE),
        (layer("Scale", "/x/DequantizeLinear + /x/QuantizeLinear", ParameterType="Scale"), OperationKind.QUANTIZE),
        (layer("Scale", "/x/BatchNorm", ParameterType="Scale"), OperationKind.POINTWISE),
        (
            layer("CaskConvolution", "/x/QuantizeLinear + /x/Conv", ParameterType="Convolution"),
            OperationKind.CONVOLUTION,
        ),
        (layer("PluginV2"), OperationKind.UNKNOWN),
        (layer(""), OperationKind.UNKNOWN),
    ],
)
def test_kinds(info: LayerInfo, expected: OperationKind) -> None:
    assert kind_of(info) is expected


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (layer("A", "/a/Conv + /a/Relu"), ("/a/Conv", "/a/Relu")),
        (layer("A", "/a/Conv || /b/Conv [profile 2]"), ("/a/Conv", "/b/Conv")),
        (layer("A", "PWN(PWN(/a/Sigmoid), /a/Mul)"), ("/a/Sigmoid", "/a/Mul")),
        (layer("A", "/a/Conv + PWN(/a/Sigmoid)"), ("/a/Conv", "/a/Sigmoid")),
        (layer("Reformat", "Reformatting CopyNode for Input Tensor 0 to /a/Conv + /a/Relu"), ("/a/Conv", "/a/Relu")),
        (layer("Reformat", "Reformatting CopyNode for Network Input images"), ()),
        (layer("A", "(Unnamed Layer* 3) [Convolution]"), ()),
        (layer("A", "{ForeignNode[/a.../b]}"), ()),
        (layer("A", "__myl_Add_myl0_1"), ()),
        (layer("A", "/a/Conv", Metadata="[ONNX Layer: /a/Conv[0]]\x1f[ONNX Layer: /b]"), ("/a/Conv[0]", "/b")),
        (layer("A", "/a/Conv", Metadata=""), ("/a/Conv",)),
    ],
)
def test_onnx_nodes(info: LayerInfo, expected: tuple[str, ...]) -> None:
    assert origin_of(info) == expected


def test_types_that_products_compute_in() -> None:
    ends = {"Inputs": [tensor(1, 8, 4, 4, dtype="Float")], "Outputs": [tensor(1, 8, 4, 4, dtype="Half")]}
    assert operation(layer("CaskConvolution", **ends)).dtype == "FP32"
    assert operation(layer("CaskConvolution", TacticName="sm80_xmma_fprop_tf32f32", **ends)).dtype == "TF32"
    assert operation(layer("PointWise", **ends)).dtype == "FP16"
    assert operation(layer("CaskConvolution")).dtype == ""
