"""`POST /v2/models/M/predict`: media in, meaning out. Media are decoded in a thread pool."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import orjson

from service.api.exchange import Exchange, Reply
from service.errors import ClientGone, InvalidInput, Overloaded
from service.pipeline.media import PreparedMedia
from service.pipeline.task import Task
from service.repository.served import ServedModel
from service.requests import Clock, InferenceRequest, Stamps


class Predict:
    """Answers `predict`. One for the server; on the event loop.

    Args:
        pool: where media are decoded.
        max_preparing: requests that may be in the pool or wait for it; above it they are refused at once.
        clock: monotonic nanoseconds.
    """

    def __init__(self, pool: ThreadPoolExecutor, max_preparing: int, clock: Clock) -> None:
        self._pool = pool
        self._max_preparing = max_preparing
        self._clock = clock
        self._preparing = 0

    async def answer(self, served: ServedModel, exchange: Exchange) -> Reply:
        """Prepares, runs and renders one request.

        Raises:
            ServiceError: whatever is wrong with it, or happened to it.
        """
        stamps = exchange.stamps
        task = _task(served)
        options = exchange.query()
        task.check_options(options)
        stamps.parsed = self._clock()
        prepared = await self._prepare(task, exchange)
        stamps.prepared = self._clock()
        outputs = await exchange.run(served.batcher, _to_request(served, prepared, stamps))
        return Reply(
            (orjson.dumps(task.render(outputs, options)),), [(b"content-type", b"application/json")], prepared.rows
        )

    async def _prepare(self, task: Task, exchange: Exchange) -> PreparedMedia:
        if self._preparing >= self._max_preparing:
            raise Overloaded(
                f"{self._preparing} media requests are being decoded or wait for it, {self._max_preparing} may; "
                "retry later or send less at once",
                retry_after_s=1.0,
            )
        self._preparing += 1
        content_type = exchange.headers.get(b"content-type", b"").decode("latin-1")
        job = self._pool.submit(task.prepare, bytes(exchange.body), content_type)
        exchange.watched.on_gone = job.cancel
        try:
            return await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            if exchange.watched.is_gone:
                raise ClientGone("the client closed its connection before its media were decoded") from None
            raise
        finally:
            self._preparing -= 1


def _task(served: ServedModel) -> Task:
    if served.task is None:
        raise InvalidInput(
            f"model '{served.spec.name}' has no task, so it takes raw tensors only; POST them to "
            f"/v2/models/{served.spec.name}/infer, or set 'task' in its model.toml"
        )
    return served.task


def _to_request(served: ServedModel, prepared: PreparedMedia, stamps: Stamps) -> InferenceRequest:
    batching = served.spec.card.batching
    return InferenceRequest(
        inputs=prepared.inputs,
        rows=prepared.rows,
        dims=(),
        outputs=tuple(range(len(served.spec.outputs))),
        priority=batching.default_priority,
        deadline_ns=stamps.read + batching.default_timeout_ns,
        nbytes=sum(host_input.nbytes for host_input in prepared.inputs),
        stamps=stamps,
    )
