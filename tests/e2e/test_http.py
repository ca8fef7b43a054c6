"""The running server as curl sees it: headers, stages, metrics, limits and every kind of bad request."""

from __future__ import annotations

import gzip
import json
import socket
import zlib
from pathlib import Path

import httpx
import numpy as np
import pytest

from service.requests import StageTimings
from tests.doubles.running_server import RunningServer, StartServer, make_repository

pytestmark = pytest.mark.e2e

ROW = [[float(value) for value in range(16)]]


def identity_body(**changes) -> dict:
    tensor = {"name": "x", "shape": [1, 16], "datatype": "FP32", "data": ROW[0], **changes}
    return {"inputs": [tensor]}


def post(server: RunningServer, body, path: str = "/v2/models/identity/infer", **options) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    with server.client() as client:
        return client.post(path, content=content, **options)


def binary_request(name: str, array: np.ndarray) -> tuple[bytes, dict[str, str]]:
    tensor = {"name": name, "shape": list(array.shape), "datatype": "FP32"}
    tensor["parameters"] = {"binary_data_size": array.nbytes}
    header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return header + array.tobytes(), {"Inference-Header-Content-Length": str(len(header))}


def test_server_timing_names_every_stage_and_sums_to_the_total(server):
    response = post(server, identity_body())
    stages = dict(part.split(";dur=") for part in response.headers["server-timing"].split(", "))
    durations = {name: float(ms) for name, ms in stages.items()}
    total = durations.pop("total")
    assert list(durations) == list(StageTimings._fields[:-1])
    assert sum(durations.values()) == pytest.approx(total, abs=0.001 * len(durations))


def test_json_and_binary_give_the_same_rows(server):
    array = np.array(ROW, np.float32)
    body, headers = binary_request("x", array)
    response = post(server, body, headers=headers)
    header_length = int(response.headers["inference-header-content-length"])
    np.testing.assert_array_equal(np.frombuffer(response.content[header_length:], np.float32), array[0])
    assert post(server, identity_body()).json()["outputs"][0]["data"] == ROW[0]


def test_a_raw_binary_request_needs_no_header(server):
    array = np.array(ROW, np.float32)
    response = post(server, array.tobytes(), headers={"Inference-Header-Content-Length": "0"})
    assert response.status_code == 200
    header_length = int(response.headers["inference-header-content-length"])
    np.testing.assert_array_equal(np.frombuffer(response.content[header_length:], np.float32), array[0])


def test_metrics_count_what_was_answered(server):
    def answered() -> float:
        return server.metric("inferlane_requests_total", model="identity", outcome="ok")

    before = answered()
    for _ in range(3):
        post(server, identity_body())
    assert answered() == before + 3


def test_a_browser_s_accept_encoding_is_not_answered_with_gzip(server):
    response = post(server, identity_body(), headers={"Accept-Encoding": "gzip, deflate, br"})
    assert "content-encoding" not in response.headers


BAD_BODIES = [
    (b"", "empty"),
    (b"{", "JSON"),
    (b"\xff\xfe", "JSON"),
    ({}, "inputs"),
    ({"inputs": []}, "expected 1 inputs but got 0"),
    (identity_body(shape=[1, -16]), "-16"),
    (identity_body(shape=[1, 2**63 - 1]), "16"),
    (identity_body(shape=[2**62, 16]), "batch-size must be <= 8"),
    (identity_body(shape=[9, 16], data=ROW[0] * 9), "batch-size must be <= 8"),
    (identity_body(shape=[0, 16], data=[]), "at least 1"),
    (identity_body(shape=[16]), "unexpected shape"),
    (identity_body(shape=[1, 16], data=[1.0]), "16"),
    (identity_body(data=["a"] * 16), "data"),
    (identity_body(data=[None] * 16), "data"),
    (identity_body(datatype="FP64"), "data-type is 'FP64', but model 'identity' expects 'FP32'"),
    (identity_body(datatype="FP33"), "invalid datatype"),
    (identity_body(name="q"), "unexpected inference input 'q' for model 'identity'"),
    ({"inputs": identity_body()["inputs"] * 2}, "already exists"),
    ({**identity_body(), "outputs": [{"name": "nope"}]}, "unexpected inference output 'nope'"),
    ({**identity_body(), "id": 7}, "id"),
    ({**identity_body(), "parameters": {"a": {"b": 1}}}, "a"),
    ({**identity_body(), "parameters": {"priority": 99}}, "priority"),
]


@pytest.mark.parametrize(("body", "says"), BAD_BODIES)
def test_bad_bodies_are_refused_in_words(server, body, says):
    response = post(server, body)
    assert response.status_code == 400
    assert says in response.json()["error"]


