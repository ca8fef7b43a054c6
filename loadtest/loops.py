"""The closed and the open loop: when to send, and a record of every request.

Closed: so many connections, each sends when its last answer is in. The server sets the pace; measures capacity.
Open: requests leave at times that were fixed beforehand, whatever the server does, and latency counts from those
times; a server that stalls can't hide the requests that it held up (no coordinated omission).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from loadtest.arrivals import MAX_REQUESTS
from loadtest.client import Client
from loadtest.clock import Clock
from loadtest.connection import Answer
from loadtest.errors import LoadTestError
from loadtest.records import Failure, RequestRecord, Window

MAX_FAILURES_IN_A_ROW = 200
"""A closed loop without one answer in so many requests is over: it would only spin against a dead server."""

MAX_SENDS_PER_TURN = 64
"""An open loop that is late sends so many before it looks at answers, which would be stamped late otherwise."""

Fault = Callable[[Answer], "str | None"]
"""Says what is wrong with a 200 answer, or None."""

_PICKS = 4096


@dataclass(frozen=True, slots=True)
class Message:
    """A framed request and the rows that it carries."""

    request: bytes
    rows: int


@dataclass(frozen=True, slots=True)
class StepRun:
    """What a loop brings home.

    Attributes:
        window: the phases that it ran through.
        records: of all requests, warm-up included, in the order of their ends.
        examples: what the first failure of each label said.
    """

    window: Window
    records: list[RequestRecord] = field(default_factory=list)
    examples: dict[str, str] = field(default_factory=dict)


class LoadLoop:
    """Runs one step once. Used on the event loop's thread of its client.

    Args of the constructor:
        client: for this step alone; its remaining requests are abandoned at the end.
        clock: what `window` is told in.
        messages: what to send, drawn at random by `seed`.
        window: the phases of the step.
        fault: says what is wrong with a 200 answer, or None.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        messages: Sequence[Message],
        window: Window,
        fault: Fault,
        seed: int = 0,
    ) -> None:
        self._client = client
        self._clock = clock
        self._messages = messages
        self._fault = fault
        self._picks = np.random.default_rng(seed).integers(len(messages), size=_PICKS).tolist()
        self._run = StepRun(window)
        self._launched = 0
        self._outstanding = 0
        self._failures_in_a_row = 0
        self._is_closed_loop = False
        self._stopped = asyncio.Event()
        self._drained = asyncio.Event()

    async def closed(self, concurrency: int) -> StepRun:
        """Keeps `concurrency` requests in flight until the window's end.

        Raises:
            LoadTestError: the server stopped answering, or answered more requests than can be kept.
        """
        self._is_closed_loop = True
        await self._clock.until(self._run.window.start_ns)
        for _ in range(concurrency):
            self._launch(self._clock.now_ns())
        await self._until(self._run.window.end_ns, self._stopped)
        await self._settle()
        if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
            raise LoadTestError(
                f"{self._failures_in_a_row} requests in a row got no answer; first of each kind: {self._run.examples}; "
                "is the server still running?"
            )
        if self._launched >= MAX_REQUESTS:
            raise LoadTestError(f"a step keeps at most {MAX_REQUESTS} requests; this one needs a shorter --duration")
        return self._run

    async def open(self, offsets_ns: Sequence[int]) -> StepRun:
        """Sends at `offsets_ns` after the window's start, ascending."""
        due_ns = [self._run.window.start_ns + offset_ns for offset_ns in offsets_ns]
        index = 0
        while index < len(due_ns):
            await self._clock.until(due_ns[index])
            now_ns = self._clock.now_ns()
            turn_end = index + MAX_SENDS_PER_TURN
            while index < min(turn_end, len(due_ns)) and due_ns[index] <= now_ns:
                self._launch(due_ns[index])
                index += 1
        await self._settle()
        return self._run

    def _launch(self, intended_ns: int) -> None:
        message = self._messages[self._picks[self._launched % _PICKS]]
        self._launched += 1
        self._outstanding += 1
        self._client.send(message.request, partial(self._on_answer, intended_ns, message.rows))

    def _on_answer(self, intended_ns: int, rows: int, answer: Answer) -> None:
        failure, detail = self._judge(answer)
        record = RequestRecord(
            intended_ns,
            answer.sent_ns,
            answer.first_byte_ns,
            answer.done_ns,
            answer.status,
            failure,
            rows,
            answer.server_timing,
        )
        self._run.records.append(record)
        if failure is not None:
            self._run.examples.setdefault(record.error_label, detail)
        self._outstanding -= 1
        self._failures_in_a_row = 0 if answer.failure is None else self._failures_in_a_row + 1
        if self._is_closed_loop and not self._stopped.is_set():
            self._continue(answer.done_ns)
        if self._outstanding == 0:
            self._drained.set()

    def _judge(self, answer: Answer) -> tuple[Failure | None, str]:
        if answer.failure is not None:
            return answer.failure, answer.body.decode("utf-8", "replace")
        if answer.status != 200:
            return Failure.STATUS, answer.body[:300].decode("utf-8", "replace")
        fault = self._fault(answer)
        return (None, "") if fault is None else (Failure.WRONG, fault)

    def _continue(self, now_ns: int) -> None:
        if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW or self._launched >= MAX_REQUESTS:
            self._stopped.set()
        elif now_ns < self._run.window.end_ns:
            self._launch(self._clock.now_ns())

    async def _settle(self) -> None:
        self._stopped.set()
        if self._outstanding:
            self._drained.clear()
            await self._until(self._run.window.grace_end_ns, self._drained)
        self._client.abandon()

    async def _until(self, at_ns: int, event: asyncio.Event) -> None:
        waits = {asyncio.ensure_future(self._clock.until(at_ns)), asyncio.ensure_future(event.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
