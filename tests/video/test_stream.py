"""The client's side of a stream, without a server."""

from __future__ import annotations

import logging
import re
import signal
import socket
import threading
import time
from unittest.mock import Mock

import numpy as np
import pytest
from websockets.sync.client import ClientConnection
from websockets.utils import accept_key

from video.errors import VideoError
from video.source import SourceFrame
from video.stream import CLOSE_TIMEOUT_S, FrameStream, connected, open_stream, stream_url

INTERRUPTS = 500
INTERVAL_S = 1e-4


def test_a_signal_may_end_a_stream_at_any_time() -> None:
    """Also while its thread is within the stream: a lock there would never be released."""
    stream = FrameStream(Mock(spec=ClientConnection), 4)
    count = 0

    def on_signal(number: int, frame: object) -> None:
        nonlocal count
        count += 1
        stream.end()

    before = signal.signal(signal.SIGVTALRM, on_signal)
    signal.setitimer(signal.ITIMER_VIRTUAL, INTERVAL_S, INTERVAL_S)
    try:
        while count < INTERRUPTS:
            stream.end()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def connection_that_says(*messages: str | bytes) -> ClientConnection:
    connection = Mock(spec=ClientConnection)
    connection.recv.side_effect = messages
    return connection


@pytest.mark.parametrize(
    "said",
    [
        "hello",
        b"\xff",
        "[1]",
        "3",
        '{"ready": true}',
        '{"ready": true, "max_in_flight": "x"}',
        '{"ready": 1, "max_in_flight": 0}',
    ],
)
def test_a_server_that_is_no_stream_is_told_from_its_first_words(said: str | bytes) -> None:
    with pytest.raises(VideoError, match="as no stream of Inferlane does"):
        open_stream(connection_that_says(said), {}, max_in_flight=None)


@pytest.mark.parametrize(
    ("said", "told"),
    [("hello", "says 'hello'"), ("[]", "says '\\[\\]'"), ('{"frame": 7}', "frame 0"), ('{"error": "full"}', "full")],
)
def test_an_answer_that_is_none_ends_the_stream(said: str, told: str) -> None:
    stream = FrameStream(connection_that_says(said), 4)
    frame = SourceFrame(np.zeros((2, 2, 3), np.uint8))
    with pytest.raises(VideoError, match=told):
        list(stream.answers(iter([frame]), lambda frame: b""))


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "http://h:abc", "http://h:99999", "http://[::1", "http://:80", "http://"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(VideoError, match="no address of a server"):
        stream_url(url, "m")


def test_a_server_that_hangs_is_left_soon_and_without_a_traceback() -> None:
    is_left = threading.Event()

    def serve(listener: socket.socket) -> None:
        served, _ = listener.accept()
        with served:
            found = re.search(rb"Sec-WebSocket-Key: (\S+)", served.recv(4096))
            assert found is not None
            accepted = accept_key(found[1].decode())
            served.sendall(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Accept: %s\r\n\r\n" % accepted.encode()
            )
            is_left.wait(10 * CLOSE_TIMEOUT_S)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,))
        server.start()
        with connected(f"http://127.0.0.1:{listener.getsockname()[1]}", "m", None) as connection:
            assert not connection.logger.isEnabledFor(logging.CRITICAL)
            began_s = time.monotonic()
        assert time.monotonic() - began_s < 5 * CLOSE_TIMEOUT_S
        is_left.set()
        server.join()
