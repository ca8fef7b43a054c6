"""Builders and their parents that are killed in the midst of a build: no half-written plan, no process left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from engines.plan_files import remove_leftovers
from tests.doubles import build_worker, fake_build_worker, fake_gpu_cli, onnx_models
from tests.doubles.running_server import add_model, free_port, wait_for

pytestmark = pytest.mark.chaos

WAIT_S = 30

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts `inferlane` on a fake GPU, whose plans the stand-in builds."""
    started: list[subprocess.Popen[str]] = []

    def run(*words: object, worker: str = build_worker.MODULE) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", fake_gpu_cli.MODULE, *map(str, words)]
        environment = {**os.environ, fake_gpu_cli.WORKER: worker}
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


class Building:
    """A model whose build is under way, and the two processes that have to do with it."""

    def __init__(self, parent: subprocess.Popen[str], folder: Path) -> None:
        self.parent = parent
        self.folder = folder
        wait_for(lambda: len(self.hidden()) == 1 or parent.poll() is not None, WAIT_S)
        assert parent.poll() is None, self.output()
        self.child = int(self.hidden()[0].split(".")[3])

    def hidden(self) -> list[str]:
        return [name for name in self.files() if name.endswith(".tmp")]

    def files(self) -> list[str]:
        """What lies beside the ONNX model."""
        return sorted(path.name for path in self.folder.iterdir() if path.name != "model.onnx")

    def output(self) -> str:
        return self.parent.communicate(timeout=WAIT_S)[0]

    def child_is_alive(self) -> bool:
        try:
            return Path(f"/proc/{self.child}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False


def add(repository: Path, name: str) -> Path:
    add_model(repository, name, onnx_models.make_identity, "[batching]\nmax_batch_size = 2\n")
    return repository / name / "1"


@pytest.mark.parametrize(
    ("name", "number"), [("held", signal.SIGINT), ("held", signal.SIGTERM), ("deaf", signal.SIGINT)]
)
def test_an_interrupted_command_says_that_nothing_was_written(
    start: Start, tmp_path: Path, name: str, number: signal.Signals
) -> None:
    folder = add(tmp_path, name)
    building = Building(start("build", folder.parent), folder)
    building.parent.send_signal(number)
    output = building.output()
    assert building.parent.returncode == 130, output
    assert "the build was cancelled; nothing was written" in output
    assert building.files() == []
    assert not building.child_is_alive()


def test_a_second_interrupt_does_not_wait(start: Start, tmp_path: Path) -> None:
    folder = add(tmp_path, "deaf")
    building = Building(start("build", folder.parent), folder)
    building.parent.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        building.parent.wait(0.3)
    building.parent.send_signal(signal.SIGINT)
    output = building.output()
    assert (building.parent.returncode, "nothing was written" in output) == (130, True), output
    assert building.files() == []
    assert not building.child_is_alive()


def test_a_builder_that_is_killed_is_told_and_leaves_nothing(start: Start, tmp_path: Path) -> None:
    folder = add(tmp_path, "held")
    building = Building(start("build", folder.parent), folder)
    os.kill(building.child, signal.SIGKILL)
    output = building.output()
    assert building.parent.returncode == 1, output
    assert "was killed (SIGKILL), as the system does where memory runs out" in output
    assert building.files() == []


def test_a_command_that_is_killed_leaves_neither_a_builder_nor_a_plan(start: Start, tmp_path: Path) -> None:
    folder = add(tmp_path, "deaf")
    building = Building(start("build", folder.parent), folder)
    building.parent.kill()
    wait_for(lambda: not building.child_is_alive())
    assert building.files() == building.hidden()
    # As the next build does; a process that counts as dead keeps its locks until the last of its threads has ended.
    wait_for(lambda: not remove_leftovers(folder / "model.plan"))
    assert building.files() == []


@pytest.mark.parametrize(
    ("signals", "status"), [((signal.SIGTERM,), 0), ((signal.SIGINT, signal.SIGINT), 130), ((signal.SIGKILL,), -9)]
)
def test_a_server_that_ends_ends_its_builder(
    start: Start, tmp_path: Path, signals: tuple[signal.Signals, ...], status: int
) -> None:
    folder = add(tmp_path, "held" if len(signals) == 1 else "deaf")
    port = free_port()
    building = Building(start("serve", "--repository", tmp_path, "--port", port), folder)
    assert httpx.get(f"http://127.0.0.1:{port}/v2/health/ready").status_code == 503
    for number in signals:
        building.parent.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            building.parent.wait(0.5)
    output = building.output()
    assert building.parent.returncode == status, output
    wait_for(lambda: not building.child_is_alive())
    assert [name for name in building.files() if not name.endswith(".tmp")] == []


def test_a_server_builds_what_is_missing_and_serves_it(start: Start, tmp_path: Path) -> None:
    folder = add(tmp_path, "identity")
    port = free_port()
    server = start("serve", "--repository", tmp_path, "--port", port, worker=fake_build_worker.MODULE)

    def is_ready() -> bool:
        assert server.poll() is None, server.communicate()[0]
        with suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{port}/v2/health/ready").status_code == 200
        return False

    wait_for(is_ready, WAIT_S)
    values = [1.5] * 16
    tensor = {"name": "x", "shape": [1, 16], "datatype": "FP32", "data": values}
    answer = httpx.post(f"http://127.0.0.1:{port}/v2/models/identity/infer", json={"inputs": [tensor]}).json()
    assert answer["outputs"][0]["data"] == values
    assert httpx.get(f"http://127.0.0.1:{port}/v2/models/identity").json()["platform"] == "tensorrt_plan"
    server.terminate()
    output = server.communicate(timeout=WAIT_S)[0].replace("\n", " ")
    assert "building the plan of model 'identity'" in output
    assert "agrees with ONNX Runtime by 1.000000 or better" in " ".join(output.split())
    assert sorted(path.name for path in folder.iterdir()) == ["model.onnx", "model.plan", "model.plan.json"]
