from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message

from service.api.responses import MAX_ADMIN_BODY_BYTES, JsonResponse, read_json_object
from service.errors import BodyTimeout, ClientGone, InvalidInput, PayloadTooLarge, ServiceError

BODY = orjson.dumps({"parameters": {"unload_dependents": False}, "ready": True})
SCOPE = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b""}


class Sender:
    """A client that sends `chunks` and then, unless it `finishes`, nothing more; counts what was asked of it."""

    def __init__(self, chunks: Sequence[bytes], *, then: Message | None = None, finishes: bool = True) -> None:
        last = len(chunks) - 1
        self._messages: list[Message] = [
            {"type": "http.request", "body": chunk, "more_body": not finishes or index < last}
            for index, chunk in enumerate(chunks)
        ]
        if then is not None:
            self._messages.append(then)
        self.asked = 0

    async def receive(self) -> Message:
        self.asked += 1
        if self._messages:
            return self._messages.pop(0)
        return await asyncio.get_running_loop().create_future()


async def read(sender: Sender, timeout_s: float = 5.0) -> dict[str, Any]:
    return await read_json_object(Request(SCOPE, sender.receive), timeout_s=timeout_s)


@given(cuts=st.lists(st.integers(0, len(BODY)), max_size=6).map(sorted))
def test_chunks_make_no_difference(cuts: list[int]) -> None:
    ends = [*cuts, len(BODY)]
    chunks = [BODY[start:end] for start, end in zip([0, *cuts], ends, strict=True)]
    assert asyncio.run(read(Sender(chunks))) == orjson.loads(BODY)


async def test_empty_body_is_empty_object() -> None:
    assert await read(Sender([b""])) == {}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{", "not valid JSON"),
        (b'{"a": NaN}', "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 2000 + b"]" * 2000, "not valid JSON"),
        (b"[]", "is a JSON list"),
        (b"7", "is a JSON int"),
        (b"null", "is a JSON NoneType"),
    ],
)
async def test_refuses_what_is_no_json_object(body: bytes, told: str) -> None:
    with pytest.raises(InvalidInput, match=told) as caught:
        await read(Sender([body]))
    assert "send a JSON object or an empty body" in caught.value.message


async def test_body_of_the_largest_size_passes() -> None:
    filler = b'{"a":"' + b"x" * (MAX_ADMIN_BODY_BYTES - 8) + b'"}'
    assert len(filler) == MAX_ADMIN_BODY_BYTES
    assert len((await read(Sender([filler])))["a"]) == MAX_ADMIN_BODY_BYTES - 8


async def test_stops_reading_a_body_without_end() -> None:
    sender = Sender([b" " * 1024] * 1000, finishes=False)
    with pytest.raises(PayloadTooLarge, match=str(MAX_ADMIN_BODY_BYTES)):
        await read(sender)
    assert sender.asked == MAX_ADMIN_BODY_BYTES // 1024 + 1


@pytest.mark.parametrize(
    ("sender", "error"),
    [
        (Sender([b"{"], finishes=False), BodyTimeout),
        (Sender([b"{"], finishes=False, then={"type": "http.disconnect"}), ClientGone),
    ],
)
async def test_body_that_never_completes(sender: Sender, error: type[ServiceError]) -> None:
    with pytest.raises(error):
        await read(sender, timeout_s=0.01)


def test_json_response_encodes_tuples_as_arrays() -> None:
    response = JsonResponse({"versions": ("1", "2")})
    assert response.body == b'{"versions":["1","2"]}'
    assert response.headers["content-type"] == "application/json"
