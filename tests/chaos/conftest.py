"""Fixtures of the chaos tests."""

from tests.doubles.running_server import server, start_server

__all__ = ["server", "start_server"]
