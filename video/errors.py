"""The one error that the video client raises towards its user."""

from __future__ import annotations


class VideoError(Exception):
    """The video cannot be read, sent or written as asked; the message says what was got and how to mend it."""
