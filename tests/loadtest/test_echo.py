from __future__ import annotations

from typing import Any

import pytest

from loadtest.echo import echo


async def answer_to(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    incoming, sent = iter(messages), []

    async def receive() -> Any:
        return next(incoming)

    async def send(message: Any) -> None:
        sent.append(message)

    await echo({"type": "http"}, receive, send)
    return sent


@pytest.mark.parametrize(
    ("parts", "body"),
    [([b""], b""), ([b"abc"], b"abc"), ([b"ab", b"", b"c"], b"abc"), ([b"x" * 70_000] * 3, b"x" * 210_000)],
)
async def test_answers_the_whole_body(parts: list[bytes], body: bytes) -> None:
    last = len(parts) - 1
    start, end = await answer_to(
        [{"type": "http.request", "body": part, "more_body": index < last} for index, part in enumerate(parts)]
    )
    assert start["status"] == 200
    assert dict(start["headers"])[b"content-length"] == b"%d" % len(body)
    assert end["body"] == body


async def test_a_client_that_left_gets_nothing() -> None:
    assert (
        await answer_to([{"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.disconnect"}]) == []
    )


async def test_only_http() -> None:
    with pytest.raises(RuntimeError, match="websocket"):
        await echo({"type": "websocket"}, None, None)  # type: ignore[arg-type]
