"""What TensorRT says while it builds, as events; and the only way to make it stop.

The classes are made in functions: their bases are known once TensorRT is imported. TensorRT calls them from threads of
its own, with the GIL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engines.events import LogLine, OnEvent, PhaseFinished, PhaseStarted, PhaseStep
from service.runtime.trt.engine import ErrorLog


def native_logger(module: Any, on_event: OnEvent, errors: ErrorLog) -> Any:
    """A logger that turns warnings and errors into events, and keeps the errors for whoever explains a failure."""
    severities = module.ILogger.Severity
    failures = (severities.INTERNAL_ERROR, severities.ERROR)

    class Logger(module.ILogger):  # type: ignore[misc]
        """As TensorRT's interface asks."""

        def __init__(self) -> None:
            module.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            if severity in failures:
                errors.add(severity, message)
                on_event(LogLine("error", message))
            elif severity == severities.WARNING:
                on_event(LogLine("warning", message))

    return Logger()


def native_monitor(module: Any, on_event: OnEvent, is_cancelled: Callable[[], bool], parent: str | None) -> Any:
    """A progress monitor, or None where TensorRT has none, as 8.6: there a build cannot be stopped from inside."""
    if not hasattr(module, "IProgressMonitor"):
        return None

    class Monitor(module.IProgressMonitor):  # type: ignore[misc]
        """As TensorRT's interface asks."""

        def __init__(self) -> None:
            module.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            on_event(PhaseStarted(phase_name, parent_phase or parent, num_steps))

        def step_complete(self, phase_name: str, step: int) -> bool:
            on_event(PhaseStep(phase_name, step))
            return not is_cancelled()

        def phase_finish(self, phase_name: str) -> None:
            on_event(PhaseFinished(phase_name))

    return Monitor()
