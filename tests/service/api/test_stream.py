"""A stream from its opening to its first frame, and what becomes of those that are none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from websockets.frames import CloseCode

from service.api.stream import close_code
from service.errors import (
    DeadlineExceeded,
    InvalidInput,
    ModelNotFound,
    NotReady,
    Overloaded,
    ServiceError,
    UnsupportedMediaType,
)
from tests.doubles.asgi_call import AsgiCall
from tests.doubles.inference_bench import DigitTask
from tests.doubles.stream_bench import MAX_FRAME_BYTES, PATH, StreamBench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[StreamBench]:
    async with StreamBench(tmp_path) as bench:
        yield bench


@pytest.mark.parametrize("path", [PATH, "/v2/models/m/versions/1/stream"])
async def test_a_header_is_answered_with_what_was_agreed_upon(bench: StreamBench, path: str) -> None:
    client = bench.connect(path)
    client.say({"format": "jpeg", "max_in_flight": 2, "freshness": "latest"})
    assert await client.hears() is None
    assert client.sent[0] == {"type": "websocket.accept", "subprotocol": None}
    assert await client.hears() == {
        "ready": True,
        "model_name": "m",
        "model_version": "1",
        "format": "jpeg",
        "max_in_flight": 2,
        "freshness": "latest",
        "max_frame_bytes": MAX_FRAME_BYTES,
    }
    assert bench.recorder.open_streams == 1
    assert bench.budget.held_bytes == 0
    client.leave()
    await client.task
    assert bench.recorder.open_streams == 0
    assert bench.records() == (0, [])


async def test_raw_frames_are_images_of_the_size_that_was_announced(bench: StreamBench) -> None:
    client = await bench.connect().opened(format="rgb", width=4, height=1)
    client.frames(b"123456789012", b"1234567890")
    assert await client.hears() == {"frame": 0, "sums": [20.0, 52.0, 24.0]}
    refused = await client.hears()
    assert refused["status"] == 400
    assert "has 10 bytes, rgb of 4 x 1 pixels has exactly 12" in refused["error"]


async def test_a_browser_is_told_the_subprotocol_that_its_key_came_with(bench: StreamBench) -> None:
    client = bench.connect(subprotocols=("bearer", "key"))
    await client.hears()
    assert client.sent[0] == {"type": "websocket.accept", "subprotocol": "bearer"}


@pytest.mark.parametrize(
    ("path", "header", "code", "reason", "says"),
    [
        (PATH, "nonsense", 1008, "invalid", "not JSON"),
        (PATH, {"format": "jpeg", "options": {"x": "1"}}, 1008, "invalid", "the only option is 'times'"),
        (PATH, {"format": "rgb", "width": 1001, "height": 1}, 1008, "too_large", "INFERLANE_MAX_IMAGE_PIXELS"),
        ("/v2/models/none/stream", {"format": "jpeg"}, 1008, "not_found", "'none'"),
        ("/v2/models/m/versions/7/stream", {"format": "jpeg"}, 1008, "not_found", "7"),
    ],
)
async def test_a_header_that_is_refused_ends_the_stream(
    bench: StreamBench, path: str, header: object, code: int, reason: str, says: str
) -> None:
    client = bench.connect(path)
    client.say(header)
    await client.hears()
    answer = await client.hears()
    assert answer.keys() == {"error"}
    assert says in answer["error"]
    assert await client.hears() == code
    assert client.sent[-1]["reason"] == answer["error"].encode()[:123].decode(errors="ignore")
    assert bench.records() == (0, [reason])


async def test_a_binary_message_is_no_header(bench: StreamBench) -> None:
    client = bench.connect()
    client.frames(b"1234")
    await client.hears()
    assert "first message is binary" in (await client.hears())["error"]
    assert await client.hears() == 1003


async def test_a_task_without_images_takes_no_frames(bench: StreamBench) -> None:
    bench.repository.tasks["m"] = DigitTask()
    await bench.registry.load("m")
    client = bench.connect()
    client.say({"format": "jpeg"})
    await client.hears()
    assert "takes no images; streams are for models that do" in (await client.hears())["error"]
    assert await client.hears() == 1003


async def test_a_header_that_does_not_come_ends_the_stream(bench: StreamBench) -> None:
    client = bench.connect()
    await client.hears()
    assert "header did not come within 0.05 s" in (await client.hears())["error"]
    assert await client.hears() == 1008
    assert bench.recorder.unattributed == []
    assert bench.recorder.failures == ["slow_body"]


async def test_a_header_that_there_is_no_room_for_is_refused(bench: StreamBench) -> None:
    client = bench.connect()
    client.refused_frame()
    await client.hears()
    assert await client.hears() == {"error": "no room"}
    assert await client.hears() == 1013


async def test_a_client_that_leaves_before_its_header_is_let_go(bench: StreamBench) -> None:
    client = bench.connect()
    await client.hears()
    client.leave()
    await asyncio.wait_for(client.task, 10)
    assert [message["type"] for message in client.sent] == ["websocket.accept"]
    assert bench.records() == (0, [])


@pytest.mark.parametrize(("method", "status", "header"), [("GET", 426, "upgrade"), ("POST", 405, "allow")])
async def test_a_request_that_is_no_websocket_is_told_what_the_route_is(
    bench: StreamBench, method: str, status: int, header: str
) -> None:
    call = AsgiCall(bench.streams_endpoint, PATH, method=method)
    await call.done()
    assert (call.status, header in call.headers) == (status, True)
    assert "WebSocket" in json.loads(call.body)["error"]
    assert bench.recorder.unattributed == ["invalid"]


async def test_everything_else_is_passed_on(bench: StreamBench) -> None:
    call = AsgiCall(bench.streams_endpoint, "/v2/models/m/streams")
    await call.task
    assert [scope["path"] for scope in bench.passed_on] == ["/v2/models/m/streams"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInput(""), CloseCode.POLICY_VIOLATION),
        (ModelNotFound(""), CloseCode.POLICY_VIOLATION),
        (UnsupportedMediaType(""), CloseCode.UNSUPPORTED_DATA),
        (Overloaded(""), CloseCode.TRY_AGAIN_LATER),
        (NotReady(""), CloseCode.TRY_AGAIN_LATER),
        (DeadlineExceeded(""), CloseCode.INTERNAL_ERROR),
        (ServiceError(""), CloseCode.INTERNAL_ERROR),
    ],
)
def test_close_codes(error: ServiceError, code: CloseCode) -> None:
    assert close_code(error) == code
