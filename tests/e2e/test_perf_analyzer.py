"""Triton's own load generator, unmodified, against the running server.

Runs where the `perf_analyzer` program can (glibc 2.38 or newer: `pip install perf-analyzer`); the variable
`PERF_ANALYZER` names it where it is not on the path.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

from tests.doubles.running_server import RunningServer

PROGRAM = os.environ.get("PERF_ANALYZER") or shutil.which("perf_analyzer")


def _runs() -> bool:
    if PROGRAM is None:
        return False
    return subprocess.run([PROGRAM, "--version"], capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not _runs(), reason="perf_analyzer is not installed, or needs a newer glibc than this machine's"
    ),
]


@pytest.mark.parametrize(
    "options",
    [
        ["-m", "simple", "--concurrency-range", "1:4:3"],
        ["-m", "simple", "-b", "4", "--input-tensor-format", "json", "--output-tensor-format", "json"],
        ["-m", "simple", "--async", "--request-rate-range", "100", "--request-distribution", "poisson"],
        ["-m", "encoder", "--shape", "input_ids:12", "--shape", "attention_mask:12", "--input-data", "zero"],
    ],
    ids=["binary", "json", "rate", "dynamic"],
)
def test_perf_analyzer_measures_and_agrees_with_the_server(server: RunningServer, options: list[str]):
    assert PROGRAM is not None
    command = [PROGRAM, "-i", "http", "-u", server.address, *options]
    command += ["--measurement-interval", "1000", "--stability-percentage", "999", "--max-trials", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    throughputs = [float(value) for value in re.findall(r"Throughput: ([\d.]+) infer/sec", done.stdout)]
    assert throughputs
    assert all(value > 0 for value in throughputs)
    assert "Avg request latency" in done.stdout, "the server's statistics were not read"
