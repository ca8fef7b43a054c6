"""`inferlane build` without its words: models one after another, on the fake TensorRT."""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from engines import command
from engines.bars import BuildBars
from engines.command import Order, build_models, shown_on, signals_cut_off
from engines.events import LogLine, OnEvent
from engines.job import run_build
from engines.outcomes import Outcome, State
from engines.report import BuildReport
from engines.request import BuildOptions, BuildRequest
from engines.serialise import CANCELLED, BuildCancelled
from engines.targets import all_targets, find_targets
from service.errors import ModelLoadFailed
from service.runtime.cuda.device import Cuda
from service.runtime.trt.flavour import describe
from tests.doubles import build_worker, fake_build_worker, onnx_models
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_tensorrt import fake_tensorrt
from tests.doubles.running_server import add_model

Built = list[tuple[str, int | None]]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in ("crashes", "good"):
        add_model(tmp_path, name, onnx_models.make_identity)
    add_model(tmp_path, "cpu", onnx_models.make_identity, 'backend = "onnxruntime"\n')
    add_model(tmp_path, "odd", onnx_models.make_identity, "[precision]\nmode = 'fp9'\n")
    return tmp_path


@contextmanager
def silent(model: str) -> Iterator[OnEvent]:
    yield lambda event: None


def on_stand_in(request: BuildRequest, on_event: OnEvent, is_cut_off: threading.Event) -> BuildReport:
    return run_build(request, on_event, is_cut_off, worker=build_worker.MODULE)


def run(order: Order, build: Callable[..., BuildReport] = on_stand_in) -> list[Outcome]:
    api = FakeCuda()
    flavour = describe("tensorrt", fake_tensorrt(api))
    cut = threading.Event()
    return list(build_models(order, flavour, Cuda(api), show=silent, is_cut_off=cut, build=build))


def states(outcomes: list[Outcome]) -> dict[str, State]:
    return {outcome.model: outcome.state for outcome in outcomes}


def test_what_fails_keeps_no_other_from_being_built(repository: Path) -> None:
    outcomes = run(command.order([], repository, BuildOptions(), is_all=True, is_forced=False))
    assert states(outcomes) == {
        "cpu": State.PASSED_OVER,
        "crashes": State.FAILED,
        "good": State.BUILT,
        "odd": State.FAILED,
    }
    assert [outcome.report is not None for outcome in outcomes] == [False, False, True, False]
    assert "crashed (SIGSEGV)" in outcomes[1].reason
    assert "precision.mode" in outcomes[3].reason


@pytest.mark.parametrize(("model", "said"), [("cpu", 'its card says backend = "onnxruntime"'), ("bare", "holds no")])
def test_a_model_that_is_named_and_needs_no_plan_is_a_failure(repository: Path, model: str, said: str) -> None:
    (repository / "bare" / "1").mkdir(parents=True)
    (repository / "bare" / "1" / "model.plan").write_bytes(b"plan")
    (outcome,) = run(command.order([model], repository, BuildOptions(), is_all=False, is_forced=False))
    assert outcome.state is State.FAILED
    assert said in outcome.reason


@pytest.mark.parametrize(
    ("models", "is_all"),
    [pytest.param([], False, id="nothing"), pytest.param(["good"], True, id="everything and more")],
)
def test_words_that_mean_nothing_are_refused(repository: Path, models: list[str], is_all: bool) -> None:
    with pytest.raises(ModelLoadFailed, match="name the models to build, or give --all"):
        command.order(models, repository, BuildOptions(), is_all=is_all, is_forced=False)


def keep(built: Built) -> Callable[..., BuildReport]:
    """Builds with the real builder on the fake TensorRT, in a child process."""

    def build(request: BuildRequest, on_event: OnEvent, is_cut_off: threading.Event) -> BuildReport:
        built.append((request.model_folder.name, request.options.optimization_level))
        return run_build(request, on_event, is_cut_off, worker=fake_build_worker.MODULE)

    return build


