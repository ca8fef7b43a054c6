"""One plan built in a child process, seen from the parent.

A builder may crash, or be killed where memory runs out; neither takes the server or the command line with it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from engines.child import DEFAULT_PATIENCE, Ending, Patience, run_child
from engines.events import Done, Event, Failed, LogLine, OnEvent, from_line
from engines.plan_files import remove_leftovers
from engines.report import BuildReport
from engines.request import BuildRequest
from engines.serialise import CANCELLED, BuildCancelled
from service.errors import ModelLoadFailed

WORKER = "engines.worker"
TOLD_WORDS = 5
STOPPING = "stopping the builder, which takes a few seconds"

RunBuild: TypeAlias = Callable[[BuildRequest, OnEvent, threading.Event], BuildReport]
"""Builds one plan; blocking. The event, once set, ends it. Raises as `run_build` does."""


def run_build(
    request: BuildRequest,
    on_event: OnEvent,
    is_cut_off: threading.Event,
    *,
    worker: str = WORKER,
    patience: Patience = DEFAULT_PATIENCE,
) -> BuildReport:
    """Builds a plan in a child process; blocking, for minutes.

    Args:
        request: what to build.
        on_event: hears of phases and lines as the child tells them, on the calling thread; never of the end.
        is_cut_off: set by any thread when the plan is no longer wanted. The child then gets SIGINT, SIGTERM and
            SIGKILL, as `patience` says.
        worker: the module that speaks the protocol of `engines.worker`.
        patience: how long the child is waited for.

    Raises:
        BuildCancelled: it was cut off before the plan had its name.
        ModelLoadFailed: the plan cannot be built; the message is the child's own, or says how the child ended and
            what its last words were.
    """
    _refuse_unwritable(request.plan_path.parent)
    if is_cut_off.is_set():
        raise BuildCancelled(CANCELLED)
    ends: list[Done | Failed] = []

    def on_line(line: str) -> bool:
        try:
            event: Event = from_line(line)
        except ValueError:
            return False
        if isinstance(event, Done | Failed):
            ends.append(event)
        else:
            on_event(event)
        return True

    def on_asked() -> None:
        on_event(LogLine("info", STOPPING))

    try:
        ending = run_child(
            worker, request.to_json(), on_line, is_cut_off=is_cut_off, on_asked=on_asked, patience=patience
        )
    finally:
        with suppress(OSError):  # of somebody else's
            remove_leftovers(request.plan_path)
    end = ends[-1] if ends else Failed(_no_word(request, ending), is_cancelled=ending.was_asked)
    if isinstance(end, Failed):
        raise BuildCancelled(CANCELLED) if end.is_cancelled else ModelLoadFailed(end.message)
    if ending.status:
        # The plan has its name already: libraries that fall over each other while they unload harm nobody.
        on_event(LogLine("warning", f"the builder {how_it_ended(ending)} after it had written the plan"))
    return end.report


def how_it_ended(ending: Ending) -> str:
    """An exit status in words, such as `crashed (SIGSEGV)`."""
    if ending.status >= 0:
        return f"ended with exit status {ending.status}"
    name = signal.Signals(-ending.status).name
    if -ending.status == signal.SIGKILL:
        return (
            f"was killed ({name}), as the system does where memory runs out: give the machine or the container more, "
            "or build smaller profiles"
        )
    return f"crashed ({name})"


def _no_word(request: BuildRequest, ending: Ending) -> str:
    words = ending.last_words[-TOLD_WORDS:]
    said = f"; its last words: {' | '.join(words)}" if words else ""
    return (
        f"model '{request.model_folder.name}': the process that built the plan {how_it_ended(ending)}; "
        f"nothing was written{said}"
    )


def _refuse_unwritable(folder: Path) -> None:
    """Said before the minutes of a build, not after them."""
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ModelLoadFailed(
            f"'{folder}' cannot be written, and a plan goes beside its ONNX model; make the folder writable, build the "
            'plan with `inferlane build` where it is, or set backend = "onnxruntime" in the card'
        )
