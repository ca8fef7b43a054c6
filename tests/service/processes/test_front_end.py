from __future__ import annotations

import os
import socket
from dataclasses import replace

import pytest

from service.processes.front_end import _listener
from service.processes.supervisor import has_balanced_ports
from service.server import listen
from service.settings import Settings
from tests.service.processes.test_orders import ORDERS


@pytest.mark.skipif(not has_balanced_ports(), reason="ports are not shared here")
def test_front_ends_listen_on_one_port_each_by_itself() -> None:
    with listen("127.0.0.1", 0, is_shared=True) as held:
        address = held.getsockname()
        orders = replace(ORDERS, settings=Settings(host=address[0], port=address[1]))
        with _listener(orders) as first, _listener(orders) as second:
            assert first.getsockname() == second.getsockname() == address
            with socket.create_connection(address, timeout=30):
                pass


def test_elsewhere_they_take_the_socket_that_was_handed_down() -> None:
    with listen("127.0.0.1", 0) as held, _listener(replace(ORDERS, listener_fd=os.dup(held.fileno()))) as listener:
        assert listener.getsockname() == held.getsockname()
