"""Runs the application under uvicorn: the socket, the progress bar, the last word."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import logging
import math
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from functools import partial
from types import FrameType

import uvicorn
from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

import service
from service.api.body import ByteBudget
from service.app import BuildPlan, create_app
from service.errors import DeviceError, ServiceError
from service.http_protocol import GuardedProtocol
from service.http_transport import ConnectionLimits
from service.repository.start_up import LoadProgress, Phase
from service.settings import Settings
from service.websocket.protocol import Bounds

BACKLOG = 2048
KEEP_ALIVE_S = 75
SWITCH_INTERVAL_S = 0.0005
"""Python's default of 5 ms is longer than most batches: a lane that has finished would wait for the event loop."""


FORCED_EXIT_STATUS = 128 + signal.SIGINT
"""Of a server that a second SIGINT ended, as shells have it."""

DEVICE_LOST_STATUS = os.EX_IOERR
"""Of a server that lost its GPU."""

DEVICE_LOST_END_S = 5.0
"""Until then its last answers are sent; a thread that hangs in the driver cannot hold it up any longer."""

RESERVED_FILES = 64
"""Open files that are not for connections: libraries, models that are loaded, connections that are being refused."""

PHASE_WORDS = {
    Phase.OPEN: "opening",
    Phase.WARM_UP: "warming",
    Phase.CHECKS: "checking",
    Phase.LANES: "adding lanes to",
}
"""What each phase of a start-up is called while it lasts."""

logger = logging.getLogger(__name__)


class StartupProgress:
    """A bar per model while it is made ready. Called on worker threads."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.fields[phase]} {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("buckets {task.fields[bucket]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, progress: LoadProgress) -> None:
        """Shows one step; a model that is loaded again while the server runs starts a new bar."""
        if progress.is_over:
            if progress.model in self._tasks:
                self._progress.remove_task(self._tasks.pop(progress.model))
            if not self._tasks:
                self.close()
            return
        if progress.model not in self._tasks:
            self._progress.start()
            self._tasks[progress.model] = self._progress.add_task(progress.model, bucket="", phase="")
        self._progress.update(
            self._tasks[progress.model],
            completed=progress.done,
            total=progress.total,
            bucket=progress.bucket.label if progress.bucket else "",
            phase=PHASE_WORDS[progress.phase],
        )

    def close(self) -> None:
        """Takes the bars off the screen."""
        self._progress.stop()


class InferlaneServer(uvicorn.Server):
    """A uvicorn server that remembers why it failed, and that a second SIGINT ends at once."""

    has_failed = False
    has_lost_device = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drains on the first signal. On a second SIGINT there is nothing to be waited for: not for lanes that run."""
        if self.should_exit and sig == signal.SIGINT:
            # Neither Python's streams, which the interrupted code may be writing to, nor destructors, which would
            # wait for the lanes' threads or end in the midst of them.
            os.write(sys.stderr.fileno(), b"stopped at once; requests in progress were dropped\n")
            os._exit(FORCED_EXIT_STATUS)
        super().handle_exit(sig, frame)

    def lose_device(self) -> None:
        """Ends after the answers that are ready, in `DEVICE_LOST_END_S` at the latest.

        Python's own end would wait for threads, and run destructors, that a lost device may hold for ever.
        """
        self.has_failed = self.has_lost_device = self.should_exit = True
        last_end = threading.Timer(DEVICE_LOST_END_S, os._exit, [DEVICE_LOST_STATUS])
        last_end.daemon = True
        last_end.start()


def run_server(settings: Settings, *, build_plan: BuildPlan | None = None) -> int:
    """Serves until told to stop; returns the process's exit status. Blocks; takes SIGINT and SIGTERM.

    Either ends the server after the requests in progress, with 0. A second SIGINT ends the process at once, with 130.

    A model that cannot be loaded ends the server, as in Triton: a service that comes up with a part of its
    models missing is found out later, and by its users. `exit_on_error = false` serves the others instead.

    A GPU that is lost to the process, as after an illegal access, ends it within `DEVICE_LOST_END_S` with
    `DEVICE_LOST_STATUS` and without a return: nothing on the device can be freed, and all else is whole again at once
    when whoever watches the process starts it anew.

    Args:
        settings: of the server.
        build_plan: builds plans that are missing; without it a model is served from what its folder holds.
    """
    console = logging_console(settings.log_level)
    try:
        listener = listen(settings.host, settings.port)
    except OSError as error:
        say_taken(console, settings, error)
        return 1
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    url = server_url(settings.host, listener.getsockname()[1])
    progress = StartupProgress(console)

    def on_started(failures: Mapping[str, ServiceError]) -> None:
        progress.close()
        for name, error in failures.items():
            say(console, (f"{name}: ", "red"), error.message)
        if failures and settings.exit_on_error:
            server.has_failed = server.should_exit = True
            return
        gc.freeze()  # what start-up made stays for good: the collector need not look at it again
        say_ready(console, url)

    def on_device_lost(error: DeviceError) -> None:
        progress.close()
        say(console, ("the GPU is lost to this process, which ends; start it again. ", "red"), error.message)
        server.lose_device()

    budget = ByteBudget(settings.max_in_flight_bytes)
    app = create_app(
        settings,
        on_progress=progress,
        on_started=on_started,
        build_plan=build_plan,
        on_device_lost=on_device_lost,
        budget=budget,
    )
    server = InferlaneServer(server_config(app, settings, raised_file_limit(), budget))
    ignore_signals()
    server.run(sockets=[listener])
    if server.has_lost_device:
        logging.shutdown()
        os._exit(DEVICE_LOST_STATUS)
    if not server.has_failed:
        say(console, "stopped")
    return 0 if server.started and not server.has_failed else 1


