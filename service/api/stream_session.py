"""A stream after its header: frames in, answers out in their order, and never more at once than was agreed upon.

Frames run concurrently, each as a request to the model, so they share batches with each other and with everybody's
requests. A stream waits for its own answers alone: with `all`, it reads one further frame while `max_in_flight` are
unanswered, and then TCP holds its client back. With `latest` it reads on, and of the frames that have to wait keeps the
newest. Either way a stream has no more than its share in the model's queue, which is first come, first served.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from starlette.types import Message, Receive, Send
from websockets.frames import CloseCode

from service.api.body import ByteBudget
from service.api.endpoint import UNFORESEEN, record_failure, run_on_current
from service.api.exchange import Exchange, Reply
from service.api.predict import Predict
from service.api.stream_frame import Answer, Frame, dropped, failure, success
from service.api.stream_header import StreamHeader, StreamLimits
from service.api.target import Target
from service.api.watchdog import Watched
from service.errors import ClientGone, ServiceError, ShuttingDown, UnsupportedMediaType
from service.pipeline.steps import Steps
from service.pipeline.task import FrameTask, Task
from service.repository.catalogue import Models
from service.repository.composed import AnyModel
from service.requests import Clock, RequestFacts, StageTimings, Stamps, waits
from service.telemetry.server_recorder import ServerRecorder

MAX_UNANSWERED = 256
"""Frames of a stream of the latest ones that may wait to be answered, dropped ones too: then its client is to read."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """What streams need; made once by `app.py`.

    Attributes:
        registry: the models.
        recorder: counts streams, and what no model can be charged with.
        predict: runs frames.
        budget: bytes that all requests together may hold.
        limits: what a stream may ask for.
        header_timeout_s: seconds within which a stream must say what it is.
        overload_status: status of frames refused for overload.
        clock: monotonic nanoseconds.
    """

    registry: Models
    recorder: ServerRecorder
    predict: Predict
    budget: ByteBudget
    limits: StreamLimits
    header_timeout_s: float
    overload_status: int
    clock: Clock


@dataclass(frozen=True, slots=True)
class End:
    """How a stream ends.

    Attributes:
        code: to close it with; None where its client has closed it, or has gone.
        reason: for people.
        is_settled: whether the frames that were read are answered before.
    """

    code: CloseCode | None
    reason: str = ""
    is_settled: bool = False


class StreamSession:
    """One stream. On the event loop.

    Args:
        streams: what it needs.
        target: the model.
        header: what it agreed upon.
        receive: of its connection.
        send: likewise.
    """

    def __init__(self, streams: Streams, target: Target, header: StreamHeader, receive: Receive, send: Send) -> None:
        self._streams = streams
        self._target = target
        self._header = header
        self._receive = receive
        self._send = send
        self._count = 0
        self._begun = 0
        self._unanswered: deque[Frame] = deque()
        self._waiting: Frame | None = None
        self._has_changed = asyncio.Event()
        self._is_gone = False

    async def run(self) -> End:
        """Answers frames until the client or the server ends the stream. Nothing of it is left afterwards."""
        writer = asyncio.create_task(self._write())
        error: ServiceError = ClientGone("the client closed its stream before this frame was answered")
        try:
            end = await self._read()
            if end.is_settled:
                await self._until(lambda: not self._unanswered or self._is_gone)
            return end
        except asyncio.CancelledError:
            error = ShuttingDown("the server stopped before this frame was answered; send it again")
            raise
        finally:
            writer.cancel()
            await self._give_up(writer, error)

    async def _read(self) -> End:
        """Takes frames as they may be worked on; reads one ahead, and so hears at once when its client leaves."""
        most = MAX_UNANSWERED if self._header.is_latest else self._header.max_in_flight
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                if message.get("is_stopping"):
                    return End(CloseCode.GOING_AWAY, message["reason"], is_settled=True)
                return End(None)
            if "bytes" not in message:
                self._streams.budget.give_back(message["held_bytes"])
                return End(CloseCode.UNSUPPORTED_DATA, "frames are binary messages; only the header is text", True)
            if len(self._unanswered) >= most:
                await self._until_turn(message, most)
            if self._is_gone:
                self._streams.budget.give_back(message["held_bytes"])
                return End(None)
            self._take(message)

    async def _until_turn(self, message: Message, most: int) -> None:
        """Holds a frame back while so many are unanswered; the time that it waits is none of its stages."""
        try:
            await self._until(lambda: len(self._unanswered) < most or self._is_gone)
        except asyncio.CancelledError:
            self._streams.budget.give_back(message["held_bytes"])
            raise
        message["received_ns"] = self._streams.clock()

    def _take(self, message: Message) -> None:
        """Begins to work on a frame, or lets it wait for its turn."""
        task = asyncio.current_task()
        assert task is not None, "streams are served by tasks"
        watched = Watched(self._receive, task, message["received_ns"])
        exchange = Exchange({}, b"", Stamps(message["received_ns"]), watched, message["bytes"])
        outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        frame = Frame(self._count, exchange, len(message["bytes"]), message["held_bytes"], outcome)
        self._count += 1
        self._unanswered.append(frame)
        self._has_changed.set()
        if message["refusal"] is not None:
            self._fail(frame, message["refusal"])
        elif self._begun < self._header.max_in_flight:
            self._begin(frame)
        else:
            if self._waiting is not None:
                self._drop(self._waiting)
            self._waiting = frame

    def _begin(self, frame: Frame) -> None:
        self._begun += 1
        frame.exchange.stamps.read = self._streams.clock()
        frame.task = asyncio.create_task(self._work(frame))

    def _drop(self, frame: Frame) -> None:
        self._release(frame)
        self._streams.recorder.record_dropped_frame()
        frame.outcome.set_result(Answer(dropped(frame.number)))

    async def _work(self, frame: Frame) -> None:
        streams = self._streams
        try:
            served, reply = await run_on_current(streams.registry, self._target, partial(self._run, frame))
            frame.exchange.stamps.rendered = streams.clock()
            body = bytes(reply.chunks[0])
            frame.outcome.set_result(Answer(success(frame.number, body), served, reply.rows, len(body)))
        except ServiceError as error:
            self._fail(frame, error)
        except Exception as error:
            unforeseen = ServiceError(self._noted(error))
            frame.outcome.set_result(Answer(failure(frame.number, unforeseen, streams.overload_status)))
        finally:
            self._release(frame)

    async def _run(self, frame: Frame, served: AnyModel) -> Reply:
        def begin(task: Task) -> Steps:
            return self._header.steps(as_frame_task(task, served), memoryview(frame.exchange.body))

        return await self._streams.predict.run(served, frame.exchange, self._header.options, begin)

    def _fail(self, frame: Frame, error: ServiceError) -> None:
        record_failure(self._streams.registry, self._streams.recorder, self._target, error)
        frame.outcome.set_result(Answer(failure(frame.number, error, self._streams.overload_status)))

    def _release(self, frame: Frame) -> None:
        """Returns what a frame holds of the budget, and its memory."""
        self._streams.budget.give_back(frame.held_bytes)
        frame.held_bytes = 0
        frame.exchange.body = b""

    async def _write(self) -> None:
        """Sends the answers in the order of the frames."""
        try:
            while True:
                await self._until(lambda: bool(self._unanswered))
                frame = self._unanswered[0]
                answer = await asyncio.shield(frame.outcome)  # it is read again where the stream ends
                await self._send({"type": "websocket.send", "text": answer.text})
                self._unanswered.popleft()
                self._settle(frame, answer)
        except OSError:
            pass  # its client has gone, which the connection tells the reading side
        except Exception as error:
            close = {"type": "websocket.close", "code": CloseCode.INTERNAL_ERROR, "reason": self._noted(error)}
            with suppress(OSError):
                await self._send(close)
        finally:
            self._is_gone = True
            self._has_changed.set()

    def _settle(self, frame: Frame, answer: Answer) -> None:
        """Records an answer that was sent, and gives the frame's place to the one that waits."""
        if answer.served is not None:
            stamps = frame.exchange.stamps
            stamps.sent = self._streams.clock()
            facts = RequestFacts(*waits(stamps), body_bytes=frame.nbytes, answer_bytes=answer.nbytes)
            answer.served.recorder.record_request(StageTimings.from_stamps(stamps), answer.rows, facts)
            answer.served.activity.in_flight.add_stay(stamps.received, stamps.sent)
        if frame.task is not None:
            self._begun -= 1
            if self._waiting is not None:
                waiting, self._waiting = self._waiting, None
                self._begin(waiting)
        self._has_changed.set()

    def _noted(self, error: Exception) -> str:
        """Counts and logs what nobody foresaw; returns what the client is told."""
        self._streams.recorder.record_unattributed(UNFORESEEN)
        incident = secrets.token_hex(4)
        logger.error("a stream of model '%s' failed, incident %s", self._target.model, incident, exc_info=error)
        return f"internal error; the server's log has the details of incident {incident}"

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._has_changed.clear()
            await self._has_changed.wait()

    async def _give_up(self, writer: asyncio.Task[None], error: ServiceError) -> None:
        """Ends what is left of a stream; every frame is counted once, those without an answer as `error`."""
        tasks = [writer]
        for frame in self._unanswered:
            frame.exchange.watched.is_gone = True
            if frame.task is not None:
                frame.task.cancel()
                tasks.append(frame.task)
        await asyncio.gather(*tasks, return_exceptions=True)
        for frame in self._unanswered:
            self._release(frame)
            if not frame.outcome.done() or frame.outcome.result().served is not None:
                record_failure(self._streams.registry, self._streams.recorder, self._target, error)


def as_frame_task(task: Task | None, served: AnyModel) -> FrameTask:
    """The task of a model, as one that takes images.

    Raises:
        UnsupportedMediaType: it takes none.
    """
    if isinstance(task, FrameTask):
        return task
    raise UnsupportedMediaType(
        f"model '{served.spec.name}' has the task '{served.spec.card.task}', which takes no images; streams are for "
        "models that do, with the tasks classify, detect and ocr"
    )
