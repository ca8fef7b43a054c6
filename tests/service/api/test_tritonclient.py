"""Unmodified clients against the routes, over a real socket."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator

import pytest
import tritonclient.http as triton
import uvicorn
from tritonclient.utils import InferenceServerException

from service.api.admin_settings import TRACE_SETTINGS
from tests.doubles.control_plane import ControlPlane, Options, with_keys

LOGGER_NAME = "inferlane_test_triton"


class StartedServer(uvicorn.Server):
    """Tells when it listens, so that no test has to poll."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


def serve(plane: ControlPlane) -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = StartedServer(uvicorn.Config(plane.app, log_config=None, access_log=False, lifespan="off"))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        assert server.listening.wait(30)
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture
def address() -> Iterator[str]:
    logging.getLogger(LOGGER_NAME).setLevel(logging.INFO)
    yield from serve(ControlPlane(Options(logger_name=LOGGER_NAME)))


@pytest.fixture
def guarded_address() -> Iterator[str]:
    yield from serve(ControlPlane(with_keys()))


@pytest.fixture
def client(address: str) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(address) as client:
        yield client


def test_health_and_metadata(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("two words")
    assert client.is_model_ready("resnet", "3")
    assert not client.is_model_ready("resnet", "4")
    assert client.get_server_metadata()["name"] == "inferlane"
    assert client.get_model_metadata("two words")["inputs"][0]["name"] == "text"
    assert client.get_model_config("resnet", "3")["max_batch_size"] == 8


def test_repository(client: triton.InferenceServerClient) -> None:
    client.unload_model("resnet", unload_dependents=True)
    assert not client.is_model_ready("resnet")
    states = {entry["name"]: entry["state"] for entry in client.get_model_repository_index()}
    assert states == {"resnet": "UNAVAILABLE", "two words": "READY"}
    client.load_model("resnet")
    assert client.is_model_ready("resnet")


def test_statistics(client: triton.InferenceServerClient) -> None:
    (stats,) = client.get_inference_statistics("resnet", "3")["model_stats"]
    assert (stats["name"], stats["version"], stats["inference_count"]) == ("resnet", "3", 0)
    assert len(client.get_inference_statistics()["model_stats"]) == 2


def test_settings(client: triton.InferenceServerClient) -> None:
    assert client.get_trace_settings() == TRACE_SETTINGS
    assert client.update_trace_settings("resnet", {"trace_level": ["OFF"], "trace_rate": None}) == TRACE_SETTINGS
    settings = client.get_log_settings()
    assert client.update_log_settings(settings) == settings
    assert client.update_log_settings({"log_verbose_level": 1})["log_verbose_level"] == 1


def test_shared_memory(client: triton.InferenceServerClient) -> None:
    client.unregister_system_shared_memory()
    client.unregister_cuda_shared_memory("region")
    assert client.get_system_shared_memory_status() == []
    assert client.get_cuda_shared_memory_status("region") == []


def test_errors_are_understood(client: triton.InferenceServerClient) -> None:
    for call, status, told in (
        (lambda: client.get_model_metadata("no such"), "404", "Request for unknown model: 'no such' is not found"),
        (lambda: client.get_model_config("resnet", "9"), "404", "version 9 is not found"),
        (lambda: client.get_model_metadata("resnet", "x"), "404", "a version is a number"),
        (lambda: client.load_model("no such"), "404", "'no such'"),
        (lambda: client.load_model("resnet", config="{}"), "400", "'config' would override"),
        (lambda: client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]}), "501", "stays OFF"),
        (lambda: client.update_log_settings({"log_file": "x"}), "400", "'log_file' cannot be changed"),
        (lambda: client.register_system_shared_memory("r", "/r", 64), "501", "registers no client memory"),
    ):
        with pytest.raises(InferenceServerException) as caught:
            call()
        assert (caught.value.status(), told in caught.value.message()) == (status, True), caught.value


def test_keys(guarded_address: str) -> None:
    with triton.InferenceServerClient(guarded_address) as client:
        assert client.is_server_ready()
        with pytest.raises(InferenceServerException, match="no API key"):
            client.get_server_metadata()
        reader, keeper = ({"Authorization": f"Bearer {key}"} for key in ("reader", "keeper"))
        assert client.get_server_metadata(headers=reader)["name"] == "inferlane"
        with pytest.raises(InferenceServerException, match="for inference alone"):
            client.unload_model("resnet", headers=reader)
        client.unload_model("resnet", headers=keeper)


def test_body_without_length_is_bounded(address: str) -> None:
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"POST /v2/logging HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n" + b"1\r\n \r\n")
        answer = connection.recv(4096)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b'{"error":' in answer
