"""Runs the application under uvicorn: the socket, the progress bar, the last word."""

from __future__ import annotations

import logging
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress

import uvicorn
from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

import service
from service.app import create_app
from service.errors import ServiceError
from service.repository.loader import LoadProgress
from service.settings import Settings

BACKLOG = 2048
KEEP_ALIVE_S = 75
SWITCH_INTERVAL_S = 0.0005
"""Python's default of 5 ms is longer than most batches: a lane that has finished would wait for the event loop."""


class StartupProgress:
    """A bar per model while its buckets are warmed. Called on worker threads."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("warming {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("buckets {task.fields[bucket]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, progress: LoadProgress) -> None:
        """Shows one step; a model that is loaded again while the server runs starts a new bar."""
        if progress.bucket is None:
            self._progress.start()
            self._tasks[progress.model] = self._progress.add_task(progress.model, total=progress.total, bucket="")
            return
        task = self._tasks[progress.model]
        self._progress.update(task, completed=progress.done, bucket=progress.bucket.label)
        if progress.done == progress.total:
            self._progress.remove_task(task)
            if not self._progress.task_ids:
                self.close()

    def close(self) -> None:
        """Takes the bars off the screen."""
        self._progress.stop()


class InferlaneServer(uvicorn.Server):
    """A uvicorn server that remembers why start-up failed."""

    has_failed = False


def run_server(settings: Settings) -> int:
    """Serves until told to stop; returns the process's exit status. Blocks; takes SIGINT and SIGTERM.

    A model that cannot be loaded ends the server, as in Triton: a service that comes up with a part of its
    models missing is found out later, and by its users. `exit_on_error = false` serves the others instead.
    """
    console = Console(stderr=True)
    logging.basicConfig(
        level=settings.log_level.upper(),
        format="%(message)s",
        handlers=[RichHandler(console=console, show_path=False)],
    )
    try:
        listener = _listen(settings.host, settings.port)
    except OSError as error:
        console.print(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; choose another with --port")
        return 1
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    url = _url(settings.host, listener.getsockname()[1])
    progress = StartupProgress(console)

    def on_started(failures: Mapping[str, ServiceError]) -> None:
        progress.close()
        for name, error in failures.items():
            console.print(Text.assemble((f"{name}: ", "red"), error.message), soft_wrap=True)
        if failures and settings.exit_on_error:
            server.has_failed = server.should_exit = True
            return
        console.print(
            f"Inferlane {service.__version__} is ready at [bold]{url}[/bold] (API: {url}/docs)", soft_wrap=True
        )

    app = create_app(settings, on_progress=progress, on_started=on_started)
    server = InferlaneServer(_config(app, settings))
    # uvicorn raises the signal that ended it once more, after the drain; then it must not end the process early.
    signal.signal(signal.SIGTERM, lambda *_: None)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
    console.print("stopped")
    return 1 if server.has_failed else 0


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def _url(host: str, port: int) -> str:
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{reachable}:{port}"


def _config(app: object, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        access_log=False,
        log_config=None,
        log_level="warning",
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(settings.drain_timeout_s) or None,
        ws="none",
        server_header=False,
        date_header=False,
    )
