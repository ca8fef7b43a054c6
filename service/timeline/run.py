"""Behind `inferlane diagnose --nsys` and `--ncu`: prints the command, and runs it where the tool is installed."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from service.timeline.commands import ncu_command, nsys_command
from service.timeline.subject import subject_of

Tool = Literal["nsys", "ncu"]

_MISSING = {
    "nsys": "nsys is not installed here: run this beside the GPU, where Nsight Systems is",
    "ncu": "ncu is not installed here: run this beside the GPU, where Nsight Compute is",
}


def show_and_run(
    tool: Tool,
    document: Mapping[str, Any],
    repository: Path,
    console: Console,
    *,
    run: Callable[[Sequence[str]], int] = subprocess.call,
) -> int:
    """Prints the command that looks at what the diagnosis found slow; runs it if the tool is there, and waits for it.

    Args:
        tool: which.
        document: a diagnosis, as the server answers it.
        repository: the model's, on this machine.
        console: where to print.
        run: starts a command and gives its exit status.

    Returns:
        The tool's exit status; 0 where it is not installed.

    Raises:
        InvalidInput: the document has nothing to look at.
    """
    subject = subject_of(document)
    if tool == "nsys":
        command = nsys_command(subject.model, subject.bucket, repository)
    else:
        command = ncu_command(subject.model, subject.bucket, repository, subject.tactic)
    if subject.layer and tool == "ncu":
        console.print(f"layer {subject.layer} of bucket {subject.bucket}:", markup=False, soft_wrap=True)
    console.print(shlex.join(command), markup=False, highlight=False, soft_wrap=True)
    if shutil.which(command[0]) is None:
        console.print(_MISSING[tool], markup=False, soft_wrap=True)
        return 0
    return run(command)
