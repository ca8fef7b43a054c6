"""Serves a repository under load and says what the driver allocated after the server was ready, and what memory did.

    python -m tests.gpu.steady_state REPOSITORY SECONDS 'MODEL OPTIONS OF loadtest.bench' ...

Every further argument is one load, and all run at the same time. Prints one JSON object. Needs a GPU, gcc and CUPTI.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx

from tests.doubles.running_server import free_port, wait_for

SOURCE = Path(__file__).with_name("allocations.c")
READY_TIMEOUT_S = 300
SETTLE_S = 5


@dataclass
class SteadyState:
    """What was seen.

    Attributes:
        ready_s: from the process's start to `/v2/health/ready`.
        allocations_before_ready: driver calls by name.
        allocations_under_load: driver calls by name, from the first warm request to the last.
        used_bytes: memory of the whole device, about once a second under load.
        loads: per load, what `loadtest.bench` reported.
    """

    ready_s: float = 0.0
    allocations_before_ready: dict[str, int] = field(default_factory=dict)
    allocations_under_load: dict[str, int] = field(default_factory=dict)
    used_bytes: list[int] = field(default_factory=list)
    loads: list[object] = field(default_factory=list)


def build_counter(folder: Path) -> Path:
    """Compiles the library that writes allocations down."""
    library = folder / "allocations.so"
    command = ["gcc", "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(library)]
    cuda = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    for place in (cuda, cuda / "extras" / "CUPTI"):
        command += [f"-I{place / 'include'}", f"-L{place / 'lib64'}", f"-Wl,-rpath,{place / 'lib64'}"]
    subprocess.run([*command, "-lcupti"], check=True)
    return library


def observe(repository: Path, seconds: float, loads: list[str]) -> SteadyState:
    """Starts the server, loads it, and ends it."""
    seen = SteadyState()
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "allocations"
        log.touch()
        injected = {"CUDA_INJECTION64_PATH": str(build_counter(Path(scratch))), "ALLOCATIONS_LOG": str(log)}
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "service.cli", "serve", "--repository", str(repository), "--port", str(port)]
        began_s = time.monotonic()
        server = subprocess.Popen(command, env={**os.environ, **injected})
        try:
            wait_for(lambda: _is_ready(server, url), READY_TIMEOUT_S)
            seen.ready_s = time.monotonic() - began_s
            seen.allocations_before_ready = _counts(log, 0)
            _load(url, seconds, loads, seen, log)
        finally:
            server.terminate()
            server.wait(30)
    return seen


def _load(url: str, seconds: float, loads: list[str], seen: SteadyState, log: Path) -> None:
    with tempfile.TemporaryDirectory() as reports:
        paths = [Path(reports) / f"{index}.json" for index in range(len(loads))]
        running = [_start_load(url, seconds, load, path) for load, path in zip(loads, paths, strict=True)]
        time.sleep(SETTLE_S)
        warm = log.stat().st_size
        while any(process.poll() is None for process in running):
            seen.used_bytes.append(used_bytes())
            time.sleep(1)
        seen.allocations_under_load = _counts(log, warm)
        seen.loads = [json.loads(path.read_text()) if path.exists() else None for path in paths]


def _start_load(url: str, seconds: float, load: str, report: Path) -> subprocess.Popen[bytes]:
    options = ["--url", url, "--warm-up", str(SETTLE_S), "--duration", str(seconds), "--json", str(report)]
    command = [sys.executable, "-m", "loadtest.bench", *shlex.split(load), *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def used_bytes() -> int:
    """Memory of device 0, whoever uses it."""
    import pynvml

    pynvml.nvmlInit()
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used)
    finally:
        pynvml.nvmlShutdown()


def _is_ready(server: subprocess.Popen[bytes], url: str) -> bool:
    assert server.poll() is None, "the server ended before it was ready"
    try:
        return httpx.get(f"{url}/v2/health/ready", verify=False).status_code == 200
    except httpx.TransportError:
        return False


def _counts(log: Path, since: int) -> dict[str, int]:
    return dict(Counter(log.read_text()[since:].split()))


if __name__ == "__main__":
    report = observe(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
    sys.stdout.write(json.dumps(asdict(report), indent=1) + "\n")
