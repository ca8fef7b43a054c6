from __future__ import annotations

import asyncio
import gc
import socket

import pytest

from tests.loadtest.tiny_server import TinyServer, inference_server


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_is_just_being_accepted_is_closed_with_the_server(turns: int) -> None:
    """The garbage collector tells of a socket that nobody closed, as a warning, which is an error here."""
    async with TinyServer(inference_server) as server:
        with socket.create_connection((server.endpoint.host, server.endpoint.port)):
            for _ in range(turns):
                await asyncio.sleep(0)
    gc.collect()
