from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from engines.plan_builder import PlanBuilder
from service.errors import SettingsInvalid
from service.processes.orders import Orders, give_orders, take_orders
from service.processes.supervisor import check_arena
from service.settings import Settings

ORDERS = Orders(
    region=1,
    settings=Settings(frontends=2, port=8123, api_key="secret"),  # type: ignore[arg-type]  # as the environment has it
    arena_fd=7,
    listener_fd=None,
    socket_path=Path("engine"),
    url="http://127.0.0.1:8123",
    make_builder=PlanBuilder,
    supervisor_pid=1,
    restarts=3,
)

CHILD = """
import socket, sys, threading
from service.processes.orders import SERVES, end_with_supervisor
control = socket.socket(fileno=int(sys.argv[1]))
control.send(SERVES)
end_with_supervisor(control, within_s=60)
print("waits", flush=True)
threading.Event().wait()
"""


def test_orders_arrive_whole_with_their_secrets() -> None:
    supervisor, child = socket.socketpair()
    with supervisor, child:
        give_orders(supervisor, ORDERS)
        taken = take_orders(child)
    assert taken == ORDERS
    assert taken.settings.api_key is not None
    assert taken.settings.api_key.get_secret_value() == "secret"


def test_a_supervisor_that_ends_in_the_midst_is_noticed() -> None:
    supervisor, child = socket.socketpair()
    with child:
        supervisor.sendall((100).to_bytes(8, "little") + b"half")
        supervisor.close()
        with pytest.raises(EOFError, match="supervisor is gone"):
            take_orders(child)


def test_a_child_ends_with_its_supervisor() -> None:
    """Also with one that has not read what the child said, of which the system tells in another way."""
    supervisor, child = socket.socketpair()
    command = [sys.executable, "-c", CHILD, str(child.fileno())]
    with subprocess.Popen(command, pass_fds=[child.fileno()], stdout=subprocess.PIPE, text=True) as process:
        child.close()
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        supervisor.close()
        assert process.wait(30) == -15


@pytest.mark.parametrize(
    ("frontends", "arena_bytes", "max_body_bytes", "needed"),
    [
        (1, 2 << 20, 1 << 20, 4 << 20),
        (8, 1 << 30, 64 << 20, 2 << 30),
        (1, 2 << 20, (1 << 20) - 1, 4 << 20),
        (2, 4 << 20, (1 << 20) - 64, None),
    ],
)
def test_shared_memory_holds_two_bodies_for_each_front_end(
    frontends: int, arena_bytes: int, max_body_bytes: int, needed: int | None
) -> None:
    settings = Settings(frontends=frontends, arena_bytes=arena_bytes, max_body_bytes=max_body_bytes)
    if needed is None:
        check_arena(settings)
        return
    with pytest.raises(SettingsInvalid, match=f"raise it to {needed}, or lower") as refused:
        check_arena(settings)
    assert f"INFERLANE_ARENA_BYTES is {arena_bytes}" in refused.value.message
    check_arena(settings.model_copy(update={"arena_bytes": needed}))