@pytest.mark.parametrize(
    ("path", "headers", "body", "status"),
    [
        ("/v2/models/nope/infer", {}, b"{}", 404),
        ("/v2/models/identity/versions/2/infer", {}, b"{}", 404),
        ("/v2/models/identity/versions/x/infer", {}, b"{}", 404),
        ("/v2/models/../identity/infer", {}, b"{}", 404),
        ("/v2/models/%2e%2e%2fidentity/infer", {}, b"{}", 404),
        ("/v2/models/identity/infer", {"Inference-Header-Content-Length": "99999"}, b"{}", 400),
        ("/v2/models/identity/infer", {"Inference-Header-Content-Length": "-1"}, b"{}", 400),
        ("/v2/models/identity/infer", {"Inference-Header-Content-Length": "abc"}, b"{}", 400),
        ("/v2/models/identity/infer", {"Inference-Header-Content-Length": "0"}, b"", 400),
        ("/v2/models/identity/infer", {"Content-Encoding": "br"}, b"{}", 501),
        ("/v2/models/identity/infer", {"Content-Encoding": "gzip"}, b"no gzip", 400),
        ("/v2/models/identity/infer", {"Content-Encoding": "gzip"}, gzip.compress(b"{}")[:-5], 400),
        ("/v2/models/identity/predict", {"Content-Type": "image/png"}, b"x", 400),
        ("/v2/nothing", {}, b"", 404),
    ],
)
def test_bad_requests_have_their_status_and_an_error_text(server, path, headers, body, status):
    response = post(server, body, path, headers=headers)
    assert response.status_code == status
    assert response.json()["error"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD"])
def test_wrong_methods_say_which_is_right(server, method):
    with server.client() as client:
        response = client.request(method, "/v2/models/identity/infer")
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"


def test_a_body_over_the_limit_is_refused_from_its_length_alone(server):
    """The head promises 1 TB; the answer comes although not a byte of it is sent."""
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(
            b"POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1099511627776\r\n\r\n"
        )
        answer = b""
        while b"}" not in answer:
            answer += connection.recv(65536)
    assert b" 413 " in answer.split(b"\r\n")[0]
    assert b"max_body_bytes" in answer


def test_a_zip_bomb_is_refused(server):
    bomb = zlib.compress(bytes(100 << 20), 9)
    assert len(bomb) < 200_000
    response = post(server, bomb, headers={"Content-Encoding": "deflate"})
    assert response.status_code == 413


def test_compressed_requests_and_answers(server):
    body = json.dumps(identity_body()).encode()
    response = post(server, gzip.compress(body), headers={"Content-Encoding": "gzip", "Accept-Encoding": "deflate"})
    assert response.headers["content-encoding"] == "deflate"
    assert response.json()["outputs"][0]["data"] == ROW[0]


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"inputs":[' + b"[]," * 100_000 + b"[]]}", b" " * 200_000])
def test_json_that_no_request_of_the_model_can_be_is_refused_unparsed(server, body):
    response = post(server, body)
    assert response.status_code == 413
    assert "the largest request of model 'identity'" in response.json()["error"]


def test_percent_encoded_names_are_decoded(server):
    assert post(server, identity_body(), "/v2/models/%69dentity/infer").status_code == 200


def test_text_that_is_not_utf8_is_refused_before_it_joins_a_batch(server):
    part = b"\x01\x00\x00\x00\xff" + b"\x02\x00\x00\x00ok"
    tensor = {"name": "x", "shape": [1, 2], "datatype": "BYTES", "parameters": {"binary_data_size": len(part)}}
    header = json.dumps({"inputs": [tensor]}).encode()
    response = post(
        server,
        header + part,
        "/v2/models/words/infer",
        headers={"Inference-Header-Content-Length": str(len(header))},
    )
    assert response.status_code == 400
    assert "element 0 of input 'x'" in response.json()["error"]


def test_values_that_the_model_refuses_are_the_client_s_fault(server):
    names = ("input_ids", "attention_mask")
    tensors = [{"name": name, "shape": [1, 4], "datatype": "INT64", "data": [10**9] * 4} for name in names]
    response = post(server, {"inputs": tensors}, "/v2/models/encoder/infer")
    assert response.status_code == 400
    assert "values that the model cannot take" in response.json()["error"]


def test_the_server_leaves_nothing_in_the_home_folder(start_server: StartServer, tmp_path: Path, monkeypatch):
    """ONNX Runtime would keep an identifier there, for what it reports of its use to its makers."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    server = start_server(make_repository(tmp_path / "repository"))
    assert server.stop() == 0
    assert list(home.rglob("*")) == []
