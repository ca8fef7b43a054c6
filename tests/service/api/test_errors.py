from __future__ import annotations

import asyncio
import logging

import orjson
import pytest
from starlette.types import Message, Receive, Scope, Send

from service.api.errors import ErrorBoundary, error_body, error_headers, error_response, status_of
from service.errors import InvalidInput, NotReady, Overloaded, ServiceError, Unauthorized
from tests.doubles.control_plane import ControlPlane, Options


@pytest.mark.parametrize("error", ServiceError.__subclasses__(), ids=lambda error: error.__name__)
@pytest.mark.parametrize("overload_status", [503, 429])
def test_status(error: type[ServiceError], overload_status: int) -> None:
    expected = overload_status if error is Overloaded else error.status
    assert status_of(error("why"), overload_status) == expected


@pytest.mark.parametrize("text", ["got 'x', allowed is y", "naïve 日本", "undecodable \udcff name", ""])
def test_body_is_always_json(text: str) -> None:
    assert orjson.loads(error_body(InvalidInput(text))) == {"error": text.replace("\udcff", "?")}


@pytest.mark.parametrize(
    ("error", "headers"),
    [
        (InvalidInput("x"), {}),
        (Unauthorized("x"), {"WWW-Authenticate": "Bearer"}),
        (NotReady("x", retry_after_s=0.0), {"Retry-After": "1"}),
        (Overloaded("x", retry_after_s=1.2), {"Retry-After": "2"}),
        (Overloaded("x", retry_after_s=3.0), {"Retry-After": "3"}),
    ],
)
def test_headers(error: ServiceError, headers: dict[str, str]) -> None:
    assert error_headers(error) == headers
    sent = error_response(error, 503).headers
    assert {name: sent[name] for name in headers} == headers


@pytest.mark.parametrize(
    ("method", "path", "status", "told"),
    [
        ("GET", "/nope", 404, "no such route: 'GET /nope'"),
        ("GET", "/v2/models", 404, "no such route"),
        ("GET", "/v2/", 404, "no such route"),
        ("GET", "/a%0Ab", 404, r"'GET /a\nb'"),
        ("GET", "/fault/x?number=a", 400, "query.number: got 'a'"),
        ("GET", "/v2/models/nope", 404, "Request for unknown model: 'nope' is not found"),
    ],
)
async def test_every_refusal_has_an_error(method: str, path: str, status: int, told: str) -> None:
    response = await ControlPlane().request(method, path)
    assert (response.status_code, response.headers["content-type"]) == (status, "application/json")
    assert set(response.json()) == {"error"}
    assert told in response.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v2/logging", "GET, POST"),
        ("DELETE", "/v2/health/live", "GET"),
        ("POST", "/v2/health/ready", "GET"),
        ("GET", "/v2/repository/index", "POST"),
        ("GET", "/v2/models/resnet/versions/3/infer", "POST"),
        ("DELETE", "/v2/models/resnet/trace/setting", "GET, POST"),
    ],
)
async def test_wrong_method_is_told_the_right_ones(method: str, path: str, allowed: str) -> None:
    response = await ControlPlane().request(method, path)
    assert (response.status_code, response.headers["allow"]) == (405, allowed)
    assert allowed.partition(",")[0] in orjson.loads(response.content)["error"]


async def test_head_is_a_wrong_method() -> None:
    response = await ControlPlane().request("HEAD", "/v2/health/live")
    assert (response.status_code, response.headers["allow"], response.content) == (405, "GET", b"")


@pytest.mark.parametrize("status", [503, 429])
async def test_overload_status_is_configurable(status: int) -> None:
    response = await ControlPlane(Options(overload_status=status)).request("GET", "/fault/overload")
    assert (response.status_code, response.headers["retry-after"]) == (status, "1")
    assert response.json() == {"error": "the queue is full"}


async def test_unforeseen_error_is_logged_once_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    response = await ControlPlane().request("GET", "/fault/any%0Athing")
    assert response.status_code == 500
    text = response.json()["error"]
    assert "secret" not in text
    assert "/etc" not in text
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert text.rpartition(" ")[2] in record.getMessage()
    assert "\n" not in record.getMessage()
    assert record.exc_info is not None
    assert "secret of /etc" in str(record.exc_info[1])


async def test_failure_after_the_answer_began_sends_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    async def breaks_off(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise OSError("the disk is gone")

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    await ErrorBoundary(breaks_off)({"type": "http", "method": "GET", "path": "/x"}, receive, send)
    assert [message["type"] for message in sent] == ["http.response.start"]
    assert "'GET /x' failed" in caplog.text


@pytest.mark.parametrize("is_started", [False, True])
async def test_a_request_that_the_server_ends_is_told_so_without_a_traceback(
    caplog: pytest.LogCaptureFixture, is_started: bool
) -> None:
    async def is_cancelled(scope: Scope, receive: Receive, send: Send) -> None:
        if is_started:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise asyncio.CancelledError

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    await ErrorBoundary(is_cancelled)({"type": "http", "method": "GET", "path": "/x"}, receive, send)
    assert [message["status"] for message in sent if "status" in message] == [200 if is_started else 503]
    assert is_started or b"the server stopped before this request was answered" in sent[1]["body"]
    assert caplog.records == []


async def test_lifespan_errors_reach_the_server() -> None:
    async def fails(scope: Scope, receive: Receive, send: Send) -> None:
        raise OSError("no models")

    async def never() -> Message:
        raise AssertionError("nothing is received")

    async def send(message: Message) -> None:
        raise AssertionError("nothing is sent")

    with pytest.raises(OSError, match="no models"):
        await ErrorBoundary(fails)({"type": "lifespan"}, never, send)
