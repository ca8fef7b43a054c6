"""A composed model under three times the load that it can bear: what it refuses, it refuses before it works for it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import cv2
import pytest

from loadtest.connection import parse_url
from loadtest.overload import Plan, run_overload
from tests.doubles.demo_server import demo_repository, page_path
from tests.doubles.running_server import StartServer

__all__ = ["demo_repository"]

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TIMEOUT_MS = 4000


def test_three_times_the_capacity(start_server: StartServer, demo_repository: Path, tmp_path: Path) -> None:
    """The share itself is measured on quiet machines (docs/measurements.md): here neighbours take what they like."""
    for name in ("ocr", "ocr-det", "ocr-rec"):
        shutil.copytree(demo_repository / name, tmp_path / name)
    path = tmp_path / "ocr" / "model.toml"
    own_limit = f"default_timeout_ms = {TIMEOUT_MS}\nmax_queued_requests = 1024\n#"
    path.write_text(path.read_text().replace("max_queued_requests", own_limit))
    server = start_server(tmp_path)
    is_written, lines = cv2.imencode(".png", cv2.imread(str(page_path()))[:60])
    assert is_written
    endpoint = parse_url(server.url)
    request = endpoint.frame("POST", "/v2/models/ocr/predict", (("Content-Type", "image/png"),), lines.tobytes())
    plan = Plan(endpoint, request, concurrencies=(2,), factor=3, seconds=10, timeout_s=20)
    outcome = asyncio.run(run_overload(plan))
    statuses = outcome.overload.statuses
    assert set(statuses) <= {200, 503, 504}
    assert outcome.goodput_share > 0.5, f"without admission a third was left, or less: {outcome}"
    wasted = server.metric("inferlane_requests_total", model="ocr-rec", outcome="overloaded")
    wasted += server.metric("inferlane_requests_total", model="ocr-rec", outcome="timeout")
    assert wasted <= 0.2 * statuses[200], f"most refusals cost no detection: {outcome}"
