"""Who uses a model's backend beside its lanes, as the server's experiments on itself do.

Promises: the backend outlives them. Whoever wants to close it asks them to leave, and waits until they have; from then
on nobody comes in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from service.errors import ShuttingDown


class Guests:
    """Those who use one backend; any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._told_to_leave: list[Callable[[], None]] = []
        self._is_leaving = False

    @contextmanager
    def staying(self, on_leave: Callable[[], None]) -> Iterator[None]:
        """Keeps the backend open until the context manager is left.

        Args:
            on_leave: called when it must be left soon, on the thread that wants to close; must not block.

        Raises:
            ShuttingDown: the model is being unloaded.
        """
        with self._changed:
            if self._is_leaving:
                raise ShuttingDown("the model is being unloaded or replaced; try again when it serves")
            self._told_to_leave.append(on_leave)
        try:
            yield
        finally:
            with self._changed:
                self._told_to_leave.remove(on_leave)
                self._changed.notify_all()

    def ask_to_leave(self) -> None:
        """Tells everybody to leave, and lets nobody in any more; does not wait. Idempotent."""
        with self._changed:
            told = () if self._is_leaving else tuple(self._told_to_leave)
            self._is_leaving = True
        for on_leave in told:
            on_leave()

    def wait_until_gone(self) -> None:
        """Asks everybody to leave and blocks until they have."""
        self.ask_to_leave()
        with self._changed:
            self._changed.wait_for(lambda: not self._told_to_leave)
