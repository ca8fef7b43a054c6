"""A front-end process: HTTP on the server's port, over the engine's queues."""

from __future__ import annotations

import gc
import socket
import sys

from service.api.body import ByteBudget
from service.front_end import FrontEnd, Place
from service.processes.orders import Orders
from service.server import (
    BACKLOG,
    SWITCH_INTERVAL_S,
    InferlaneServer,
    ignore_signals,
    logging_console,
    raised_file_limit,
    server_config,
)
from service.transport.memory import SharedMemory


def run_front_end(orders: Orders, index: int) -> int:
    """Serves until it is told to stop; returns the exit status. Blocks; takes SIGTERM."""
    settings = orders.settings
    logging_console(settings.log_level)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    memory = SharedMemory.attach(orders.arena_fd, settings.arena_bytes)
    place = Place(
        index=index,
        count=settings.frontends,
        restarts=orders.restarts,
        socket_path=orders.socket_path,
        host_region=memory.region(index, settings.frontends),
    )
    budget = ByteBudget(settings.max_in_flight_bytes)
    app = FrontEnd(settings, place, budget)
    server = InferlaneServer(server_config(app, settings, raised_file_limit(), budget))
    listener = _listener(orders)
    ignore_signals()
    gc.freeze()
    server.run(sockets=[listener])
    memory.close()
    return 0 if server.started else 1


def _listener(orders: Orders) -> socket.socket:
    if orders.listener_fd is not None:
        return socket.socket(fileno=orders.listener_fd)
    host, port = orders.settings.host, orders.settings.port
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((host, port))
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener
