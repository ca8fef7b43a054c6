"""Builds in child processes, on a worker that behaves as its model's name says."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest

from engines.child import Ending, Patience
from engines.events import Event, LogLine, PhaseStarted
from engines.job import STOPPING, how_it_ended, run_build
from engines.report import BuildReport
from engines.request import BuildRequest
from engines.serialise import BuildCancelled
from service.errors import ModelLoadFailed
from tests.doubles.build_worker import MODULE

IMPATIENT = Patience(interrupt_s=5, terminate_s=0.1)
QUICK = Patience(interrupt_s=0.1, terminate_s=0.1)


def request(folder: Path, behaviour: str) -> BuildRequest:
    (folder / behaviour).mkdir(exist_ok=True)
    return BuildRequest(model_folder=folder / behaviour, version="1", plan_path=folder / behaviour / "model.plan")


def build(
    wanted: BuildRequest, events: list[Event], *, stop: bool = False, patience: Patience = IMPATIENT
) -> BuildReport:
    """Builds; with `stop`, only until the build is under way."""
    is_cut_off = threading.Event()

    def on_event(event: Event) -> None:
        events.append(event)
        if stop:
            is_cut_off.set()

    return run_build(wanted, on_event, is_cut_off, worker=MODULE, patience=patience)


def files(wanted: BuildRequest) -> list[str]:
    return sorted(path.name for path in wanted.model_folder.iterdir())


def test_a_plan_is_built_and_its_events_are_heard(tmp_path: Path) -> None:
    wanted = request(tmp_path, "good")
    events: list[Event] = []
    report = build(wanted, events)
    assert (report.plan_path, report.build_s) == (wanted.plan_path, 1.5)
    assert report.plan_bytes == wanted.plan_path.stat().st_size
    assert [type(event).__name__ for event in events] == ["PhaseStarted", "PhaseStep", "LogLine"]
    assert files(wanted) == ["model.plan", "model.plan.json"]


def test_a_builder_that_falls_over_after_its_work_has_built(tmp_path: Path) -> None:
    events: list[Event] = []
    report = build(request(tmp_path, "falls_over_at_its_end"), events)
    assert report.plan_path.exists()
    assert events == [LogLine("warning", "the builder crashed (SIGSEGV) after it had written the plan")]


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("fails", "^node 'x': no such operator$"),
        (
            "crashes",
            r"model 'crashes': the process that built the plan crashed \(SIGSEGV\); nothing was written; "
            r"its last words: free\(\): invalid pointer$",
        ),
        ("is_killed", r"was killed \(SIGKILL\), as the system does where memory runs out: .*; nothing was written$"),
        (
            "says_nothing",
            "ended with exit status 3; nothing was written; "
            r"its last words: (a library's banner \| Traceback: something|Traceback: something \| a library's banner)$",
        ),
    ],
)
def test_a_build_that_fails_says_why_and_leaves_nothing(tmp_path: Path, behaviour: str, said: str) -> None:
    wanted = request(tmp_path, behaviour)
    with pytest.raises(ModelLoadFailed, match=said):
        build(wanted, [])
    assert files(wanted) == []


@pytest.mark.parametrize(("behaviour", "patience"), [("held", IMPATIENT), ("deaf", QUICK)])
def test_a_build_that_is_cut_off_leaves_nothing(tmp_path: Path, behaviour: str, patience: Patience) -> None:
    wanted = request(tmp_path, behaviour)
    wanted.plan_path.write_bytes(b"the old plan")
    said: list[Event] = []
    with pytest.raises(BuildCancelled, match="the build was cancelled; nothing was written"):
        build(wanted, said, stop=True, patience=patience)
    assert said[-1] == LogLine("info", STOPPING)
    assert files(wanted) == ["model.plan"]
    assert wanted.plan_path.read_bytes() == b"the old plan"


def test_a_caller_that_fails_leaves_neither_files_nor_a_process(tmp_path: Path) -> None:
    wanted = request(tmp_path, "held")
    seen: list[str] = []

    def fail(event: Event) -> None:
        assert isinstance(event, PhaseStarted)
        seen.append(event.phase)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_build(wanted, fail, threading.Event(), worker=MODULE)
    (pid,) = re.findall(r"\d+", seen[0])
    assert not Path("/proc", pid).exists()
    assert files(wanted) == []


def test_what_is_not_wanted_any_more_does_not_begin(tmp_path: Path) -> None:
    is_cut_off = threading.Event()
    is_cut_off.set()
    with pytest.raises(BuildCancelled):
        run_build(request(tmp_path, "good"), lambda event: None, is_cut_off, worker="no.such.module")


def test_a_folder_that_cannot_be_written_is_told_before_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The tests run as root, whom no permission stops: only a file system that is read-only would.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ModelLoadFailed, match="good' cannot be written, and a plan goes beside its ONNX model; make"):
        run_build(request(tmp_path, "good"), lambda event: None, threading.Event(), worker="no.such.module")


def test_statuses_in_words() -> None:
    assert how_it_ended(Ending(1, 7, False, ())) == "ended with exit status 7"
    assert how_it_ended(Ending(1, -6, False, ())) == "crashed (SIGABRT)"
