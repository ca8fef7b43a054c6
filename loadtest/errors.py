"""The one error that load generation raises towards its user."""

from __future__ import annotations


class LoadTestError(Exception):
    """The load cannot be run as asked; the message says what was got, what is allowed and how to mend it."""
