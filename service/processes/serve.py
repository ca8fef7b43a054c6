"""Serves in one process or in several, as the settings say."""

from __future__ import annotations

from collections.abc import Callable

from service.app import BuildPlan
from service.errors import SettingsInvalid
from service.processes.supervisor import run_supervisor
from service.server import logging_console, run_server, say
from service.settings import Settings


def serve(settings: Settings, *, make_builder: Callable[[], BuildPlan] | None) -> int:
    """Serves until told to stop; returns the exit status. Blocks; takes SIGINT and SIGTERM.

    Args:
        settings: of the server.
        make_builder: makes what builds missing plans; None builds none.
    """
    if not settings.frontends:
        return run_server(settings, build_plan=make_builder() if make_builder else None)
    try:
        return run_supervisor(settings, make_builder=make_builder)
    except SettingsInvalid as error:
        say(logging_console(settings.log_level), error.message)
        return 2
