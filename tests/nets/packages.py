"""Packages that the nets need, fetched by pip into folders of their own and kept; never into the environment.

pip's own index, proxy and cache settings hold. Where it cannot have a package, the test is skipped with its words.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

CACHE = Path("~/.cache/inferlane/nets").expanduser()
PYTHON = f"cp{sys.version_info.major}{sys.version_info.minor}"


def kept(name: str, fill: Callable[[Path], None], cache: Path = CACHE) -> Path:
    """The folder called `name`, which `fill` filled once: it gets its name when it is complete."""
    folder = cache / PYTHON / name
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".filling-") as temporary:
        filled = Path(temporary) / "filled"
        filled.mkdir()
        fill(filled)
        try:
            filled.rename(folder)
        except OSError:
            # Another run was quicker; what it made is as good.
            assert folder.exists()
    return folder


def pip(arguments: Sequence[str], package: str, *, timeout_s: float) -> None:
    """Runs pip for one package, or skips the test."""
    command = [sys.executable, "-m", "pip", *arguments, "--no-input", "--disable-pip-version-check", "--quiet", package]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        pytest.skip(f"pip did not get {package} within {timeout_s:g} s")
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        pytest.skip(f"pip cannot get {package} for {PYTHON}: {errors[-1:] or done.stderr[-200:]}")


def need_tools(*names: str) -> None:
    """Skips the test where a program is missing."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
