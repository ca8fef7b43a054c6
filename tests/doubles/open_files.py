"""Which files of a folder this process has open: whatever else it opens and closes meanwhile does not count."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def open_files(folder: Path) -> list[str]:
    """Names of the open files below `folder`, each as often as it is open."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one that listed them, and what others close
            target = os.readlink(f"/proc/self/fd/{fd}")
            if target.startswith(f"{folder}/"):
                found.append(target.removeprefix(f"{folder}/"))
    return sorted(found)
