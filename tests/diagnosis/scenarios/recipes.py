"""Faults by their names: what is served, how, and under which load.

A recipe provokes one class on the CPU backend by configuration or load alone. Loads are those of `loadtest.bench`, run
in a process of its own; rates are low enough for two cores that are shared with others.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import cv2
import numpy as np

from service.diagnosis.finding import BottleneckClass
from tests.doubles.scenario_models import (
    make_echo,
    make_grinder,
    make_image_classifier,
    make_reader,
    make_worker,
)

MODEL = "m"
IMAGES_CARD = """
task = "classify"
[batching]
max_batch_size = 8
[preprocess]
resize = "stretch"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A load by `loadtest.bench` for `seconds`, with these options."""

    options: tuple[str, ...]
    seconds: float = 8.0

    def run(self, url: str) -> None:
        import subprocess
        import sys

        command = [sys.executable, "-m", "loadtest.bench", MODEL, "--url", url, "--duration", str(self.seconds)]
        done = subprocess.run(
            [*command, "--warm-up", "0", "--timeout", "5", *self.options],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
            env={**os.environ, "COLUMNS": "120"},
        )
        # 1 says that some requests failed, as under overload they must.
        assert done.returncode in (0, 1), done.stdout + done.stderr


@dataclass(frozen=True, slots=True, kw_only=True)
class Photos:
    """Photographs of `side` x `side` pixels, sent by `clients` that each wait for their answer."""

    side: int
    clients: int
    seconds: float = 8.0

    def run(self, url: str) -> None:
        noise = np.random.default_rng(0).integers(0, 256, (self.side // 16, self.side // 16, 3), np.uint8)
        is_written, jpeg = cv2.imencode(".jpg", cv2.resize(noise, (self.side, self.side)))
        assert is_written
        end = threading.Event()
        threads = [
            threading.Thread(target=self._send, args=(url.removeprefix("http://"), jpeg.tobytes(), end))
            for _ in range(self.clients)
        ]
        for thread in threads:
            thread.start()
        end.wait(self.seconds)
        end.set()
        for thread in threads:
            thread.join()

    def _send(self, address: str, jpeg: bytes, end: threading.Event) -> None:
        connection = HTTPConnection(address, timeout=30)
        while not end.is_set():
            connection.request("POST", f"/v2/models/{MODEL}/predict", jpeg, {"Content-Type": "image/jpeg"})
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
    seconds: float = 8.0

    def run(self, url: str) -> None:
        host_row = np.ones((1, self.width), "<f4").tobytes()
        head = {"inputs": [{"name": "x", "shape": [1, self.width], "datatype": "FP32"}]}
        head["inputs"][0]["parameters"] = {"binary_data_size": len(host_row)}
        header = json.dumps(head).encode()
        gaps_s = np.random.default_rng(0).exponential(1 / self.rate, int(self.rate * self.seconds))
        pause = threading.Event()
        with ThreadPoolExecutor(64) as pool:
            sent = []
            for gap_s in gaps_s:
                pause.wait(gap_s)
                sent.append(pool.submit(self._send, url.removeprefix("http://"), header, header + host_row))
        for job in sent:
            job.result()

    def _send(self, address: str, header: bytes, body: bytes) -> None:
        connection = HTTPConnection(address, timeout=30)
        connection.putrequest("POST", f"/v2/models/{MODEL}/infer")
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
class Recipe:
    """One server under one load.

    Attributes:
        make: writes the model.
        card: of the model.
        load: what its clients do.
        settings: of the server.
        expected: the class that must come first; None where no bottleneck may be found.
    """

    make: Callable[[Path], Path]
    card: str
    load: Bench | Photos | SlowUplinks
    expected: BottleneckClass | None
    settings: Mapping[str, object] = field(default_factory=dict)


RECIPES: Mapping[str, Recipe] = {
    "healthy": Recipe(
        make=make_worker,
        card="[batching]\nmax_batch_size = 8\n",
        load=Bench(options=("--rate", "40")),
        expected=None,
    ),
    "overload": Recipe(
        make=make_grinder,
        card="[batching]\nmax_batch_size = 4\nmax_queued_requests = 32\n",
        load=Bench(options=("--rate", "300", "--max-connections", "64")),
        expected=BottleneckClass.OVERLOAD,
    ),
    "batch-formation-delay": Recipe(
        make=make_worker,
        card="[batching]\nmax_batch_size = 8\nmax_queue_delay_ms = 20\n",
        load=Bench(options=("--rate", "40")),
        expected=BottleneckClass.BATCH_FORMATION_DELAY,
    ),
    "client-limited": Recipe(
        make=make_worker,
        card="[batching]\nmax_batch_size = 8\n",
        load=Bench(options=("--concurrency", "1")),
        expected=BottleneckClass.CLIENT_LIMITED,
    ),
    "python-bound": Recipe(
        make=partial(make_echo, width=20_000),
        card="[batching]\nmax_batch_size = 4\n",
        load=Bench(options=("--concurrency", "4", "--wire", "json")),
        expected=BottleneckClass.PYTHON_BOUND,
    ),
    "cpu-preprocess": Recipe(
        make=make_image_classifier,
        card=IMAGES_CARD,
        load=Photos(side=1600, clients=3),
        settings={"cpu_threads": 2},
        expected=BottleneckClass.CPU_PREPROCESS,
    ),
    "padding-waste": Recipe(
        make=make_reader,
        card="[batching]\nmax_batch_size = 4\n[buckets]\nsequence = [8, 512]\nbatch = [1, 2, 4]\n",
        load=Bench(options=("--concurrency", "4", "--dim", "sequence=16,24,32,48")),
        expected=BottleneckClass.PADDING_WASTE,
    ),
    "bursty-arrivals": Recipe(
        make=make_grinder,
        card="[batching]\nmax_batch_size = 4\n",
        load=Bench(options=("--rate", "30", "--arrivals", "burst", "--burst-size", "15")),
        expected=BottleneckClass.BURSTY_ARRIVALS,
    ),
    "network-payload": Recipe(
        make=partial(make_echo, width=50_000),
        card="[batching]\nmax_batch_size = 4\n",
        load=SlowUplinks(width=50_000, rate=15.0, upload_s=0.15),
        expected=BottleneckClass.NETWORK_PAYLOAD,
    ),
    "invalid-measurement": Recipe(
        make=make_worker,
        card="[batching]\nmax_batch_size = 8\n",
        load=Bench(options=("--rate", "2")),
        expected=BottleneckClass.INVALID_MEASUREMENT,
    ),
}
