"""Who sends the load of a step: this process, or several others that share it. On one event loop's thread.

One Python process sends some thousand requests a second; a server with several front ends answers more. Processes
share a step so that together they send what one would have: a closed loop's requests in flight are dealt out, an open
loop's send times one after the other in turn. All run in one window of the system's monotonic clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol

from loadtest.arrivals import NS_PER_S
from loadtest.clock import Clock
from loadtest.errors import LoadTestError
from loadtest.figures import Tally, joined, tally
from loadtest.limits import Observation
from loadtest.orders import LENGTH, Failed, Order, Ready, packed
from loadtest.records import Window
from loadtest.session import Session, Share, StepJob, window_of

_SPREAD_NS = NS_PER_S // 10
"""For every process to hear of the window before it starts."""

OnWindow = Callable[[Window, Sequence[int]], Awaitable[Observation]]
"""Watches a window, given the process ids of the generator; runs beside the load."""


class Generator(Protocol):
    """Sends the load of one step after another."""

    async def run(self, clock: Clock, session: Session, job: StepJob, watch: OnWindow) -> tuple[Tally, Observation]:
        """Runs one step; `watch` runs beside it, on the same event loop.

        Raises:
            LoadTestError: the step cannot be run.
        """
        ...


class ThisProcess:
    """Sends everything from the event loop that it is called on."""

    async def run(self, clock: Clock, session: Session, job: StepJob, watch: OnWindow) -> tuple[Tally, Observation]:
        """As `Generator.run`."""
        async with session.prepared(clock, job) as run:
            window = window_of(job.step, clock.now_ns())
            watching = asyncio.ensure_future(watch(window, [os.getpid()]))
            try:
                done = await run(window)
                seen = await watching  # before the tally, which would count as the generator's load
                return tally(done), seen
            finally:
                watching.cancel()


@dataclass(frozen=True, slots=True)
class _Worker:
    process: subprocess.Popen[bytes]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, message: object) -> None:
        self.writer.write(packed(message))
        await self.writer.drain()

    async def receive(self) -> object:
        try:
            (length,) = LENGTH.unpack(await self.reader.readexactly(LENGTH.size))
            message: object = pickle.loads(await self.reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise LoadTestError(
                f"client process {self.process.pid} ended in the middle of a step; fewer --processes or requests may "
                "fit this machine's memory"
            ) from error
        if isinstance(message, Failed):
            raise LoadTestError(message.reason)
        return message


class Processes:
    """Several client processes, for as long as its `async with`.

    Args of the constructor:
        count: of processes; a closed loop of fewer requests in flight uses so many of them.

    After a `LoadTestError` they are of no more use.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._workers: list[_Worker] = []

    async def __aenter__(self) -> Processes:
        try:
            for _ in range(self._count):
                self._workers.append(await _start())
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def run(self, clock: Clock, session: Session, job: StepJob, watch: OnWindow) -> tuple[Tally, Observation]:
        """As `Generator.run`."""
        workers = self._workers[: job.step.concurrency]
        for index, worker in enumerate(workers):
            await worker.send(Order(session, replace(job, share=Share(index, len(workers)))))
        assert all(isinstance(answer, Ready) for answer in await _answers(workers))
        window = window_of(job.step, clock.now_ns() + _SPREAD_NS)
        for worker in workers:
            await worker.send(window)
        watching = asyncio.ensure_future(watch(window, [worker.process.pid for worker in workers]))
        try:
            tallies = [answer for answer in await _answers(workers) if isinstance(answer, Tally)]
            return joined(tallies), await watching
        finally:
            watching.cancel()

    async def _end(self) -> None:
        for worker in self._workers:
            worker.writer.close()
            worker.process.kill()  # it has nothing to save
            worker.process.wait()
        for worker in self._workers:
            with contextlib.suppress(ConnectionError):
                await worker.writer.wait_closed()
        self._workers.clear()


@contextlib.asynccontextmanager
async def generator(count: int) -> AsyncIterator[Generator]:
    """So many client processes, for as long as the block; this one alone for a count of 1."""
    if count == 1:
        yield ThisProcess()
        return
    async with Processes(count) as processes:
        yield processes


async def _answers(workers: Sequence[_Worker]) -> list[object]:
    """The next answer of each; the first failure is raised at once, however long the others take."""
    receipts = [asyncio.ensure_future(worker.receive()) for worker in workers]
    try:
        return await asyncio.gather(*receipts)
    finally:
        for receipt in receipts:
            receipt.cancel()


async def _start() -> _Worker:
    ours, theirs = socket.socketpair()
    with theirs:
        process = _spawn(theirs)
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    return _Worker(process, reader, writer)


def _spawn(connection: socket.socket) -> subprocess.Popen[bytes]:
    # Not asyncio's own way: on some versions of Python that leaves a thread behind for each process.
    command = [sys.executable, "-m", "loadtest.worker", str(connection.fileno())]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[connection.fileno()])
