"""`inferlane build` and `serve` on a real GPU, as their users run them, with a small model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.doubles import onnx_models
from tests.doubles.running_server import StartServer, add_model, start_server, wait_for

__all__ = ["start_server"]

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(600)]

BUILD = [sys.executable, "-m", "service.cli", "build"]
WAIT_S = 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder, without a plan."""
    add_model(tmp_path, "identity", onnx_models.make_identity, "[batching]\nmax_batch_size = 4\n")
    return tmp_path / "identity"


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "1").iterdir() if path.name != "model.onnx")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_plan_is_built_checked_and_then_left_alone(folder: Path) -> None:
    first = subprocess.run([*BUILD, str(folder), "--json"], capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert first.returncode == 0, first.stderr
    (outcome,) = json.loads(first.stdout)
    accuracy = outcome["report"]["accuracy"]
    assert accuracy["skipped"] == ""
    assert [bucket["bucket"] for bucket in accuracy["buckets"]] == ["4", "2", "1"]
    assert all(bucket["cosine"] >= 0.999 for bucket in accuracy["buckets"])
    assert files(folder) == ["model.plan", "model.plan.json"]

    second = subprocess.run([*BUILD, str(folder), "--json"], capture_output=True, text=True, check=True, timeout=WAIT_S)
    assert json.loads(second.stdout)[0]["state"] == "in place"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_build_that_is_ended_leaves_neither_a_plan_nor_a_process(
    folder: Path, number: signal.Signals, status: int
) -> None:
    with subprocess.Popen([*BUILD, str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as parent:
        wait_for(lambda: bool(files(folder)) or parent.poll() is not None, WAIT_S)
        child = int(files(folder)[0].split(".")[3])
        os.kill(parent.pid, number)
        assert parent.wait(WAIT_S) == status
    wait_for(lambda: not is_alive(child))
    assert not any(name.startswith("model.plan") for name in files(folder))


def test_serve_builds_what_is_missing(folder: Path, start_server: StartServer) -> None:
    server = start_server(folder.parent, wait=False, build_plans_enabled=True)

    def is_ready() -> bool:
        assert server.process.poll() is None, server.log.read_text()
        with suppress(httpx.TransportError), server.client() as client:
            return client.get("/v2/health/ready").status_code == 200
        return False

    wait_for(is_ready, WAIT_S)
    with server.client() as client:
        assert client.get("/v2/models/identity").json()["platform"] == "tensorrt_plan"
        tensor = {"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [1.5] * 16}
        answer = client.post("/v2/models/identity/infer", json={"inputs": [tensor]}).json()
    assert answer["outputs"][0]["data"] == [1.5] * 16
    assert server.stop() == 0
