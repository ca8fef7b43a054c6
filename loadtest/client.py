"""The load client: a bounded set of connections to one endpoint, bounded in time as well.

Everything here runs on one event loop's thread. `loadtest/connection.py` says why this is no general HTTP library.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import cast

from loadtest.arrivals import NS_PER_S
from loadtest.clock import Clock
from loadtest.connection import Answer, Connection, Endpoint, OnAnswer
from loadtest.errors import LoadTestError
from loadtest.records import Failure

EXPIRY_INTERVAL_S = 0.1
"""How often requests are held against their timeout; a timeout is late by this much at most."""


class Client:
    """A bounded set of connections to one endpoint. Used inside its `async with`.

    A request takes an idle connection, else opens one, else waits in order until one is free.
    """

    def __init__(self, endpoint: Endpoint, clock: Clock, *, max_connections: int, timeout_s: float = 30.0) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._max_connections = max_connections
        self._timeout_s = timeout_s
        self._connections: set[Connection] = set()
        self._connecting: dict[asyncio.Task[None], OnAnswer] = {}
        self._idle: list[Connection] = []
        self._waiting: deque[tuple[bytes, OnAnswer]] = deque()
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def endpoint(self) -> Endpoint:
        """Where the requests go."""
        return self._endpoint

    async def __aenter__(self) -> Client:
        self._schedule_expiry()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self.abandon()
        for connection in tuple(self._connections):
            connection.drop()
        await asyncio.sleep(0)  # aborted transports close their sockets in the next turn of the loop

    async def open(self, count: int) -> None:
        """Opens connections ahead of the load, until `count` are open.

        Raises:
            LoadTestError: the server cannot be reached.
        """
        try:
            for _ in range(min(count, self._max_connections) - len(self._connections)):
                self._idle.append(await self._connect())
        except OSError as error:
            raise LoadTestError(
                f"no connection to {self._endpoint.host}:{self._endpoint.port}: {error}; is the server running there?"
            ) from error

    def send(self, request: bytes, on_answer: OnAnswer) -> None:
        """Sends a framed request; `on_answer` is called exactly once, later, on the event loop."""
        if self._idle:
            self._idle.pop().send(request, on_answer)
        elif len(self._connections) + len(self._connecting) < self._max_connections:
            self.on_stale(request, on_answer)
        else:
            self._waiting.append((request, on_answer))

    async def fetch(self, request: bytes) -> Answer:
        """Sends a framed request and waits for what becomes of it; cancellation leaves the request running."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def settle(answer: Answer) -> None:
            if not answered.done():
                answered.set_result(answer)

        self.send(request, settle)
        return await answered

    def expire(self) -> None:
        """Fails every request that was sent longer than the timeout ago."""
        limit_ns = self._clock.now_ns() - round(self._timeout_s * NS_PER_S)
        for connection in tuple(self._connections):
            since_ns = connection.waiting_since_ns
            if since_ns is not None and since_ns <= limit_ns:
                connection.fail(Failure.TIMEOUT)

    def abandon(self) -> None:
        """Fails every request that is still out, or waiting for a connection, as `UNANSWERED`."""
        now_ns = self._clock.now_ns()
        unsent = [*self._connecting.values(), *(on_answer for _, on_answer in self._waiting)]
        for task in self._connecting:
            task.cancel()
        self._connecting.clear()
        self._waiting.clear()
        for on_answer in unsent:
            on_answer(Answer(0, Failure.UNANSWERED, None, None, now_ns))
        for connection in tuple(self._connections):
            if connection.waiting_since_ns is not None:
                connection.fail(Failure.UNANSWERED)

    def on_idle(self, connection: Connection) -> None:
        """Gives a free connection to the request that waits longest, or keeps it for the next one."""
        if self._waiting:
            connection.send(*self._waiting.popleft())
        else:
            self._idle.append(connection)

    def on_gone(self, connection: Connection) -> None:
        """Forgets a connection; a request that waits for one gets a new one."""
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._waiting:
            self.on_stale(*self._waiting.popleft())

    def on_stale(self, request: bytes, on_answer: OnAnswer) -> None:
        """Sends a request on a connection of its own making."""
        task = asyncio.get_running_loop().create_task(self._connect_and_send(request, on_answer))
        self._connecting[task] = on_answer

    async def _connect_and_send(self, request: bytes, on_answer: OnAnswer) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        try:
            connection = await self._connect()
        except OSError as error:
            if self._connecting.pop(task, None) is None:
                return
            if self._waiting:
                self.on_stale(*self._waiting.popleft())
            on_answer(Answer(0, Failure.CONNECT, None, None, self._clock.now_ns(), body=str(error).encode()))
            return
        if self._connecting.pop(task, None) is None:
            connection.drop()  # abandoned while the connection was being made, too late for the cancellation
            return
        connection.send(request, on_answer)

    async def _connect(self) -> Connection:
        connection = Connection(self._clock, self)
        try:
            await asyncio.wait_for(
                asyncio.get_running_loop().create_connection(
                    lambda: connection,
                    self._endpoint.host,
                    self._endpoint.port,
                    ssl=True if self._endpoint.is_tls else None,
                ),
                self._timeout_s,
            )
        except asyncio.TimeoutError as error:
            connection.drop()
            raise OSError(f"no connection within {self._timeout_s:g} s") from error
        except asyncio.CancelledError:
            connection.drop()
            raise
        self._connections.add(connection)
        return connection

    def _schedule_expiry(self) -> None:
        self.expire()
        self._expiry = asyncio.get_running_loop().call_later(EXPIRY_INTERVAL_S, self._schedule_expiry)
