"""Streams on a real server, by the library that clients use."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import cv2
import httpx
import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from tests.doubles import onnx_models
from tests.doubles.running_server import RunningServer, StartServer, add_model, start_server, wait_for

__all__ = ["start_server"]

pytestmark = pytest.mark.e2e

CLASSIFY = 'task = "classify"\n[batching]\nmax_batch_size = 8\n'
DETECT = 'task = "detect"\nlabels = ["cat", "dog"]\n[preprocess]\nresize = "letterbox"\n[buckets]\nbatch = [1, 4]\n'
NOISE = np.random.default_rng(7).integers(0, 256, (240, 320, 3), np.uint8)
MAX_BODY_BYTES = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, start_server: StartServer) -> RunningServer:
    repository = tmp_path_factory.mktemp("streams")
    add_model(repository, "digits", onnx_models.make_cnn, CLASSIFY)
    add_model(repository, "boxes", onnx_models.make_detector, DETECT)
    return start_server(repository, max_body_bytes=MAX_BODY_BYTES)


@asynccontextmanager
async def opened(server: RunningServer, model: str = "digits", **header: Any) -> AsyncIterator[ClientConnection]:
    url = f"ws://{server.address}/v2/models/{model}/stream"
    async with connect(url, compression=None, max_size=None) as stream:
        await stream.send(json.dumps({"format": "rgb", "width": 320, "height": 240, **header}))
        assert json.loads(await stream.recv())["ready"] is True
        yield stream


async def heard(stream: ClientConnection) -> dict[str, Any]:
    return json.loads(await asyncio.wait_for(stream.recv(), 30))


def jpeg(image: np.ndarray) -> bytes:
    return cv2.imencode(".jpg", image[..., ::-1])[1].tobytes()


def nv12(image: np.ndarray) -> bytes:
    planar = cv2.cvtColor(image, cv2.COLOR_RGB2YUV_I420)
    chroma = planar[len(image) :].reshape(2, -1).T
    return planar[: len(image)].tobytes() + chroma.tobytes()


def is_idle(server: RunningServer) -> bool:
    with server.client() as client:
        text = client.get("/metrics").text
    gauges = ("inferlane_streams ", "inferlane_in_flight_requests{", "inferlane_queue_requests{")
    return all(float(line.split()[-1]) == 0 for line in text.splitlines() if line.startswith(gauges))


async def test_frames_are_answered_as_predict_answers_their_files(server: RunningServer) -> None:
    png = cv2.imencode(".png", NOISE[..., ::-1])[1].tobytes()
    with server.client() as client:
        answer = client.post("/v2/models/digits/predict?top_k=2", content=png)
    assert answer.status_code == 200
    options = {"top_k": "2"}
    async with opened(server, options=options) as stream:
        await stream.send(NOISE.tobytes())
        assert await heard(stream) == {"frame": 0, **answer.json()}
    async with opened(server, format="bgr", options=options) as stream:
        await stream.send(NOISE[..., ::-1].tobytes())
        assert await heard(stream) == {"frame": 0, **answer.json()}


async def test_boxes_of_a_video_are_in_its_own_pixels(server: RunningServer) -> None:
    white = np.full((240, 320, 3), 255, np.uint8)
    for header, frame in [({"format": "nv12"}, nv12(white)), ({"format": "rgb"}, white.tobytes())]:
        async with opened(server, "boxes", **header) as stream:
            await stream.send(frame)
            (result,) = (await heard(stream))["results"]
            assert (result["height"], result["width"]) == (240, 320)
            (found,) = result["detections"]
            assert found["label"] == "dog"
            np.testing.assert_allclose(found["box"], [110, 95, 210, 145], atol=0.1)


async def test_encoded_frames_of_any_size(server: RunningServer) -> None:
    url = f"ws://{server.address}/v2/models/digits/stream"
    async with connect(url) as stream:
        await stream.send('{"format": "jpeg"}')
        await stream.recv()
        for side in (1, 7, 240):
            await stream.send(jpeg(NOISE[:side, :side]))
        assert [(await heard(stream))["frame"] for _ in range(3)] == [0, 1, 2]


async def test_hundreds_of_frames_come_back_in_order(server: RunningServer) -> None:
    async with opened(server, max_in_flight=8) as stream:

        async def send() -> None:
            for number in range(300):
                await stream.send(NOISE.tobytes() if number % 10 else b"bad")

        sending = asyncio.create_task(send())
        answers = [await heard(stream) for _ in range(300)]
        await sending
    assert [answer["frame"] for answer in answers] == list(range(300))
    assert [answer["frame"] for answer in answers if answer.get("status") == 400] == list(range(0, 300, 10))


async def test_a_stream_of_the_latest_says_of_every_frame_what_became_of_it(server: RunningServer) -> None:
    async with opened(server, freshness="latest", max_in_flight=1) as stream:
        for _ in range(100):
            await stream.send(NOISE.tobytes())
        answers = [await heard(stream) for _ in range(100)]
    assert [answer["frame"] for answer in answers] == list(range(100))
    dropped = sum(answer.get("dropped", False) for answer in answers)
    assert dropped + sum("results" in answer for answer in answers) == 100
    assert "results" in answers[-1]


async def test_twenty_streams_at_once(server: RunningServer) -> None:
    async def one(number: int) -> int:
        async with opened(server, max_in_flight=1 + number % 4) as stream:
            for _ in range(10):
                await stream.send(NOISE.tobytes())
            return sum(["results" in await heard(stream) for _ in range(10)])

    before = server.metric("inferlane_requests_total", model="digits", outcome="ok")
    assert await asyncio.gather(*map(one, range(20))) == [10] * 20
    assert server.metric("inferlane_requests_total", model="digits", outcome="ok") - before == 200
    await asyncio.to_thread(wait_for, lambda: is_idle(server))


async def test_pings_are_answered_while_frames_run(server: RunningServer) -> None:
    async with opened(server) as stream:
        await stream.send(NOISE.tobytes())
        await asyncio.wait_for(await stream.ping(), 10)
        assert "results" in await heard(stream)


async def test_a_frame_beyond_the_largest_ends_the_stream(server: RunningServer) -> None:
    async with opened(server) as stream:
        await stream.send(bytes(MAX_BODY_BYTES + 1))
        with pytest.raises(ConnectionClosed) as closed:
            await stream.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
    await asyncio.to_thread(wait_for, lambda: is_idle(server))


@pytest.mark.parametrize("cut", [3, 10, 100_000])
async def test_a_client_that_breaks_off_leaves_nothing(server: RunningServer, cut: int) -> None:
    host, port = server.address.split(":")
    head = (
        f"GET /v2/models/digits/stream HTTP/1.1\r\nHost: {server.address}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    header = b'{"format": "rgb", "width": 320, "height": 240}'
    frame = struct.pack("!BBQ", 0x82, 0xFF, NOISE.nbytes) + bytes(4) + NOISE.tobytes()

    def break_off() -> None:
        with socket.create_connection((host, int(port)), timeout=10) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(head.encode())
            client.recv(4096)
            client.sendall(bytes([0x81, 0x80 | len(header)]) + bytes(4) + header)
            client.recv(4096)
            client.sendall(frame * 3 + frame[:cut])

    await asyncio.to_thread(break_off)
    await asyncio.to_thread(wait_for, lambda: is_idle(server))


async def test_a_model_is_unloaded_and_comes_back_in_mid_stream(server: RunningServer) -> None:
    async with opened(server, "boxes") as stream, httpx.AsyncClient(base_url=server.url, verify=False) as client:
        await stream.send(NOISE.tobytes())
        assert "results" in await heard(stream)
        assert (await client.post("/v2/repository/models/boxes/unload")).status_code == 200
        await stream.send(NOISE.tobytes())
        assert (await heard(stream))["status"] == 503
        assert (await client.post("/v2/repository/models/boxes/load")).status_code == 200
        await stream.send(NOISE.tobytes())
        answer = await heard(stream)
        assert (answer["frame"], "results" in answer) == (2, True)


async def test_a_request_that_is_no_handshake_is_answered_by_http(server: RunningServer) -> None:
    path = "/v2/models/digits/stream"
    offer = {"Connection": "Upgrade", "Upgrade": "websocket"}
    async with httpx.AsyncClient(base_url=server.url, verify=False) as client:
        for headers in ({}, offer, {**offer, "Sec-WebSocket-Key": "short", "Sec-WebSocket-Version": "13"}):
            answer = await client.get(path, headers=headers)
            assert (answer.status_code, answer.headers["sec-websocket-version"]) == (426, "13")
        assert (await client.get("/v2/health/live", headers=offer)).status_code == 200


def test_a_client_that_sends_before_it_is_answered_is_refused(server: RunningServer) -> None:
    host, port = server.address.split(":")
    head = (
        f"GET /v2/models/digits/stream HTTP/1.1\r\nHost: {server.address}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(head.encode() + b"\x81\x80\0\0\0\0")
        assert client.recv(4096).startswith(b"HTTP/1.1 400 ")


async def test_keys_open_streams_and_a_stopping_server_says_so(tmp_path: Any, start_server: StartServer) -> None:
    add_model(tmp_path, "digits", onnx_models.make_cnn, CLASSIFY)
    server = start_server(tmp_path, api_key="secret")
    url = f"ws://{server.address}/v2/models/digits/stream"
    with pytest.raises(InvalidStatus) as refused:
        async with connect(url):
            pass
    assert refused.value.response.status_code == 401
    async with (
        connect(url, additional_headers={"Authorization": "Bearer secret"}) as stream,
        connect(url, subprotocols=[Subprotocol("bearer"), Subprotocol("secret")]) as of_browser,
    ):
        assert of_browser.subprotocol == "bearer"
        for one in (stream, of_browser):
            await one.send('{"format": "png"}')
            assert json.loads(await one.recv())["ready"] is True
        server.process.terminate()
        for one in (stream, of_browser):
            with pytest.raises(ConnectionClosed) as closed:
                await one.recv()
            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1001, "the server is stopping")
    assert await asyncio.to_thread(server.process.wait, 20) == 0
