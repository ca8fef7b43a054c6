"""The engine process: models, queues, figures and diagnosis; its clients are the front ends."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress

from service.app import Composition, compose_server
from service.errors import DeviceError, ServiceError
from service.processes.orders import SERVES, START_UP_FAILED_STATUS, Orders
from service.server import (
    DEVICE_LOST_END_S,
    DEVICE_LOST_STATUS,
    SWITCH_INTERVAL_S,
    StartupProgress,
    logging_console,
    new_event_loop,
    say,
    say_ready,
)
from service.telemetry.front_ends import ENGINE
from service.transport.engine_forward import EngineForwarding
from service.transport.memory import SharedMemory
from service.transport.publish import Publisher
from service.transport.reception import Reception
from service.transport.registration import ArenaRegistration

LOOK_S = 0.02
MAX_WAIT_S = 10.0
"""For the front ends to come, before it is said that the server is ready."""

_log = logging.getLogger(__name__)


def run_engine(orders: Orders, control: socket.socket) -> int:
    """Serves front ends until it is told to stop; returns the exit status. Blocks; takes SIGTERM."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(Engine(orders, control).run())
    finally:
        loop.close()


class Engine:
    """What runs in the engine process. On its event loop.

    Args:
        orders: of this process.
        control: is told when it serves.
    """

    def __init__(self, orders: Orders, control: socket.socket) -> None:
        self._orders = orders
        self._control = control
        self._console = logging_console(orders.settings.log_level)
        self._progress = StartupProgress(self._console)
        self._end = asyncio.Event()
        self._has_started = asyncio.Event()
        self._status = 0
        self._has_lost_device = False

    async def run(self) -> int:
        """Serves until SIGTERM, and then whoever is still there; returns the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end.set)
        orders, settings = self._orders, self._orders.settings
        composed = compose_server(
            settings,
            on_progress=self._progress,
            on_started=self._started,
            build_plan=orders.make_builder() if orders.make_builder else None,
            on_device_lost=self._device_lost,
        )
        memory = SharedMemory.attach(orders.arena_fd, settings.arena_bytes)
        host_regions = [memory.region(index, settings.frontends).data for index in range(settings.frontends)]
        composed.loader.tell(ArenaRegistration(memory.region(0, 1)).opened)
        regions = composed.regions
        publisher = Publisher(composed.registry.catalogue, regions=lambda: regions.all if regions else ())
        composed.registry.tell(publisher)
        composed.recorder.front_ends.started(ENGINE, orders.restarts)
        if regions is not None:
            regions.tell(publisher)
        reception = Reception(
            host_regions,
            publisher,
            composed.recorder,
            lambda channel: EngineForwarding(composed.app, reception.settle, channel),
        )
        async with composed.app.router.lifespan_context(composed.app):
            await self._serve(composed, reception)
        memory.close()
        if os.getppid() != self._orders.supervisor_pid:
            self._leave()
        return self._status

    def _leave(self) -> None:
        """Takes the socket and its folder away, which a supervisor that was killed cannot."""
        with suppress(OSError):
            self._orders.socket_path.unlink(missing_ok=True)  # Python 3.13 takes it away by itself
            self._orders.socket_path.parent.rmdir()

    async def _serve(self, composed: Composition, reception: Reception) -> None:
        self._orders.socket_path.unlink(missing_ok=True)  # left by an engine that was killed
        server = await asyncio.get_running_loop().create_unix_server(reception.connect, str(self._orders.socket_path))
        telling = asyncio.create_task(self._tell_ready(reception))
        await self._end.wait()
        telling.cancel()
        server.close()
        if not self._has_lost_device and not self._status:
            # Front ends that were told to end at the same moment still have requests for this process.
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(reception.left(), self._orders.settings.drain_timeout_s)
        if self._has_lost_device:
            await asyncio.sleep(LOOK_S)  # for the last answers; a lost device may hold any thread for ever
            logging.shutdown()
            os._exit(DEVICE_LOST_STATUS)

    async def _tell_ready(self, reception: Reception) -> None:
        await self._has_started.wait()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._until_complete(reception), MAX_WAIT_S)
        gc.freeze()  # what start-up made stays for good: the collector need not look at it again
        say_ready(self._console, self._orders.url)

    async def _until_complete(self, reception: Reception) -> None:
        while len(reception.sessions) < self._orders.settings.frontends:  # noqa: ASYNC110 - once, at start-up
            await asyncio.sleep(LOOK_S)

    def _started(self, failures: Mapping[str, ServiceError]) -> None:
        self._progress.close()
        for name, error in failures.items():
            say(self._console, (f"{name}: ", "red"), error.message)
        if failures and self._orders.settings.exit_on_error:
            self._status = START_UP_FAILED_STATUS
            self._end.set()
            return
        with suppress(OSError):  # the supervisor has gone, and soon this process
            self._control.send(SERVES)
        self._has_started.set()

    def _device_lost(self, error: DeviceError) -> None:
        self._progress.close()
        say(self._console, ("the GPU is lost to this process, which ends and is started again. ", "red"), error.message)
        self._has_lost_device = True
        last_end = threading.Timer(DEVICE_LOST_END_S, os._exit, [DEVICE_LOST_STATUS])
        last_end.daemon = True
        last_end.start()
        self._end.set()
