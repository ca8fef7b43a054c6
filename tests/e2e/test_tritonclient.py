"""Unmodified `tritonclient[http]` against the running server: sync, async and aio, JSON and binary, compressed."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import tritonclient.http as httpclient
import tritonclient.http.aio as aioclient
from tritonclient.utils import InferenceServerException

from tests.doubles.running_server import RunningServer, StartServer, make_repository

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module", params=[0, 2], ids=["one process", "two front ends"])
def server(
    request: pytest.FixtureRequest, start_server: StartServer, tmp_path_factory: pytest.TempPathFactory
) -> RunningServer:
    return start_server(make_repository(tmp_path_factory.mktemp("repository")), frontends=request.param)


@pytest.fixture
def client(server: RunningServer):
    with httpclient.InferenceServerClient(server.address, concurrency=8) as client:
        yield client


def simple_inputs(rows: int = 1, *, binary: bool = True, seed: int = 0):
    rng = np.random.default_rng(seed)
    inputs, arrays = [], []
    for name in ("INPUT0", "INPUT1"):
        array = rng.integers(-1000, 1000, (rows, 16), dtype=np.int32)
        tensor = httpclient.InferInput(name, list(array.shape), "INT32")
        tensor.set_data_from_numpy(array, binary_data=binary)
        inputs.append(tensor)
        arrays.append(array)
    return inputs, arrays


def check_simple(result, arrays) -> None:
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), arrays[0] + arrays[1])
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), arrays[0] - arrays[1])


def simple_outputs(*, binary: bool):
    return [httpclient.InferRequestedOutput(name, binary_data=binary) for name in ("OUTPUT0", "OUTPUT1")]


def test_health_and_metadata(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("simple")
    assert not client.is_model_ready("nope")
    metadata = client.get_model_metadata("simple")
    assert metadata["inputs"][0] == {"name": "INPUT0", "datatype": "INT32", "shape": [-1, 16]}
    assert client.get_model_config("simple")["max_batch_size"] == 8


@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("binary_in", [True, False])
def test_infer(client, binary_in, binary_out, rows):
    inputs, arrays = simple_inputs(rows, binary=binary_in)
    result = client.infer("simple", inputs, outputs=simple_outputs(binary=binary_out), request_id="rq-7")
    check_simple(result, arrays)
    assert result.get_response()["id"] == "rq-7"


def test_infer_without_naming_outputs_and_with_a_version(client):
    inputs, arrays = simple_inputs()
    check_simple(client.infer("simple", inputs, model_version="1"), arrays)


@pytest.mark.parametrize("request_algorithm", [None, "gzip", "deflate"])
@pytest.mark.parametrize("response_algorithm", [None, "gzip", "deflate"])
def test_compression_both_ways(client, request_algorithm, response_algorithm):
    inputs, arrays = simple_inputs(4)
    result = client.infer(
        "simple",
        inputs,
        outputs=simple_outputs(binary=True),
        request_compression_algorithm=request_algorithm,
        response_compression_algorithm=response_algorithm,
    )
    check_simple(result, arrays)


def test_priority_timeout_and_parameters(client):
    inputs, arrays = simple_inputs()
    check_simple(client.infer("simple", inputs, priority=1, timeout=5_000_000, parameters={"tenant": "a"}), arrays)


def test_async_infer(client):
    requests = []
    for seed in range(20):
        inputs, arrays = simple_inputs(seed=seed)
        requests.append((client.async_infer("simple", inputs), arrays))
    for request, arrays in requests:
        check_simple(request.get_result(), arrays)


async def test_aio_infer(server):
    async with aioclient.InferenceServerClient(server.address) as client:

        async def one(seed: int) -> None:
            inputs, arrays = simple_inputs(rows=1 + seed % 3, seed=seed, binary=bool(seed % 2))
            check_simple(await client.infer("simple", inputs, outputs=simple_outputs(binary=seed % 3 == 0)), arrays)

        await asyncio.gather(*(one(seed) for seed in range(30)))


@pytest.mark.parametrize("binary", [True, False])
def test_classification(client, binary):
    image = np.random.default_rng(1).integers(0, 256, (2, 3, 64, 64), dtype=np.uint8)
    tensor = httpclient.InferInput("image", [2, 3, 64, 64], "UINT8")
    tensor.set_data_from_numpy(image)
    scores = client.infer("classifier", [tensor]).as_numpy("logits")
    classes = client.infer(
        "classifier", [tensor], outputs=[httpclient.InferRequestedOutput("logits", binary_data=binary, class_count=3)]
    ).as_numpy("logits")
    assert classes.shape == (2, 3)
    for row in range(2):
        best = np.argsort(-scores[row], kind="stable")[:3]
        said = [text.decode().split(":") if isinstance(text, bytes) else text.split(":") for text in classes[row]]
        assert [int(index) for _, index, _ in said] == list(best)
        assert said[0][2] == ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"][best[0]]
        assert float(said[0][0]) == pytest.approx(float(scores[row][best[0]]), abs=1e-5)


@pytest.mark.parametrize("binary", [True, False])
def test_strings(client, binary):
    words = np.array([["abc", ""], ["ä€", "x" * 1000]], dtype=np.object_)
    metadata = client.get_model_metadata("words")
    tensor = httpclient.InferInput(metadata["inputs"][0]["name"], [2, 2], "BYTES")
    tensor.set_data_from_numpy(words, binary_data=binary)
    name = metadata["outputs"][0]["name"]
    result = client.infer("words", [tensor], outputs=[httpclient.InferRequestedOutput(name, binary_data=binary)])
    said = [[w.decode() if isinstance(w, bytes) else w for w in row] for row in result.as_numpy(name)]
    assert said == words.tolist()


@pytest.mark.parametrize("sequence", [1, 7, 8, 20, 32])
def test_padded_sequences_come_back_in_their_own_length(client, sequence):
    names = [tensor["name"] for tensor in client.get_model_metadata("encoder")["inputs"]]
    inputs = []
    for name in names:
        tensor = httpclient.InferInput(name, [1, sequence], "INT64")
        tensor.set_data_from_numpy(np.ones((1, sequence), np.int64))
        inputs.append(tensor)
    result = client.infer("encoder", inputs)
    shapes = {output["name"]: output["shape"] for output in result.get_response()["outputs"]}
    assert [1, sequence] in [shape[:2] for shape in shapes.values()]


@pytest.mark.parametrize(
    ("model", "says"),
    [("nope", "is not found"), ("identity", "unexpected inference input 'INPUT0' for model 'identity'")],
)
def test_errors_reach_the_client_as_text(client, model, says):
    inputs, _ = simple_inputs()
    with pytest.raises(InferenceServerException, match=says):
        client.infer(model, inputs)


def test_statistics_count_requests_and_batches(client):
    before = client.get_inference_statistics("simple")["model_stats"][0]
    inputs, _ = simple_inputs(3)
    client.infer("simple", inputs)
    after = client.get_inference_statistics("simple")["model_stats"][0]
    assert after["inference_count"] == before["inference_count"] + 3
    assert after["execution_count"] == before["execution_count"] + 1
    assert after["inference_stats"]["success"]["count"] == before["inference_stats"]["success"]["count"] + 1
    assert after["inference_stats"]["queue"]["count"] == before["inference_stats"]["queue"]["count"] + 1
