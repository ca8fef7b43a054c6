"""The demo repository behind a real server. Needs a package index, or pip's cache, or the demo's own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.doubles.running_server import RunningServer, StartServer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def demo_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Laid out by the command that users run; where its downloads fail, tests are skipped, but not in CI."""
    folder = tmp_path_factory.mktemp("demo") / "demo-repository"
    command = [sys.executable, "-m", "service.cli", "demo", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    if done.returncode:
        problem = f"the demo repository cannot be laid out: {done.stderr.strip() or done.stdout.strip()}"
        if os.environ.get("CI"):
            pytest.fail(problem)
        pytest.skip(problem)
    return folder


@pytest.fixture(scope="session")
def demo_server(start_server: StartServer, demo_repository: Path) -> RunningServer:
    """The server of the demo models; says how long it took to be ready."""
    began_s = time.monotonic()
    server = start_server(demo_repository)
    print(f"the demo server was ready after {time.monotonic() - began_s:.1f} s")
    return server


def page_path() -> Path:
    """scikit-image's photo of a printed page, 384 x 191, which lies in its package."""
    import skimage

    return Path(skimage.__file__).parent / "data" / "page.png"
