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
from tests.doubles.running_server import RunningServer, StartServer

__all__ = ["demo_repository"]

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.scenario]

TIMEOUT_MS = 4000
LEAST_SHARE = 0.5
ATTEMPTS = 3
"""The capacity is that of another moment: neighbours who come in between take some of the share."""


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
    for attempt in range(ATTEMPTS):
        before = _wasted(server)
        outcome = asyncio.run(run_overload(plan))
        statuses = outcome.overload.statuses
        assert set(statuses) <= {200, 503, 504}
        if outcome.goodput_share > LEAST_SHARE or attempt == ATTEMPTS - 1:
            break
    assert outcome.goodput_share > LEAST_SHARE, f"without admission a third was left, or less: {outcome}"
    refused = statuses[503] + statuses.get(504, 0)
    assert _wasted(server) - before <= refused / 2, f"most refusals cost no detection: {outcome}"


def _wasted(server: RunningServer) -> float:
    """Requests that were detected, and then not recognized."""
    outcomes = ("overloaded", "timeout")
    return sum(server.metric("inferlane_requests_total", model="ocr-rec", outcome=each) for each in outcomes)
