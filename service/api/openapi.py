"""The finished OpenAPI document: FastAPI's, with the raw inference routes, real error answers and the API keys."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from service.api.gate import Access, required_access
from service.api.openapi_schemas import InferAnswer, InferRequest
from service.api.schemas import ErrorBody
from service.pipeline.classify import DEFAULT_TOP_K, MAX_TOP_K
from service.pipeline.detect import MAX_DETECTIONS
from service.pipeline.media import SINGLE_FILE_TYPES
from service.pipeline.text_media import JSON_TYPE

JsonObject = dict[str, Any]

REF_TEMPLATE = "#/components/schemas/{model}"
MODEL_PATHS = ("/v2/models/{model}", "/v2/models/{model}/versions/{version}")

INFER_TEXT = """Runs a model on tensors, by the Open Inference Protocol.

The body is JSON, or JSON followed by the raw bytes of the tensors that carry `binary_data_size`, back to back in the
order of the inputs, little-endian and row-major; the header `Inference-Header-Content-Length` then tells the bytes of
the JSON. `Content-Encoding` may be gzip or deflate.
"""

PREDICT_TEXT = """Runs a model on media and answers with what the model's task makes of its outputs: `classify` labels
and scores, `detect` boxes, `ocr` lines of text, `embed` vectors. One image is the body; several travel as multipart. A
model of texts takes `{"text": ["first", "second"]}` as JSON.
"""

STREAM_TEXT = """Opens a WebSocket for frames of video, to a model that takes images.

The first message is text, a JSON header: `format` (jpeg, png, webp, rgb, bgr, nv12), for raw formats `width` and
`height`, and where wanted `max_in_flight`, `freshness` (all, latest) and `options`. Then every binary message is a
frame, answered in its turn by a text message: what `predict` answers, with the frame's number. `docs/streams.md` has
the rest.
"""

INFER_EXAMPLE: JsonObject = {
    "id": "request-7",
    "inputs": [{"name": "input_ids", "shape": [1, 4], "datatype": "INT64", "data": [101, 2023, 2003, 102]}],
    "outputs": [{"name": "logits"}],
}
INFER_ANSWER_EXAMPLE: JsonObject = {
    "id": "request-7",
    "model_name": "sentiment",
    "model_version": "1",
    "outputs": [{"name": "logits", "datatype": "FP32", "shape": [1, 2], "data": [0.25, -1.5]}],
}
TEXT_SCHEMA: JsonObject = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}},
}
PREDICT_ANSWER_EXAMPLE: JsonObject = {
    "model_name": "orientation",
    "model_version": "1",
    "results": [{"predictions": [{"label": "90", "index": 1, "score": 0.9375}]}],
}
BINARY_HEADER_EXAMPLE = (
    '{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","parameters":{"binary_data_size":12}}],'
    '"outputs":[{"name":"y","parameters":{"binary_data":true}}]}<12 bytes>'
)

ERROR_TEXTS = {
    "400": "The request contradicts the protocol, the model's tensors or its shapes.",
    "404": "No such model or version.",
    "408": "The body did not arrive in time.",
    "413": "The body exceeds a bound.",
    "500": "The backend failed.",
    "501": "A part of the protocol that this server does not offer.",
    "503": "Overloaded, still loading, or shutting down; `Retry-After` tells when to come back.",
    "504": "The request's time ran out before it could run.",
}


def install_openapi(app: FastAPI, *, keys_enabled: bool) -> None:
    """Completes the document that `app` shows under `/docs`; called once, after every router is included."""
    app.openapi_schema = complete_openapi(app.openapi(), keys_enabled=keys_enabled)


def complete_openapi(document: JsonObject, *, keys_enabled: bool) -> JsonObject:
    """FastAPI's document plus what FastAPI does not know.

    Args:
        document: as FastAPI made it; left as it is.
        keys_enabled: whether the server asks for API keys.
    """
    paths: JsonObject = {path: dict(operations) for path, operations in document["paths"].items()}
    for root in MODEL_PATHS:
        paths[f"{root}/infer"] = {"post": _infer(root)}
        paths[f"{root}/predict"] = {"post": _predict(root)}
        paths[f"{root}/stream"] = {"get": _stream(root)}
    for path, operations in paths.items():
        for method, operation in operations.items():
            operations[method] = _finished(operation, required_access(method.upper(), path), keys_enabled)
    components: JsonObject = dict(document.get("components", {}))
    components["schemas"] = _schemas(components.get("schemas", {}))
    if keys_enabled:
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    return {**document, "paths": paths, "components": components}


def _finished(operation: JsonObject, access: Access, keys_enabled: bool) -> JsonObject:
    """The operation without FastAPI's 422, which this server never answers, and with its API key."""
    responses = {status: response for status, response in operation["responses"].items() if status != "422"}
    if not keys_enabled or access is Access.OPEN:
        return {**operation, "responses": responses}
    responses["401"] = _error(f"No key, or a wrong one; this operation needs the {access.value} key.")
    return {**operation, "responses": responses, "security": [{"bearer": []}]}


