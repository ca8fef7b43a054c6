"""What clients do to a server under diagnosis, on threads or in a process of their own; loads end by themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Protocol

import cv2
import numpy as np

WINDOW_S = 6.0
"""Seconds that a load lasts and a diagnosis looks back over: a second more than it needs to judge a window."""


class Load(Protocol):
    """Clients of one model."""

    @property
    def seconds(self) -> float:
        """How long they ask."""

    def lasting(self, seconds: float) -> Load:
        """The same clients for another time."""

    def run(self, url: str, model: str) -> None:
        """Asks for that model of the server at `url`; an AssertionError where the load was not what it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A load by `loadtest.bench` for `seconds`, with these options."""

    options: tuple[str, ...]
    seconds: float = WINDOW_S

    def lasting(self, seconds: float) -> Bench:
        return replace(self, seconds=seconds)

    def run(self, url: str, model: str) -> None:
        command = [sys.executable, "-m", "loadtest.bench", model, "--url", url, "--duration", str(self.seconds)]
        with tempfile.TemporaryDirectory() as folder:
            figures = Path(folder) / "figures.json"
            done = subprocess.run(
                [*command, "--warm-up", "0", "--timeout", "5", "--json", str(figures), *self.options],
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
                env={**os.environ, "COLUMNS": "120"},
            )
            # Under overload some requests must fail, and it ends with 1; so does an interpreter, but without figures.
            assert done.returncode in (0, 1), done.stdout + done.stderr
            assert figures.exists(), done.stdout + done.stderr


@dataclass(frozen=True, slots=True, kw_only=True)
class Photos:
    """Photographs of `side` x `side` pixels, sent by `clients` that each wait for their answer."""

    side: int
    clients: int
    seconds: float = WINDOW_S

    def lasting(self, seconds: float) -> Photos:
        return replace(self, seconds=seconds)

    def run(self, url: str, model: str) -> None:
        noise = np.random.default_rng(0).integers(0, 256, (self.side // 16, self.side // 16, 3), np.uint8)
        is_written, jpeg = cv2.imencode(".jpg", cv2.resize(noise, (self.side, self.side)))
        assert is_written
        end = threading.Event()
        threads = [
            threading.Thread(
                target=self._send,
                args=(url.removeprefix("http://"), f"/v2/models/{model}/predict", jpeg.tobytes(), end),
            )
            for _ in range(self.clients)
        ]
        for thread in threads:
            thread.start()
        end.wait(self.seconds)
        end.set()
        for thread in threads:
            thread.join()

    def _send(self, address: str, path: str, jpeg: bytes, end: threading.Event) -> None:
        connection = HTTPConnection(address, timeout=30)
        while not end.is_set():
            connection.request("POST", path, jpeg, {"Content-Type": "image/jpeg"})
            response = connection.getresponse()
            body = response.read()
            assert response.status == 200, body
        connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowUplinks:
    """Clients that come by themselves, `rate` of them a second, and need `upload_s` to send `width` numbers."""

    width: int
    rate: float
    upload_s: float
    seconds: float = WINDOW_S

    def lasting(self, seconds: float) -> SlowUplinks:
        return replace(self, seconds=seconds)

    def run(self, url: str, model: str) -> None:
        host_row = np.ones((1, self.width), "<f4").tobytes()
        head = {"inputs": [{"name": "x", "shape": [1, self.width], "datatype": "FP32"}]}
        head["inputs"][0]["parameters"] = {"binary_data_size": len(host_row)}
        header = json.dumps(head).encode()
        gaps_s = np.random.default_rng(0).exponential(1 / self.rate, int(self.rate * self.seconds))
        address, pause = url.removeprefix("http://"), threading.Event()
        with ThreadPoolExecutor(64) as pool:
            sent = []
            for gap_s in gaps_s:
                pause.wait(gap_s)
                sent.append(pool.submit(self._send, address, f"/v2/models/{model}/infer", header, header + host_row))
        for job in sent:
            job.result()

    def _send(self, address: str, path: str, header: bytes, body: bytes) -> None:
        connection = HTTPConnection(address, timeout=30)
        connection.putrequest("POST", path)
        connection.putheader("Content-Length", str(len(body)))
        connection.putheader("Inference-Header-Content-Length", str(len(header)))
        connection.endheaders()
        pause, parts = threading.Event(), 10
        for part in range(parts):
            connection.send(body[part * len(body) // parts : (part + 1) * len(body) // parts])
            pause.wait(self.upload_s / parts)
        response = connection.getresponse()
        answer = response.read()
        assert response.status == 200, answer
        connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """Clients that each send a row of `width` numbers as JSON, and want the output `wanted` alone of the answer."""

    clients: int
    width: int
    wanted: str
    seconds: float = WINDOW_S

    def lasting(self, seconds: float) -> Readers:
        return replace(self, seconds=seconds)

    def run(self, url: str, model: str) -> None:
        tensor = {"name": "x", "shape": [1, self.width], "datatype": "FP32", "data": [1.0] * self.width}
        body = json.dumps({"inputs": [tensor], "outputs": [{"name": self.wanted}]}).encode()
        end = threading.Event()
        with ThreadPoolExecutor(self.clients) as pool:
            address = url.removeprefix("http://")
            jobs = [
                pool.submit(self._ask, address, f"/v2/models/{model}/infer", body, end) for _ in range(self.clients)
            ]
            end.wait(self.seconds)
            end.set()
        for job in jobs:
            job.result()

    def _ask(self, address: str, path: str, body: bytes, end: threading.Event) -> None:
        connection = HTTPConnection(address, timeout=30)
        while not end.is_set():
            connection.request("POST", path, body)
            response = connection.getresponse()
            answer = response.read()
            assert response.status == 200, answer
        connection.close()
