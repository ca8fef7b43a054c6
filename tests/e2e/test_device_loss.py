"""A GPU that is lost to the process: not ready, answers to whoever waits, one last word, and an end in bounded time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from service.server import DEVICE_LOST_END_S, DEVICE_LOST_STATUS
from tests.doubles.losing_server import HANG, POISON, lay_out

pytestmark = pytest.mark.e2e

WAIT_S = 30
REPOSITORY_ROOT = Path(__file__).parents[2]


class Losing:
    def __init__(self, folder: Path, **environment: str) -> None:
        lay_out(folder / "models")
        self.log = folder / "log"
        command = ["-m", "tests.doubles.losing_server", "serve", "--repository", str(folder / "models"), "--port", "0"]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                cwd=REPOSITORY_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **environment},
            )

    @property
    def said(self) -> str:
        return self.log.read_text()

    def url(self) -> str:
        deadline_s = time.monotonic() + WAIT_S
        while "is ready at" not in self.said:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        return self.said.split("is ready at ")[1].split()[0]


def infer(url: str, value: int) -> httpx.Response:
    tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [value] * 4}
    return httpx.post(f"{url}/v2/models/m/infer", json={"inputs": [tensor]}, timeout=WAIT_S)


def test_a_lost_device_answers_whoever_waits_and_ends_the_process(tmp_path: Path) -> None:
    losing = Losing(tmp_path)
    url = losing.url()
    assert infer(url, 3).json()["outputs"][0]["data"] == [6.0] * 4
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(infer, url, HANG)
        deadline_s = time.monotonic() + WAIT_S
        while "inferlane_in_flight_requests{" not in (text := httpx.get(f"{url}/metrics").text) or (
            'inferlane_in_flight_requests{model="m",version="1"} 0' in text
        ):
            assert time.monotonic() < deadline_s
        began_s = time.monotonic()
        poisoned = infer(url, POISON)
        assert poisoned.status_code == 500
        assert "cudaErrorIllegalAddress" in poisoned.json()["error"]
        assert hanging.result().status_code == 500
    assert losing.process.wait(WAIT_S) == DEVICE_LOST_STATUS
    assert time.monotonic() - began_s < DEVICE_LOST_END_S + 2
    assert losing.said.count("the GPU is lost to this process, which ends; start it again. cudaErrorIllegalAd") == 1
    assert "Traceback" not in losing.said
    assert "stopped" not in losing.said


def test_a_device_that_is_lost_at_start_up_ends_the_process(tmp_path: Path) -> None:
    losing = Losing(tmp_path, LOSES_AT_WARM_UP="1", INFERLANE_EXIT_ON_ERROR="false")
    assert losing.process.wait(WAIT_S) == DEVICE_LOST_STATUS
    assert "the GPU is lost to this process" in losing.said
    assert "is ready" not in losing.said
    assert "Traceback" not in losing.said
