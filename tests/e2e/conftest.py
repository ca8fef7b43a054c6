"""Fixtures of the end-to-end tests."""

from tests.doubles.demo_server import demo_repository, demo_server
from tests.doubles.running_server import server, start_server

__all__ = ["demo_repository", "demo_server", "server", "start_server"]
