"""The worker as a process, on the fake TensorRT: its protocol on stdin and stdout, and its end by signals."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines import worker
from engines.events import Done, Event, Failed, LogLine, PhaseStarted, from_line
from engines.request import BuildRequest
from engines.worker import Build, Emitter
from service.errors import ModelLoadFailed
from tests.doubles.build_bench import build_bench
from tests.doubles.onnx_models import make_cnn
from tests.doubles.stubborn_build_worker import NATIVE_WORDS, machinery

ROOT = Path(__file__).parents[2]
FILES = {"model.onnx", "model.plan", "model.plan.json"}


@pytest.fixture
def request_(tmp_path: Path) -> BuildRequest:
    folder = tmp_path / "model"
    make_cnn(folder / "model.onnx")
    return BuildRequest(model_folder=folder, version="", plan_path=folder / "model.plan")


def names(request_: BuildRequest) -> set[str]:
    return {path.name for path in request_.model_folder.iterdir()}


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.doubles.stubborn_build_worker", *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until_it_builds(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(text)
    process.stdin.close()
    for line in process.stdout:
        event = from_line(line)
        if isinstance(event, PhaseStarted) and event.phase == "build":
            return
    raise AssertionError("the build never began")


def rest(process: subprocess.Popen[str]) -> tuple[int, list[Event]]:
    assert process.stdout is not None
    assert process.stderr is not None
    events = [from_line(line) for line in process.stdout]
    process.stdout.close()
    process.stderr.close()
    return process.wait(timeout=30), events


def test_events_alone_come_on_stdout_and_libraries_speak_on_stderr(request_: BuildRequest) -> None:
    process = start("10", "native")
    out, err = process.communicate(request_.to_json(), timeout=60)
    events = [from_line(line) for line in out.splitlines()]
    assert process.returncode == 0
    assert isinstance(events[-1], Done)
    accuracy = events[-1].report.accuracy
    assert accuracy is not None
    assert [bucket.bucket for bucket in accuracy.buckets] == ["32", "16", "8", "4", "2", "1"]
    assert NATIVE_WORDS in err
    assert names(request_) == FILES


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("generation", ["8.6", "10"])
def test_a_signal_ends_even_a_builder_that_nothing_can_stop(
    request_: BuildRequest, number: signal.Signals, generation: str
) -> None:
    process = start(generation, "hang")
    until_it_builds(process, request_.to_json())
    assert len(names(request_)) == 2
    process.send_signal(number)
    status, events = rest(process)
    assert status == 1
    assert events[-1] == Failed("the build was cancelled; nothing was written", is_cancelled=True)
    assert names(request_) == {"model.onnx"}


def test_what_is_killed_leaves_no_plan_and_the_next_build_clears_up(request_: BuildRequest, tmp_path: Path) -> None:
    process = start("8.6", "hang")
    until_it_builds(process, request_.to_json())
    process.kill()
    assert rest(process)[0] == -signal.SIGKILL
    assert not request_.plan_path.exists()
    process = start("8.6")
    out, _ = process.communicate(request_.to_json(), timeout=60)
    assert isinstance(from_line(out.splitlines()[-1]), Done)
    assert names(request_) == FILES


def test_rubbish_instead_of_a_request_fails(request_: BuildRequest) -> None:
    process = start("10")
    out, _ = process.communicate("build it!", timeout=60)
    (event,) = [from_line(line) for line in out.splitlines()]
    assert isinstance(event, Failed)
    assert "this is no build request" in event.message
    assert process.returncode == 1


def test_a_build_that_is_told_to_stop_stops_and_says_so(request_: BuildRequest) -> None:
    events: list[Event] = []
    build = Build(request_, events.append, lambda: machinery("10", ""))
    build.is_cancelled = True
    build.run()
    assert events == [Failed("the build was cancelled; nothing was written", is_cancelled=True)]
    assert (build.exit_status, build.can_stop, build.finished.is_set()) == (1, True, True)


def refuse() -> worker.Machinery:
    raise ModelLoadFailed("no TensorRT here")


def break_down() -> worker.Machinery:
    raise ZeroDivisionError("of ours")


@pytest.mark.parametrize(
    ("open_machinery", "words"),
    [(refuse, "no TensorRT here"), (break_down, "unforeseen way: ZeroDivisionError('of ours')")],
)
def test_every_way_to_fail_has_its_event(request_: BuildRequest, open_machinery: object, words: str) -> None:
    events: list[Event] = []
    build = Build(request_, events.append, open_machinery)  # type: ignore[arg-type]
    build.run()
    (event,) = events
    assert isinstance(event, Failed)
    assert words in event.message
    assert build.exit_status == 1


def test_a_build_in_this_process(request_: BuildRequest) -> None:
    events: list[Event] = []
    build = Build(request_, events.append, lambda: machinery("8.6", ""))
    build.run()
    assert (build.exit_status, build.can_stop) == (0, False)
    assert isinstance(events[-1], Done)


@pytest.fixture
def handlers() -> Iterator[None]:
    """What signals do in this process, put back."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    signal.set_wakeup_fd(-1)
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def stdout(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    stream = io.StringIO()
    monkeypatch.setattr(worker, "_events_stream", lambda: stream)
    return stream


@pytest.mark.usefixtures("handlers")
def test_main_in_this_process(request_: BuildRequest, stdout: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, status, kind in ((request_.to_json(), 0, Done), ("rubbish", 1, Failed)):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        assert worker.main(lambda: machinery("10", "")) == status
        assert isinstance(from_line(stdout.getvalue().splitlines()[-1]), kind)


@pytest.mark.usefixtures("handlers")
def test_a_build_that_does_not_stop_is_left_behind(
    request_: BuildRequest, stdout: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, released = threading.Event(), threading.Event()

    def hang() -> worker.Machinery:
        started.set()
        released.wait()
        raise ModelLoadFailed("released")

    class Ended(BaseException):
        pass

    def end() -> None:
        raise Ended

    monkeypatch.setattr(sys, "stdin", io.StringIO(request_.to_json()))
    monkeypatch.setattr(worker, "_end_now", end)

    def kill() -> None:
        """To its own thread: the kernel may choose any, and only the main one runs handlers."""
        started.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(Ended):
        worker.main(hang)
    killer.join()
    assert from_line(stdout.getvalue()) == Failed("the build was cancelled; nothing was written", is_cancelled=True)
    released.set()


def test_a_reader_that_has_gone_hurts_no_build() -> None:
    stream = io.StringIO()
    emit = Emitter(stream)
    emit(LogLine("info", "heard"))
    assert from_line(stream.getvalue()) == LogLine("info", "heard")
    stream.close()
    emit(LogLine("info", "not heard"))


def test_the_real_machinery_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = build_bench(tmp_path, "10")
    monkeypatch.setattr(worker, "find_flavour", lambda: bench.flavour)
    monkeypatch.setattr(worker.Cuda, "load", lambda: bench.cuda)
    assert worker.open_machinery() == (bench.flavour, bench.cuda)
