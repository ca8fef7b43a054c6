"""Runs a module in a process that does not outlive its parent: `python lifeline.py PARENT_PID MODULE`.

A build takes minutes on a whole GPU. When whoever wanted it is killed, nobody is left to end it; so the kernel does,
at once and even in the midst of native code. What the module imports comes from beside this package, never from the
working directory, where a folder of the same name may lie.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
"""Of prctl(2): the signal that this process gets when the thread that started it ends."""

ROOT = Path(__file__).resolve().parents[1]


def end_with_parent(parent_pid: int) -> None:
    """Lets the kernel kill this process when its parent ends; ends it here if that has already happened.

    Raises:
        OSError: the kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if os.getppid() != parent_pid:
        sys.exit(f"process {parent_pid}, which started this one, is gone")


def main(arguments: list[str]) -> None:
    """Binds this process to its parent, then runs the module as `python -m` would."""
    parent_pid, module = arguments
    sys.path[0] = str(ROOT)
    end_with_parent(int(parent_pid))
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
