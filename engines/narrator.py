"""A build told in lines, for logs and for output that no terminal shows: what happens, and that it still goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from engines.events import Event, LogLine
from engines.phases import Phases

INTERVAL_S = 15.0

Say = Callable[[str, str], None]
"""Takes a severity, `info`, `warning` or `error`, and a line; called from several threads."""


class Narrator:
    """Passes a build's own lines on, and between them says every while what it is at. Entered, it keeps a thread.

    Args:
        say: takes the lines.
        interval_s: seconds between two lines about the progress. Before 9.1 TensorRT told nothing of it, so a build
            may be silent for minutes.
        clock: monotonic seconds.
    """

    def __init__(
        self, say: Say, *, interval_s: float = INTERVAL_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._interval_s = interval_s
        self._clock = clock
        self._phases = Phases()
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._keep_telling, name="build-narrator", daemon=True)
        self._began_s = 0.0

    def __enter__(self) -> Narrator:
        self._began_s = self._clock()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def __call__(self, event: Event) -> None:
        """Hears an event of the build."""
        with self._lock:
            self._phases.apply(event)
        if isinstance(event, LogLine):
            self._say(event.severity, event.text)

    def _keep_telling(self) -> None:
        while not self._is_over.wait(self._interval_s):
            with self._lock:
                summary = self._phases.summary
            self._say("info", f"{duration_text(self._clock() - self._began_s)} so far ({summary or 'starting'})")


def duration_text(seconds: float) -> str:
    """Such as `45 s` or `2 min 5 s`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
