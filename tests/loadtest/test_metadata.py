from __future__ import annotations

import json

import pytest

from loadtest.errors import LoadTestError
from loadtest.metadata import ModelMetadata, TensorMetadata, answer_fault, model_path, parse_metadata

MODEL = ModelMetadata(
    "m",
    (TensorMetadata("x", "FP32", (-1, 3)),),
    (TensorMetadata("y", "FP32", (-1, 2)), TensorMetadata("label", "BYTES", (-1,))),
)
DOCUMENT = {
    "name": "m",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
    "outputs": [
        {"name": "y", "datatype": "FP32", "shape": [-1, 2]},
        {"name": "label", "datatype": "BYTES", "shape": [-1]},
    ],
}


def test_parses_what_a_server_says() -> None:
    assert parse_metadata(json.dumps({**DOCUMENT, "platform": "p", "versions": ["1"]}).encode()) == MODEL


@pytest.mark.parametrize(
    "document",
    [
        b"<html>",
        b"[]",
        b"{}",
        json.dumps({**DOCUMENT, "inputs": 3}).encode(),
        json.dumps({**DOCUMENT, "inputs": [{"name": "x", "datatype": "FP31", "shape": [1]}]}).encode(),
        json.dumps({**DOCUMENT, "inputs": [{"name": "x", "datatype": "FP32", "shape": ["a"]}]}).encode(),
    ],
)
def test_refuses_other_documents(document: bytes) -> None:
    with pytest.raises(LoadTestError, match="check --url"):
        parse_metadata(document)


@pytest.mark.parametrize(("shape", "takes_rows"), [((-1, 3), True), ((1, -1), False), ((), False)])
def test_rows_need_a_dynamic_leading_dimension(shape: tuple[int, ...], takes_rows: bool) -> None:
    assert ModelMetadata("m", (TensorMetadata("x", "FP32", shape),), ()).takes_rows is takes_rows


def test_model_names_are_encoded() -> None:
    assert model_path("a b/c") == "/v2/models/a%20b%2Fc"


def entry(name: str, datatype: str, shape: list[int], **more: object) -> dict[str, object]:
    return {"name": name, "datatype": datatype, "shape": shape, **more}


Y_JSON = entry("y", "FP32", [1, 2], data=[0.5, 1.5])
LABEL_JSON = entry("label", "BYTES", [1], data=["cat"])
Y_RAW = entry("y", "FP32", [1, 2], parameters={"binary_data_size": 8})
LABEL_RAW = entry("label", "BYTES", [1], parameters={"binary_data_size": 7})


def fault_of(outputs: list[dict[str, object]], raw: bytes | None) -> str | None:
    header = json.dumps({"outputs": outputs}).encode()
    return answer_fault(MODEL, None if raw is None else len(header), header + (raw or b""))


@pytest.mark.parametrize(
    ("outputs", "raw"),
    [([Y_JSON, LABEL_JSON], None), ([Y_RAW, LABEL_RAW], bytes(15)), ([Y_RAW, LABEL_JSON], bytes(8))],
)
def test_right_answers(outputs: list[dict[str, object]], raw: bytes | None) -> None:
    assert fault_of(outputs, raw) is None


@pytest.mark.parametrize(
    ("outputs", "raw", "said"),
    [
        ([Y_JSON], None, "'label'"),
        ([entry("y", "FP32", [1, 2], data=[0.5]), LABEL_JSON], None, "1 elements"),
        ([Y_RAW, LABEL_RAW], bytes(14), "body has"),
        ([Y_RAW, LABEL_RAW], bytes(16), "body has"),
        ([entry("y", "FP32", [2, 2], parameters={"binary_data_size": 8}), LABEL_RAW], bytes(15), "another size"),
        ([entry("y", "FP32", [1, 2]), LABEL_JSON], None, "parameters"),
        ([entry("y", "FP32", [1, 2], parameters={}), LABEL_JSON], None, "binary_data_size"),
    ],
)
def test_wrong_answers(outputs: list[dict[str, object]], raw: bytes | None, said: str) -> None:
    assert said in (fault_of(outputs, raw) or "")


@pytest.mark.parametrize("body", [b"", b"plain", b"[]", b'{"error": "no"}', b'{"outputs": [3]}'])
def test_no_answers(body: bytes) -> None:
    assert "not an inference answer" in (answer_fault(MODEL, None, body) or "")
