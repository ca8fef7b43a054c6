"""The client's side of a stream: frames are sent on one thread, and their answers read on another."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

import orjson
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.sync.client import ClientConnection, connect

from video.errors import VideoError
from video.source import SourceFrame

OPEN_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 1.0
"""How long the server may take to say that it has heard the end: an interrupt is not to wait for one that hangs."""

_UNHEARD = logging.Logger("websockets", logging.CRITICAL + 1)
"""The library would write a traceback about a server that says nothing any more, which the user is told anyway."""

MAX_OUTSTANDING_LATEST = 64
"""Frames without an answer where the server drops those that it has no time for."""

MAX_SHOWN = 80
"""Characters of what a server says that is no answer."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A frame and what the server said of it.

    Attributes:
        number: its place in the stream, from 0.
        frame: as it was read.
        answer: the server's JSON object, without `frame`.
        latency_s: seconds from the start of its sending.
    """

    number: int
    frame: SourceFrame
    answer: Mapping[str, Any]
    latency_s: float

    @property
    def is_failed(self) -> bool:
        """Whether the server could do nothing with it."""
        return "error" in self.answer


@dataclass(frozen=True, slots=True)
class _Sent:
    frame: SourceFrame
    at_s: float


class FrameStream:
    """An open stream. `answers` is called once, and ends it.

    Args:
        connection: whose header was accepted.
        max_outstanding: frames that may be sent and not answered.
    """

    def __init__(self, connection: ClientConnection, max_outstanding: int) -> None:
        self._connection = connection
        # Not a semaphore, nor an event: a signal that comes while one is released would wait for its own thread.
        self._places: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(max_outstanding):
            self._places.put(None)
        self._sent: queue.SimpleQueue[_Sent | None] = queue.SimpleQueue()
        self._is_ending = False
        self._error: Exception | None = None

    def end(self) -> None:
        """Sends no more frames; those that are on their way are still answered. Any thread, or a signal."""
        self._is_ending = True
        self._places.put(None)

    def answers(self, frames: Iterator[SourceFrame], encode: Callable[[SourceFrame], bytes]) -> Iterator[Answered]:
        """Sends every frame, and gives each with its answer, in order.

        Args:
            frames: are read on a thread of this call's.
            encode: the message of a frame; called there too.

        Raises:
            VideoError: a frame cannot be read or encoded, or the server ended the stream.
        """
        sender = threading.Thread(target=self._send, args=(frames, encode), name="frames", daemon=True)
        sender.start()
        number = 0
        try:
            while (sent := self._sent.get()) is not None:
                answer = self._hear()
                self._places.put(None)
                if answer.pop("frame") != number:
                    raise VideoError(f"the server did not answer frame {number} when it was its turn")
                yield Answered(number, sent.frame, answer, time.monotonic() - sent.at_s)
                number += 1
        finally:
            self.end()
        sender.join()
        if self._error is not None:
            raise self._error

    def _send(self, frames: Iterator[SourceFrame], encode: Callable[[SourceFrame], bytes]) -> None:
        try:
            for frame in frames:
                self._places.get()
                if self._is_ending:
                    break
                message = encode(frame)
                self._sent.put(_Sent(frame, time.monotonic()))
                self._connection.send(message)
        except ConnectionClosed:
            pass  # the reading side says why
        except Exception as error:  # of the source, for the thread that waits for its answers
            self._error = error
        finally:
            self._sent.put(None)

    def _hear(self) -> dict[str, Any]:
        try:
            answer = _document(self._connection.recv())
        except ConnectionClosed as closed:
            raise VideoError(f"the server ended the stream: {_reason(closed)}") from None
        if "frame" not in answer:
            raise VideoError(f"the server ended the stream: {answer.get('error', answer)}")
        return answer


def open_stream(
    connection: ClientConnection, header: Mapping[str, object], *, max_in_flight: int | None
) -> tuple[FrameStream, Mapping[str, Any]]:
    """Agrees with the server on the frames; returns the stream, and what the server said.

    Raises:
        VideoError: the server refuses them; the message is its own.
    """
    asked = header if max_in_flight is None else {**header, "max_in_flight": max_in_flight}
    try:
        connection.send(orjson.dumps(asked).decode())
        answer = _document(connection.recv(timeout=OPEN_TIMEOUT_S))
    except ConnectionClosed as closed:
        raise VideoError(f"the server ended the stream: {_reason(closed)}") from None
    except TimeoutError:
        raise VideoError(f"the server did not answer the header within {OPEN_TIMEOUT_S:g} s; is it a stream?") from None
    if not answer.get("ready"):
        raise VideoError(f"the server refuses the stream: {answer.get('error', answer)}")
    is_latest, most = answer.get("freshness") == "latest", answer.get("max_in_flight")
    if type(most) is not int or most < 1:
        raise _no_stream(answer)
    return FrameStream(connection, MAX_OUTSTANDING_LATEST if is_latest else most), answer


@contextmanager
def connected(url: str, model: str, api_key: str | None) -> Iterator[ClientConnection]:
    """A connection to the model's stream while the context lasts.

    Raises:
        VideoError: there is no server, or it has no such stream.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else None
    opening = partial(
        connect,
        compression=None,
        max_size=None,
        open_timeout=OPEN_TIMEOUT_S,
        close_timeout=CLOSE_TIMEOUT_S,
        logger=_UNHEARD,
    )
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(opening(stream_url(url, model), additional_headers=headers))
        except (OSError, InvalidHandshake, InvalidURI) as error:
            raise VideoError(f"no stream at {url}: {error}; is the server running, and the key right?") from None
        yield connection


def stream_url(url: str, model: str) -> str:
    """The address of a model's stream on the server at `url`.

    Raises:
        VideoError: `url` is no HTTP address.
    """
    schemes = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port that is no number, or brackets without an address between them
        is_address = False
    if not is_address:
        raise VideoError(f"{url} is no address of a server; give one such as http://127.0.0.1:8000")
    return f"{schemes[parts.scheme]}://{parts.netloc}{parts.path.rstrip('/')}/v2/models/{quote(model, safe='')}/stream"


def _document(message: str | bytes) -> dict[str, Any]:
    """What the server says, which is a JSON object whatever it has to say."""
    try:
        said = orjson.loads(message)
    except orjson.JSONDecodeError:
        raise _no_stream(message) from None
    if not isinstance(said, dict):
        raise _no_stream(said)
    return said


def _no_stream(said: object) -> VideoError:
    return VideoError(
        f"the server says {str(said)[:MAX_SHOWN]!r}, as no stream of Inferlane does; is --url its address?"
    )


def _reason(closed: ConnectionClosed) -> str:
    return closed.rcvd.reason or f"code {closed.rcvd.code}" if closed.rcvd else "the connection was lost"
