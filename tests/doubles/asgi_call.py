"""One request to an ASGI application, by hand: what the client says when the test says so, and what it hears."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Message

WAIT_S = 10


class AsgiCall:
    """Attributes that tests use: `sent`, every message of the application; `task`, in which it runs."""

    def __init__(
        self,
        app: ASGIApp,
        path: str,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        query: bytes = b"",
    ) -> None:
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[Message] = []
        self.send_fails: Exception | None = None
        self.may_send = asyncio.Event()
        self.may_send.set()
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query,
            "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
        }
        self.task = asyncio.get_running_loop().create_task(self._run(app, scope))

    async def _run(self, app: ASGIApp, scope: dict[str, Any]) -> None:
        await app(scope, self._receive, self._send)

    async def _receive(self) -> Message:
        return await self._incoming.get()

    async def _send(self, message: Message) -> None:
        await self.may_send.wait()
        if self.send_fails is not None:
            raise self.send_fails
        self.sent.append(message)

    def says(self, body: bytes, *, more: bool = False) -> AsgiCall:
        self._incoming.put_nowait({"type": "http.request", "body": body, "more_body": more})
        return self

    def leaves(self) -> None:
        self._incoming.put_nowait({"type": "http.disconnect"})

    async def done(self) -> AsgiCall:
        await asyncio.wait_for(asyncio.shield(self.task), WAIT_S)
        return self

    @property
    def answers(self) -> int:
        """How often an answer was begun."""
        return sum(message["type"] == "http.response.start" for message in self.sent)

    @property
    def is_complete(self) -> bool:
        """Whether exactly one answer was sent, from its start to its last part, as its length announced."""
        types = [message["type"] for message in self.sent]
        is_last = [not message.get("more_body", False) for message in self.sent[1:]]
        return (
            types == ["http.response.start"] + ["http.response.body"] * (len(types) - 1)
            and is_last == [False] * (len(types) - 2) + [True]
            and int(self.headers["content-length"]) == len(self.body)
        )

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(bytes(message["body"]) for message in self.sent[1:])

    @property
    def error(self) -> str:
        return str(json.loads(self.body)["error"])
