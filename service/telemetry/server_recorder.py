"""What the routes of inference count beside the models' own figures: the seam that a front-end process fills too."""

from __future__ import annotations

from typing import Protocol


class ServerRecorder(Protocol):
    """Counts what belongs to no model. On the event loop."""

    def record_unattributed(self, reason: str) -> None:
        """Counts a failed request of no served model, whose name must not become a label."""

    def record_streams(self, change: int) -> None:
        """Counts a stream that was opened, with 1, or has ended, with -1."""

    def record_dropped_frame(self) -> None:
        """Counts a frame that gave way to a newer one, and never became a request."""
