from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from service.api.openapi import INFER_ANSWER_EXAMPLE, INFER_EXAMPLE
from service.api.openapi_schemas import InferAnswer, InferRequest
from service.pipeline.media import SINGLE_FILE_TYPES
from tests.doubles.control_plane import ControlPlane, with_keys


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, by_method in document["paths"].items():
        for method, operation in by_method.items():
            yield path, method, operation


def references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref":
                yield inner
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


async def document_of(plane: ControlPlane) -> dict[str, Any]:
    return (await plane.request("GET", "/openapi.json")).json()


async def test_streams_are_documented() -> None:
    document = await document_of(ControlPlane())
    for root in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        operation = document["paths"][f"{root}/stream"]["get"]
        assert {"101", "426"} <= set(operation["responses"])
        assert "first message is text" in operation["description"]


@pytest.mark.parametrize("verb", ["infer", "predict"])
@pytest.mark.parametrize("root", ["/v2/models/{model}", "/v2/models/{model}/versions/{version}"])
async def test_raw_routes_are_documented(root: str, verb: str) -> None:
    document = await document_of(ControlPlane())
    operation = document["paths"][f"{root}/{verb}"]["post"]
    assert {"200", "400", "404", "413", "503"} <= set(operation["responses"])
    taken = set(operation["requestBody"]["content"])
    assert taken == (
        {"application/json", "application/octet-stream"}
        if verb == "infer"
        else {*SINGLE_FILE_TYPES, "multipart/form-data", "application/json"}
    )


async def test_options_and_the_blame_for_a_broken_model_are_documented() -> None:
    paths = (await document_of(ControlPlane()))["paths"]
    options = [item for item in paths["/v2/models/{model}/predict"]["post"]["parameters"] if item["in"] == "query"]
    assert [option["name"] for option in options] == ["top_k", "score_threshold", "iou_threshold", "max_detections"]
    assert options[0]["schema"]["default"] == 5
    assert "500" in paths["/v2/repository/models/{model}/load"]["post"]["responses"]


async def test_document_is_whole() -> None:
    document = await document_of(ControlPlane())
    for reference in references(document):
        section, name = reference.removeprefix("#/components/").split("/")
        assert name in document["components"][section], reference
    found = list(operations(document))
    identifiers = [operation["operationId"] for _, _, operation in found]
    assert len(set(identifiers)) == len(identifiers)
    for path, method, operation in found:
        named = {item["name"] for item in operation.get("parameters", []) if item["in"] == "path"}
        assert named == set(re.findall(r"{(\w+)}", path)), (path, method)
        assert operation["summary"]
        assert "422" not in operation["responses"]


async def test_keys_are_documented_where_they_are_asked_for() -> None:
    document = await document_of(ControlPlane(with_keys()))
    assert document["components"]["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
    without_key = {path for path, _, operation in operations(document) if "security" not in operation}
    assert without_key == {"/v2/health/live", "/v2/health/ready"}
    load = document["paths"]["/v2/repository/models/{model}/load"]["post"]["responses"]["401"]
    assert "admin key" in load["description"]


async def test_no_keys_no_security() -> None:
    document = await document_of(ControlPlane())
    assert "securitySchemes" not in document["components"]
    assert all("security" not in operation for _, _, operation in operations(document))


def test_examples_agree_with_their_schemas() -> None:
    assert InferRequest.model_validate(INFER_EXAMPLE).model_dump(exclude_unset=True) == INFER_EXAMPLE
    assert InferAnswer.model_validate(INFER_ANSWER_EXAMPLE).model_dump(exclude_unset=True) == INFER_ANSWER_EXAMPLE
