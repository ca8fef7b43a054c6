"""System shared memory with the unmodified `tritonclient`, in one process and behind front ends."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import tritonclient.http as httpclient
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from tests.doubles.running_server import RunningServer, StartServer, make_repository

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

ROW_BYTES = 16 * 4


@pytest.fixture(scope="module", params=[0, 2], ids=["one process", "two front ends"])
def server(
    request: pytest.FixtureRequest, start_server: StartServer, tmp_path_factory: pytest.TempPathFactory
) -> RunningServer:
    repository = make_repository(tmp_path_factory.mktemp("repository"))
    return start_server(repository, frontends=request.param, system_shared_memory_enabled=True)


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpclient.InferenceServerClient]:
    with httpclient.InferenceServerClient(server.address, concurrency=8) as client:
        client.unregister_system_shared_memory()
        yield client
        client.unregister_system_shared_memory()


@contextmanager
def shared_object(nbytes: int) -> Iterator[tuple[Any, str]]:
    """A client's shared memory object and its key."""
    key = f"/inferlane-{uuid.uuid4().hex}"
    handle = shm.create_shared_memory_region("made", key, nbytes)
    try:
        yield handle, key
    finally:
        shm.destroy_shared_memory_region(handle)


def shared_input(name: str, shape: list[int], datatype: str, region: str, nbytes: int, offset: int) -> Any:
    tensor = httpclient.InferInput(name, shape, datatype)
    tensor.set_shared_memory(region, nbytes, offset=offset)
    return tensor


def shared_output(name: str, region: str, nbytes: int, offset: int) -> Any:
    output = httpclient.InferRequestedOutput(name)
    output.set_shared_memory(region, nbytes, offset=offset)
    return output


@pytest.mark.parametrize("rows", [1, 8])
def test_tensors_travel_through_two_regions(client: httpclient.InferenceServerClient, rows: int) -> None:
    nbytes = rows * ROW_BYTES
    arrays = [np.random.default_rng(rows + i).integers(-9, 9, (rows, 16), dtype=np.int32) for i in range(2)]
    with shared_object(2 * nbytes) as (source, source_key), shared_object(2 * nbytes + 8) as (target, target_key):
        client.register_system_shared_memory("in", source_key, 2 * nbytes)
        client.register_system_shared_memory("out", target_key, 2 * nbytes, offset=8)
        listed = client.get_system_shared_memory_status()
        assert [(region["name"], region["key"], region["offset"]) for region in listed] == [
            ("in", source_key, 0),
            ("out", target_key, 8),
        ]
        shm.set_shared_memory_region(source, arrays)
        result = client.infer(
            "simple",
            [
                shared_input("INPUT0", [rows, 16], "INT32", "in", nbytes, 0),
                shared_input("INPUT1", [rows, 16], "INT32", "in", nbytes, nbytes),
            ],
            outputs=[shared_output("OUTPUT0", "out", nbytes, 0), shared_output("OUTPUT1", "out", nbytes, nbytes)],
        )
        shape = result.get_output("OUTPUT1")["shape"]
        sums = shm.get_contents_as_numpy(target, np.int32, shape, offset=8)
        differences = shm.get_contents_as_numpy(target, np.int32, shape, offset=8 + nbytes)
        np.testing.assert_array_equal(sums, arrays[0] + arrays[1])
        np.testing.assert_array_equal(differences, arrays[0] - arrays[1])
        del sums, differences


def test_text_travels_and_beside_it_what_the_answer_brings(client: httpclient.InferenceServerClient) -> None:
    texts = np.array([[b"one", "zwölf".encode()]], dtype=np.object_)
    content = serialize_byte_tensor(texts)
    nbytes = len(content.item())
    metadata = client.get_model_metadata("words")
    (name,), (answered,) = ([t["name"] for t in metadata[kind]] for kind in ("inputs", "outputs"))
    with shared_object(4096) as (handle, key):
        client.register_system_shared_memory("texts", key, 4096)
        shm.set_shared_memory_region(handle, [content])
        source = shared_input(name, [1, 2], "BYTES", "texts", nbytes, 0)
        inline = client.infer("words", [source], outputs=[httpclient.InferRequestedOutput(answered)])
        client.infer("words", [source], outputs=[shared_output(answered, "texts", 1024, 2048)])
        there = shm.get_contents_as_numpy(handle, np.object_, [1, 2], offset=2048)
        np.testing.assert_array_equal(there, inline.as_numpy(answered))
        with pytest.raises(InferenceServerException, match="bytes at offset 2048 of shared memory region 'texts' are"):
            client.infer("words", [source], outputs=[shared_output(answered, "texts", 5, 2048)])


def test_a_region_of_one_client_is_known_to_all_connections(
    server: RunningServer, client: httpclient.InferenceServerClient
) -> None:
    """Whichever front end each connection comes to."""
    with shared_object(2 * ROW_BYTES) as (handle, key):
        shm.set_shared_memory_region(handle, [np.ones((1, 16), np.int32)] * 2)
        inputs = [
            shared_input(name, [1, 16], "INT32", "r", ROW_BYTES, index * ROW_BYTES)
            for index, name in enumerate(("INPUT0", "INPUT1"))
        ]
        client.register_system_shared_memory("r", key, 2 * ROW_BYTES)
        for _ in range(8):
            with httpclient.InferenceServerClient(server.address) as other:
                assert other.infer("simple", inputs).as_numpy("OUTPUT0").tolist() == [[2] * 16]
        client.unregister_system_shared_memory("r")
        for _ in range(8):
            with (
                httpclient.InferenceServerClient(server.address) as other,
                pytest.raises(InferenceServerException, match="'r' is not registered"),
            ):
                other.infer("simple", inputs)


def test_an_object_that_shrinks_ends_no_server(server: RunningServer, client: httpclient.InferenceServerClient) -> None:
    large_bytes = 8 * ROW_BYTES
    with shared_object(2 * large_bytes) as (_, key):
        client.register_system_shared_memory("r", key, 2 * large_bytes)
        os.truncate(f"/dev/shm{key}", 10)
        inputs = [
            shared_input(name, [8, 16], "INT32", "r", large_bytes, index * large_bytes)
            for index, name in enumerate(("INPUT0", "INPUT1"))
        ]
        with pytest.raises(InferenceServerException, match="which has 10 bytes by now"):
            client.infer("simple", inputs)
        os.truncate(f"/dev/shm{key}", 2 * large_bytes)
        client.infer("simple", inputs)
    assert server.process.poll() is None


@pytest.mark.parametrize(
    ("key", "told"),
    [("/no-such-object", "is not in /dev/shm"), ("/../dev/null", "no slash but the first"), ("/", "expected the name")],
)
def test_what_is_no_object_cannot_be_registered(client: httpclient.InferenceServerClient, key: str, told: str) -> None:
    with pytest.raises(InferenceServerException, match=told):
        client.register_system_shared_memory("r", key, 64)
    with pytest.raises(InferenceServerException, match="memory of CUDA"):
        client.register_cuda_shared_memory("r", b"handle", 0, 64)
    assert "system_shared_memory" in client.get_server_metadata()["extensions"]
