"""A route's handler that does what the test says."""

from __future__ import annotations

import time

from service.api.exchange import Exchange, Reply
from service.repository.served import ServedModel


class StubHandler:
    """Answers with what the test gives: a reply's chunks, or an error."""

    def __init__(self, outcome: tuple[bytes | memoryview, ...] | BaseException) -> None:
        self.outcome = outcome

    async def answer(self, served: ServedModel, exchange: Exchange) -> Reply:
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        stamps = exchange.stamps
        stamps.parsed = stamps.prepared = stamps.dispatched = stamps.started = time.monotonic_ns()
        stamps.copied_in = stamps.computed = stamps.copied_out = stamps.completed = time.monotonic_ns()
        return Reply(self.outcome, [(b"content-type", b"application/octet-stream")], 3)
