"""The client's side of a stream, without a server."""

from __future__ import annotations

import signal
from unittest.mock import Mock

from websockets.sync.client import ClientConnection

from video.stream import FrameStream

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
