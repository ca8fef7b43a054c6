"""The hot route: inference as a raw ASGI endpoint in front of FastAPI's routing.

Paths that end in `/infer` or `/predict` are answered here, without routing tables, request objects or validation
models, and everything else goes on to FastAPI.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

import orjson
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.body import Body, BodyMemory, ByteBudget
from service.api.compression import encode_body, response_encoding
from service.api.errors import error_response
from service.api.exchange import Exchange, Reply
from service.api.target import Target, parse_target
from service.api.watchdog import Watchdog
from service.errors import ClientGone, InvalidInput, ServiceError, ShuttingDown
from service.repository.catalogue import Models
from service.repository.composed import AnyModel
from service.requests import Clock, RequestFacts, StageTimings, Stamps, waits
from service.telemetry.activity import Activity
from service.telemetry.server_recorder import ServerRecorder
from service.units import NS_PER_MS

_STAGES_SENT = StageTimings._fields[:-1]
_SERVER_TIMING = b", ".join(stage.encode() + b";dur=%.3f" for stage in (*_STAGES_SENT, "total"))
UNFORESEEN = "internal"
WRONG_METHOD = "invalid"
SINGLE_HEADERS = frozenset(
    {b"content-length", b"content-type", b"content-encoding", b"inference-header-content-length"}
)
LARGE_BYTES = 64 << 10
"""Above this, compression leaves the event loop: it takes longer than the hand-over to a thread."""


class Handler(Protocol):
    """What a verb does with a request whose body is here."""

    async def answer(self, served: AnyModel, exchange: Exchange) -> Reply:
        """Answers one request, or raises a ServiceError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """What inference over HTTP needs; made once by `app.py`.

    Attributes:
        registry: the models.
        recorder: counts what no model can be charged with.
        handlers: by verb.
        budget: bytes that all requests together may hold.
        memory: where large bodies are read into.
        codec_pool: where bodies are compressed and decompressed; nothing else waits there.
        watchdog: finds clients that stall or leave.
        max_body_bytes: largest body, compressed or not.
        overload_status: status of requests refused for overload.
        server_timing_enabled: whether answers carry their stages.
        clock: monotonic nanoseconds.
    """

    registry: Models
    recorder: ServerRecorder
    handlers: Mapping[str, Handler]
    budget: ByteBudget
    memory: BodyMemory
    codec_pool: Executor
    watchdog: Watchdog
    max_body_bytes: int
    overload_status: int
    server_timing_enabled: bool
    clock: Clock


