"""The client's side of a stream, without a server."""

from __future__ import annotations

import signal
from unittest.mock import Mock

import numpy as np
import pytest
from websockets.sync.client import ClientConnection

from video.errors import VideoError
from video.source import SourceFrame
from video.stream import FrameStream, open_stream, stream_url

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
