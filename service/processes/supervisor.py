"""The process that the user starts when front ends are processes of their own: it starts the others, and watches them.

It serves nothing itself, so nothing that breaks a request can break it. One that ends is started again, later each time
it ends early; an engine that never served ends the server instead, for what is wrong then is not mended by waiting.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from service.app import BuildPlan
from service.errors import SettingsInvalid
from service.processes.backoff import failures_after, restart_delay_s
from service.processes.orders import SERVES, START_UP_FAILED_STATUS, Orders, give_orders
from service.server import FORCED_EXIT_STATUS, listen, logging_console, say, say_taken, server_url
from service.settings import Settings
from service.telemetry.front_ends import ENGINE, process_name
from service.tensors import HOST_ALIGNMENT_BYTES
from service.transport.arena import slot_bytes
from service.transport.memory import SharedMemory, region_bytes

KILL_AFTER_S = 15.0
"""Beyond the drain, until a process that does not end is killed."""

LAST_WORD_S = 1.0
"""For what a process said just before its end to be heard."""

COMMAND = (sys.executable, "-m", "service.processes.child")
"""Starts a process; two words follow: the descriptor over which it hears its orders, and its name, which `ps` shows."""

_log = logging.getLogger(__name__)


def run_supervisor(settings: Settings, *, make_builder: Callable[[], BuildPlan] | None = None) -> int:
    """Serves until told to stop; returns the process's exit status. Blocks; takes SIGINT and SIGTERM, as `run_server`.

    Args:
        settings: of the server; `frontends` is at least 1.
        make_builder: makes what builds missing plans, in the engine process.

    Raises:
        SettingsInvalid: the shared memory is too small, or more than the system gives.
    """
    check_arena(settings)
    console = logging_console(settings.log_level)
    try:
        listener = listen(settings.host, settings.port, is_shared=has_balanced_ports())
    except OSError as error:
        say_taken(console, settings, error)
        return 1
    with (
        listener,
        closing(SharedMemory.create(settings.arena_bytes)) as memory,
        tempfile.TemporaryDirectory(prefix="inferlane-", ignore_cleanup_errors=True) as folder,
    ):
        port = listener.getsockname()[1]
        orders = Orders(
            region=None,
            settings=settings.model_copy(update={"port": port}),
            arena_fd=memory.fd,
            listener_fd=None if has_balanced_ports() else listener.fileno(),
            socket_path=Path(folder, "engine"),
            url=server_url(settings.host, port),
            make_builder=make_builder,
            supervisor_pid=os.getpid(),
            restarts=0,
        )
        return asyncio.run(Supervisor(orders, console).run())


def has_balanced_ports() -> bool:
    """Whether the system shares connections out among the sockets that listen on one port."""
    return sys.platform == "linux"


def check_arena(settings: Settings) -> None:
    """Refuses shared memory in which the largest body and another one like it have no room.

    Raises:
        SettingsInvalid: says how much is needed.
    """
    each = region_bytes(settings.arena_bytes, settings.frontends)
    needed = 2 * slot_bytes(settings.max_body_bytes + HOST_ALIGNMENT_BYTES)
    if each < needed:
        raise SettingsInvalid(
            f"INFERLANE_ARENA_BYTES is {settings.arena_bytes}, {each} for each of {settings.frontends} front ends, and "
            f"two bodies of INFERLANE_MAX_BODY_BYTES = {settings.max_body_bytes} take {needed}; raise it to "
            f"{needed * settings.frontends}, or lower the other"
        )


@dataclass(slots=True, eq=False)
class Child:
    """A process that runs now, or is to be started again.

    Attributes:
        name: as on `/metrics`.
        orders: what it is told.
        process: that runs; None while it is waited for the next start.
        control: this side of what it hears.
        has_served: whether it ever said that it serves.
    """

    name: str
    orders: Orders
    process: asyncio.subprocess.Process | None = None
    control: socket.socket | None = None
    has_served: bool = False


class Supervisor:
    """Starts the processes of a server, and again when they end. On its event loop.

    Args:
        orders: the engine's.
        console: for the last word.
        command: starts a process; see `COMMAND`.
    """

    def __init__(self, orders: Orders, console: Console, command: Sequence[str] = COMMAND) -> None:
        self._console = console
        self._command = command
        self._settings = orders.settings
        self._engine = Child(ENGINE, orders)
        self._front_ends = [
            Child(process_name(index), replace(orders, region=index)) for index in range(orders.settings.frontends)
        ]
        self._signals = 0
        self._end = asyncio.Event()
        self._status = 0

    async def run(self) -> int:
        """Runs until SIGTERM or SIGINT, or until there is no hope; returns the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        watches = [asyncio.create_task(self._watch(child)) for child in (self._engine, *self._front_ends)]
        await self._end.wait()
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        await asyncio.gather(*(self._stop(child) for child in self._front_ends))
        await self._stop(self._engine)
        if not self._status:
            say(self._console, "stopped")
        return self._status

    def _signalled(self, number: int) -> None:
        self._signals += 1
        if self._signals > 1 and number == signal.SIGINT:
            for child in (self._engine, *self._front_ends):
                _kill(child)
            shutil.rmtree(self._engine.orders.socket_path.parent, ignore_errors=True)
            os.write(sys.stderr.fileno(), b"stopped at once; requests in progress were dropped\n")
            os._exit(FORCED_EXIT_STATUS)
        self._end.set()

    async def _watch(self, child: Child) -> None:
        """Keeps one process running."""
        failures = 0
        while True:
            began_s = time.monotonic()
            try:
                status = await self._run(child)
            except OSError as error:  # the system gives no process now, or no more files
                _log.error("%s cannot be started: %s", child.name, error)
                status = os.EX_OSERR
            if child is self._engine and not child.has_served:
                self._status = 1 if status == START_UP_FAILED_STATUS else abs(status) or 1
                self._end.set()
                return
            failures = failures_after(failures, lived_s=time.monotonic() - began_s)
            delay_s = restart_delay_s(failures)
            _log.error("%s ended with status %d; it is started again in %.1f s", child.name, status, delay_s)
            await asyncio.sleep(delay_s)
            child.orders = replace(child.orders, restarts=child.orders.restarts + 1)

    async def _run(self, child: Child) -> int:
        """Starts a process and waits for its end; returns its status.

        Raises:
            OSError: it cannot be started.
        """
        child.control, its_end = socket.socketpair()
        with its_end:
            try:
                process = child.process = await self._started(child, its_end.fileno())
            except BaseException:
                child.control.close()
                raise
        with suppress(OSError):  # it has ended already
            give_orders(child.control, child.orders)  # at once: they are far smaller than what a socket holds
        child.control.setblocking(False)
        listening = asyncio.create_task(_hear(child, child.control))
        try:
            status = await process.wait()
            await asyncio.wait({listening}, timeout=LAST_WORD_S)
            return status
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)  # one that never read its orders breaks the line
            if process.returncode is not None:
                child.control.close()
                child.process = None

    async def _started(self, child: Child, control_fd: int) -> asyncio.subprocess.Process:
        fds, listener_fd = [control_fd, child.orders.arena_fd], child.orders.listener_fd
        if child is not self._engine and listener_fd is not None:
            fds.append(listener_fd)
        return await asyncio.create_subprocess_exec(
            *self._command,
            str(control_fd),
            child.name,
            pass_fds=fds,
            start_new_session=True,  # the terminal's Ctrl-C is for the supervisor alone
        )

    async def _stop(self, child: Child) -> None:
        """Lets a process finish what it has, and kills it if it does not."""
        process = child.process
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), self._settings.drain_timeout_s + KILL_AFTER_S)
        except asyncio.TimeoutError:
            _kill(child)
            await process.wait()
        if child.control is not None:
            child.control.close()


async def _hear(child: Child, control: socket.socket) -> None:
    """Waits for the engine's word that it serves."""
    loop = asyncio.get_running_loop()
    while True:
        word = await loop.sock_recv(control, 1)
        if not word:
            return
        child.has_served = child.has_served or word == SERVES


def _kill(child: Child) -> None:
    if child.process is not None:
        with suppress(ProcessLookupError):
            child.process.kill()