def test_a_plan_that_fits_is_built_again_only_if_that_is_asked(repository: Path) -> None:
    built: Built = []
    targets = find_targets(["good"], repository)
    build = keep(built)
    assert states(run(Order(targets=targets, options=BuildOptions()), build)) == {"good": State.BUILT}

    for options in (BuildOptions(), BuildOptions(device=0, timing_cache=repository / ".cache")):
        (outcome,) = run(Order(targets=find_targets(["good"], repository), options=options), build)
        assert (outcome.state, outcome.reason[:15]) == (State.IN_PLACE, "model.plan fits")
    assert built == [("good", None)]

    targets = find_targets(["good"], repository)
    run(Order(targets=targets, options=BuildOptions(), is_forced=True), build)
    run(Order(targets=targets, options=BuildOptions(optimization_level=1)), build)
    assert built == [("good", None), ("good", None), ("good", 1)]


def test_a_build_on_the_fakes_tells_how_well_each_bucket_agrees(repository: Path) -> None:
    (repository / "good" / "model.toml").write_text("[batching]\nmax_batch_size = 4\n")
    (outcome,) = run(Order(targets=find_targets(["good"], repository), options=BuildOptions()), keep([]))
    assert outcome.report is not None, outcome.reason
    assert outcome.report.accuracy is not None
    assert [(bucket.bucket, bucket.cosine) for bucket in outcome.report.accuracy.buckets] == [
        ("4", 1.0),
        ("2", 1.0),
        ("1", 1.0),
    ]


@pytest.mark.parametrize("error", [BuildCancelled(CANCELLED), KeyboardInterrupt()])
def test_after_an_interrupt_no_other_build_begins(repository: Path, error: BaseException) -> None:
    def cancelled(*_: object) -> BuildReport:
        raise error

    order = Order(targets=find_targets(["crashes", "good"], repository), options=BuildOptions())
    assert run(order, cancelled) == [Outcome("crashes", State.CANCELLED, CANCELLED)]


def test_a_file_that_cannot_be_read_is_that_model_s_failure(repository: Path) -> None:
    def unreadable(*_: object) -> BuildReport:
        raise PermissionError(13, "Permission denied", "model.onnx")

    (outcome,) = run(Order(targets=find_targets(["good"], repository), options=BuildOptions()), unreadable)
    assert (outcome.state, outcome.reason) == (State.FAILED, "'model.onnx' cannot be read: Permission denied")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_ends(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    is_cut_off = threading.Event()
    with signals_cut_off(is_cut_off):
        os.kill(os.getpid(), number)
        assert is_cut_off.wait(10)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before


def test_a_terminal_gets_bars_and_a_file_gets_lines() -> None:
    assert isinstance(shown_on(Console(file=io.StringIO(), force_terminal=True))("m"), BuildBars)
    file = io.StringIO()
    with shown_on(Console(file=file))("m") as on_event:
        on_event(LogLine("warning", "weights were [narrowed]"))
    assert file.getvalue() == "m: weights were [narrowed]\n"


@pytest.fixture
def machinery(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    api = FakeCuda()
    monkeypatch.setattr(command, "open_machinery", lambda: (describe("tensorrt", fake_tensorrt(api)), Cuda(api)))
    return api


@pytest.mark.usefixtures("machinery")
def test_a_command_builds_with_what_is_installed(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "build_models", partial(build_models, build=on_stand_in))
    order = Order(targets=find_targets(["good"], repository), options=BuildOptions())
    file = io.StringIO()
    assert states(list(command.run(order, Console(file=file)))) == {"good": State.BUILT}
    assert file.getvalue() == "good: weights were narrowed\n"


def test_without_tensorrt_nothing_begins(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> object:
        raise ModelLoadFailed("TensorRT cannot be used: none is installed")

    monkeypatch.setattr(command, "open_machinery", absent)
    order = Order(targets=all_targets(repository), options=BuildOptions())
    with pytest.raises(ModelLoadFailed, match="TensorRT cannot be used"):
        list(command.run(order, Console(file=io.StringIO())))
