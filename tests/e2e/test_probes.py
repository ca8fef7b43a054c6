"""Experiments that need a real server: requests that it sends to its own address, and the command that waits."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from tests.doubles.running_server import RunningServer, StartServer, make_repository, wait_for

pytestmark = pytest.mark.e2e


def run_over(server: RunningServer, order: dict[str, Any], key: str) -> dict[str, Any]:
    with server.client() as client:
        client.headers["Authorization"] = f"Bearer {key}"
        begun = client.post("/diagnose/probes", json=order)
        assert begun.status_code == 202, begun.text
        seen: list[dict[str, Any]] = []

        def is_over() -> bool:
            seen.append(client.get(begun.headers["location"]).json())
            return bool(seen[-1]["state"] != "running")

        wait_for(is_over, 60)
    return seen[-1]


def test_ceilings_and_the_command_that_waits(start_server: StartServer, tmp_path) -> None:
    server = start_server(make_repository(tmp_path), api_key="theirs", admin_api_key="ours")
    document = run_over(server, {"model": "identity", "probes": ["ceilings"], "mode": "exclusive"}, "ours")
    assert [probe["state"] for probe in document["probes"]] == ["done"], document
    assert document["figures"]["http_rows_per_s"]["value"] > 0
    assert document["figures"]["direct_rows_per_s"]["value"] > 0
    command = [sys.executable, "-m", "service.cli", "diagnose", server.url, "--model", "simple", "--probe", "exclusive"]
    keys = {"INFERLANE_API_KEY": "theirs", "INFERLANE_ADMIN_API_KEY": "ours"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, env={**os.environ, **keys})
    assert "probing model simple in mode exclusive" in done.stderr
    assert "P4 lanes" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1), done.stderr