def _schemas(schemas: JsonObject) -> JsonObject:
    own = models_json_schema(
        [(InferRequest, "validation"), (InferAnswer, "validation"), (ErrorBody, "validation")],
        ref_template=REF_TEMPLATE,
    )[1]["$defs"]
    kept = {name: schema for name, schema in schemas.items() if name not in ("HTTPValidationError", "ValidationError")}
    return {**kept, **own}


def _infer(root: str) -> JsonObject:
    return {
        "tags": ["Inference"],
        "summary": f"Run a model on tensors{_which(root)}",
        "description": INFER_TEXT,
        "operationId": f"infer{'_version' if 'version' in root else ''}",
        "parameters": [*_path_parameters(root), _header_length_parameter()],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": _ref("InferRequest"), "example": INFER_EXAMPLE},
                "application/octet-stream": {
                    "schema": {"type": "string", "format": "binary"},
                    "example": BINARY_HEADER_EXAMPLE,
                },
            },
        },
        "responses": {
            "200": {
                "description": "The outputs; binary ones follow the JSON.",
                "content": {
                    "application/json": {"schema": _ref("InferAnswer"), "example": INFER_ANSWER_EXAMPLE},
                    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
                },
            },
            **{status: _error(text) for status, text in ERROR_TEXTS.items()},
        },
    }


def _predict(root: str) -> JsonObject:
    image = {"schema": {"type": "string", "format": "binary"}}
    return {
        "tags": ["Inference"],
        "summary": f"Run a model on media{_which(root)}",
        "description": PREDICT_TEXT,
        "operationId": f"predict{'_version' if 'version' in root else ''}",
        "parameters": [*_path_parameters(root), *_predict_options()],
        "requestBody": {
            "required": True,
            "content": {
                **{media_type: image for media_type in sorted(SINGLE_FILE_TYPES)},
                "multipart/form-data": {"schema": {"type": "object", "additionalProperties": image["schema"]}},
                JSON_TYPE: {"schema": TEXT_SCHEMA, "example": {"text": ["first", "second"]}},
            },
        },
        "responses": {
            "200": {
                "description": "What the model's task makes of its outputs.",
                "content": {"application/json": {"schema": {"type": "object"}, "example": PREDICT_ANSWER_EXAMPLE}},
            },
            **{status: _error(text) for status, text in ERROR_TEXTS.items()},
            "415": _error("The content type, or the image's format, is not one that the model's task takes."),
        },
    }


def _stream(root: str) -> JsonObject:
    return {
        "tags": ["Inference"],
        "summary": f"Stream frames to a model{_which(root)}",
        "description": STREAM_TEXT,
        "operationId": f"stream{'_version' if 'version' in root else ''}",
        "parameters": _path_parameters(root),
        "responses": {
            "101": {"description": "The WebSocket is open; what is wrong with the model or the header is said there."},
            "426": _error("The request is no WebSocket handshake."),
        },
    }


def _which(root: str) -> str:
    return ", one version" if "{version}" in root else ""


def _path_parameters(root: str) -> list[JsonObject]:
    names = [name for name in ("model", "version") if f"{{{name}}}" in root]
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _header_length_parameter() -> JsonObject:
    return {
        "name": "Inference-Header-Content-Length",
        "in": "header",
        "required": False,
        "description": "Bytes of the JSON at the start of the body; left out where the whole body is JSON.",
        "schema": {"type": "integer", "minimum": 0},
    }


def _predict_options() -> list[JsonObject]:
    share: JsonObject = {"type": "number", "minimum": 0, "maximum": 1}
    return [
        _option(
            "top_k",
            "Task `classify`: how many classes to answer.",
            {"type": "integer", "minimum": 1, "maximum": MAX_TOP_K, "default": DEFAULT_TOP_K},
        ),
        _option("score_threshold", "Task `detect`: least score of a box; the card's by default.", share),
        _option(
            "iou_threshold",
            "Task `detect`: overlap with a better box of its class above which a box is dropped.",
            share,
        ),
        _option(
            "max_detections",
            "Task `detect`: most boxes of one image; the card's by default.",
            {"type": "integer", "minimum": 1, "maximum": MAX_DETECTIONS},
        ),
    ]


def _option(name: str, text: str, schema: JsonObject) -> JsonObject:
    return {"name": name, "in": "query", "required": False, "description": text, "schema": schema}


def _error(text: str) -> JsonObject:
    return {"description": text, "content": {"application/json": {"schema": _ref("ErrorBody")}}}


def _ref(name: str) -> JsonObject:
    return {"$ref": REF_TEMPLATE.format(model=name)}
