"""What a child process is told, and how it learns that its supervisor is gone: over one pair of sockets each.

The supervisor sends its orders, pickled, and keeps its end open for as long as it lives; the engine answers with a byte
when it serves for the first time. Nothing else is said.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from service.app import BuildPlan
from service.settings import Settings

SERVES = b"!"
_HEAD_BYTES = 8

START_UP_FAILED_STATUS = os.EX_CONFIG
"""Of an engine whose models cannot be loaded: starting it again would change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """Orders of one child.

    Attributes:
        region: index of the front end; None is the engine.
        settings: of the server; `port` is the one that was bound.
        arena_fd: descriptor of the shared memory.
        listener_fd: descriptor of a listening socket; None binds one beside those of the others.
        socket_path: where the engine listens.
        url: of the server, for people.
        make_builder: makes what builds plans; None builds none.
        supervisor_pid: who gives these orders.
        restarts: how often the process was started again.
    """

    region: int | None
    settings: Settings
    arena_fd: int
    listener_fd: int | None
    socket_path: Path
    url: str
    make_builder: Callable[[], BuildPlan] | None
    supervisor_pid: int
    restarts: int


def give_orders(control: socket.socket, orders: Orders) -> None:
    """Sends a child its orders."""
    pickled = pickle.dumps(orders)
    control.sendall(len(pickled).to_bytes(_HEAD_BYTES, "little") + pickled)


def take_orders(control: socket.socket) -> Orders:
    """The orders of this process; blocking.

    Raises:
        EOFError: the supervisor is gone.
    """
    nbytes = int.from_bytes(_exactly(control, _HEAD_BYTES), "little")
    orders = pickle.loads(_exactly(control, nbytes))
    assert isinstance(orders, Orders), "a supervisor sends nothing else"
    return orders


def end_with_supervisor(control: socket.socket, *, within_s: float) -> None:
    """Ends this process when its supervisor has gone, however: with a drain, or without one after `within_s`."""

    def watch() -> None:
        control.setblocking(True)
        with suppress(ConnectionError):  # it ended before it had read what this process said
            while control.recv(1):
                pass
        last_end = threading.Timer(within_s, os._exit, [1])
        last_end.daemon = True
        last_end.start()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="supervisor-watch", daemon=True).start()


def _exactly(control: socket.socket, nbytes: int) -> bytes:
    parts = bytearray()
    while len(parts) < nbytes:
        part = control.recv(nbytes - len(parts))
        if not part:
            raise EOFError("the supervisor is gone")
        parts += part
    return bytes(parts)