def logging_console(level: str) -> Console:
    """Standard error, where the log goes too, so that lines do not break the progress bars."""
    console = Console(stderr=True)
    handler = RichHandler(console=console, show_path=False)
    logging.basicConfig(level=level.upper(), format="%(message)s", handlers=[handler])
    return console


def ignore_signals() -> None:
    """For the drain that a signal begins: uvicorn raises it once more, and the process must not end early."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)


def say(console: Console, *parts: str | tuple[str, str]) -> None:
    """Prints text and (text, style); never as markup, for which addresses and messages in brackets would be taken."""
    console.print(Text.assemble(*parts), soft_wrap=True)


def say_ready(console: Console, url: str) -> None:
    """The word that the server is ready, and where."""
    say(console, f"Inferlane {service.__version__} is ready at ", (url, "bold"), f" (API: {url}/docs)")


def say_taken(console: Console, settings: Settings, error: OSError) -> None:
    """Why the server cannot listen where it should."""
    place = f"{_bracketed(settings.host)}:{settings.port}"
    say(console, f"cannot listen on {place}: {error.strerror}; choose another with --host or --port")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop as uvicorn runs its own on: the fast one, where it is installed."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    import uvloop  # noqa: PLC0415

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def listen(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """A socket that listens; where others shall share its port, one that only holds it for them.

    Raises:
        OSError: somebody has the port, or the address is none of this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        if is_shared:
            _check_free(family, host, port)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        if not is_shared:
            listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _check_free(family: socket.AddressFamily, host: str, port: int) -> None:
    """With SO_REUSEPORT another server's port could be joined; without it, it is refused."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))


def server_url(host: str, port: int) -> str:
    """Where clients on this machine reach the server."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{_bracketed(reachable)}:{port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def server_config(app: object, settings: Settings, max_files: int, budget: ByteBudget) -> uvicorn.Config:
    """How uvicorn runs an application for clients that nobody trusts; `max_files` may be open at once."""
    limits = ConnectionLimits(
        body_timeout_s=settings.body_timeout_s,
        send_timeout_s=settings.send_timeout_s,
        max_connections=_affordable_connections(settings.max_connections, max_files, _reserved_files(settings)),
        overload_status=settings.overload_status,
        websocket=Bounds(
            message_timeout_s=settings.body_timeout_s,
            send_timeout_s=settings.send_timeout_s,
            max_message_bytes=settings.max_body_bytes,
            budget=budget,
        ),
    )
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=partial(GuardedProtocol, limits),  # type: ignore[arg-type]  # uvicorn calls it, and nothing else
        access_log=False,
        log_config=None,
        log_level="warning",
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=math.ceil(settings.drain_timeout_s),
        ws="none",  # WebSockets are opened by GuardedProtocol itself
        server_header=False,
        date_header=False,
    )


def raised_file_limit() -> int:
    """The most files that the process may have open, after it has asked for as many as it is allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # some systems say "no limit" and then refuse it
        return soft
    return hard


def _reserved_files(settings: Settings) -> int:
    """Files that are no connections, those of registered regions among them."""
    return RESERVED_FILES + (settings.max_shared_regions if settings.system_shared_memory_enabled else 0)


def _affordable_connections(max_connections: int, max_files: int, reserved_files: int) -> int:
    """The connections to take at once: beyond the open files nobody would be told that there are too many."""
    if max_files == resource.RLIM_INFINITY or max_connections <= max_files - reserved_files:
        return max_connections
    affordable = max(1, max_files - reserved_files)
    logger.warning(
        "INFERLANE_MAX_CONNECTIONS is %d, but the process may open %d files: %d connections at once; raise `ulimit -n`",
        max_connections,
        max_files,
        affordable,
    )
    return affordable