class InferenceEndpoint:
    """ASGI middleware that answers inference itself. Every request gets exactly one answer, and one record."""

    def __init__(self, app: ASGIApp, inference: Inference) -> None:
        self._app = app
        self._inference = inference

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers inference; passes everything else on."""
        target = parse_target(scope["path"]) if scope["type"] == "http" else None
        if target is None:
            await self._app(scope, receive, send)
        elif scope["method"] != "POST":
            self._inference.recorder.record_unattributed(WRONG_METHOD)
            text = f"method not allowed: '{scope['method']}' on /{target.verb}; this route takes POST"
            await Response(orjson.dumps({"error": text}), 405, {"Allow": "POST"}, "application/json")(
                scope, receive, send
            )
        else:
            await self._answer(target, scope, receive, send)

    async def _answer(self, target: Target, scope: Scope, receive: Receive, send: Send) -> None:
        inference = self._inference
        stamps = Stamps(inference.clock())
        watched = inference.watchdog.sign_in(receive, stamps.received)
        body = Body(inference.budget, inference.max_body_bytes, inference.codec_pool, inference.memory)
        headers = dict(scope["headers"])
        exchange = Exchange(headers, scope["query_string"], stamps, watched)
        activity: Activity | None = None
        try:
            if len(headers) != len(scope["headers"]):
                check_repeated(scope["headers"])
            activity = inference.registry.get(target.model, target.version).activity
            activity.in_flight.enter(stamps.received)
            exchange.body = await body.read(exchange.headers, receive, watched)
            stamps.read = inference.clock()
            served, reply = await run_on_current(
                inference.registry, target, lambda served: inference.handlers[target.verb].answer(served, exchange)
            )
            nbytes = await self._send(reply, exchange, send)
            facts = RequestFacts(*waits(stamps), exchange.is_json, len(exchange.body), nbytes, exchange.encode_ns)
            served.recorder.record_request(StageTimings.from_stamps(stamps), reply.rows, facts)
        except ServiceError as error:
            record_failure(inference.registry, inference.recorder, target, error)
            if not isinstance(error, ClientGone):
                await error_response(error, inference.overload_status)(scope, receive, send)
        except asyncio.CancelledError:
            # The server ends what outlives its drain timeout; its client learns that another server may take it.
            stopped = ShuttingDown("the server stopped before this request was answered; send it again")
            record_failure(inference.registry, inference.recorder, target, stopped)
            if not stamps.rendered:
                await error_response(stopped, inference.overload_status)(scope, receive, send)
            raise
        except Exception:
            inference.recorder.record_unattributed(UNFORESEEN)
            raise
        finally:
            if activity is not None:
                _note_end(activity, stamps, inference.clock)
            body.close()
            inference.watchdog.sign_out(watched)

    async def _send(self, reply: Reply, exchange: Exchange, send: Send) -> int:
        """Sends an answer; returns the bytes of its body."""
        stamps = exchange.stamps
        chunks, headers = reply.chunks, reply.headers
        encoding = response_encoding(exchange.headers.get(b"accept-encoding"))
        if encoding is not None:
            chunks = (await self._encoded(encoding, chunks),)
            headers.append((b"content-encoding", encoding))
        nbytes = sum(memoryview(chunk).nbytes for chunk in chunks)
        headers.append((b"content-length", b"%d" % nbytes))
        stamps.rendered = self._inference.clock()
        if self._inference.server_timing_enabled:
            headers.append((b"server-timing", server_timing(stamps)))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if nbytes <= LARGE_BYTES:
            await send({"type": "http.response.body", "body": b"".join(chunks)})
        else:
            await self._send_large(chunks, nbytes, send)
        stamps.sent = self._inference.clock()
        return nbytes

    async def _send_large(self, chunks: tuple[bytes | memoryview, ...], nbytes: int, send: Send) -> None:
        """Holds the answer's bytes of the budget until its client has read nearly all of it."""
        self._inference.budget.hold(nbytes)
        try:
            for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._inference.budget.give_back(nbytes)

    async def _encoded(self, encoding: bytes, chunks: tuple[bytes | memoryview, ...]) -> bytes:
        if sum(memoryview(chunk).nbytes for chunk in chunks) <= LARGE_BYTES:
            return encode_body(encoding, chunks)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._inference.codec_pool, encode_body, encoding, chunks)


async def run_on_current(
    registry: Models, target: Target, answer: Callable[[AnyModel], Awaitable[Reply]]
) -> tuple[AnyModel, Reply]:
    """Runs a request on the model that serves when it is submitted, even if that is replaced meanwhile.

    Raises:
        ServiceError: as `answer`, and where no such model serves.
    """
    while True:
        served = registry.get(target.model, target.version)
        try:
            return served, await answer(served)
        except ShuttingDown:
            if registry.get(target.model, target.version) is served:
                raise


def _note_end(activity: Activity, stamps: Stamps, clock: Clock) -> None:
    if stamps.sent:
        activity.in_flight.leave(stamps.sent)
    else:
        activity.in_flight.take_back(stamps.received, clock())


def record_failure(registry: Models, recorder: ServerRecorder, target: Target, error: ServiceError) -> None:
    """Counts a failed request with its model, or with none where no such model serves."""
    try:
        served = registry.get(target.model, target.version)
    except ServiceError:
        recorder.record_unattributed(error.reason)
    else:
        served.recorder.record_failure(error.reason)


def check_repeated(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuses a request that says twice how its body is to be read: which of the two is meant nobody can know.

    Raises:
        InvalidInput: names the header.
    """
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in SINGLE_HEADERS and name in seen:
            raise InvalidInput(f"the header '{name.decode('latin-1')}' is repeated; send it once")
        seen.add(name)


def server_timing(stamps: Stamps) -> bytes:
    """The `Server-Timing` header in milliseconds: the stages so far, and the time since the first byte."""
    timings = StageTimings.from_stamps(stamps)
    return _SERVER_TIMING % (*[ns / NS_PER_MS for ns in timings[:-1]], (stamps.rendered - stamps.received) / NS_PER_MS)
