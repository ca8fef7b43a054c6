"""What a server builds its missing plans with: one after another, each in a child process, told in its log."""

from __future__ import annotations

import importlib.util
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engines.child import LOOK_S
from engines.job import RunBuild, run_build
from engines.narrator import Narrator, duration_text
from engines.report import AccuracyReport
from engines.request import BuildOptions
from engines.serialise import CANCELLED, BuildCancelled
from engines.targets import request_for
from service.cards import ModelCard
from service.errors import BuilderMissing
from service.repository.layout import VersionFolder

_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_log = logging.getLogger(__name__)


class PlanBuilder:
    """Builds plans for a server; implements `service.app.BuildPlan`. Any thread may call it.

    A build takes the whole GPU and times kernels on it, so a second one waits for the first.

    Args:
        build: builds one plan.
    """

    def __init__(self, build: RunBuild = run_build) -> None:
        self._build = build
        self._turn = threading.Lock()

    def __call__(self, card: ModelCard, version: VersionFolder, is_cut_off: threading.Event) -> Path:
        """Builds the plan of a version as its card says, and gives its path; blocking, for minutes.

        Raises:
            BuilderMissing: a package that building needs is not installed.
            BuildCancelled: `is_cut_off` was set before the plan had its name.
            ModelLoadFailed: the plan cannot be built.
        """
        require_packages()

        def say(severity: str, text: str) -> None:
            _log.log(_LEVELS.get(severity, logging.INFO), "building the plan of model '%s': %s", card.name, text)

        with self._in_turn(is_cut_off):
            say("info", f"there is none yet in {version.path}; this takes minutes")
            with Narrator(say) as narrator:
                report = self._build(request_for(card.name, version, BuildOptions()), narrator, is_cut_off)
        accuracy = "" if report.accuracy is None else f", {accuracy_text(report.accuracy)}"
        say("info", f"done in {duration_text(report.build_s)}: {report.plan_bytes / 1e6:.1f} MB{accuracy}")
        return report.plan_path

    @contextmanager
    def _in_turn(self, is_cut_off: threading.Event) -> Iterator[None]:
        while not self._turn.acquire(timeout=LOOK_S):
            if is_cut_off.is_set():
                raise BuildCancelled(CANCELLED)
        try:
            yield
        finally:
            self._turn.release()


def require_packages() -> None:
    """Refuses to begin without what the child needs beside TensorRT.

    Raises:
        BuilderMissing: it is not installed.
    """
    if importlib.util.find_spec("onnx") is None:
        raise BuilderMissing(
            "Building a plan needs the package onnx, which is not installed; pip install -e '.[build]' "
            "(`inferlane doctor` says what else is missing to build TensorRT plans)"
        )


def accuracy_text(accuracy: AccuracyReport) -> str:
    """How well a plan agrees with its model, in a few words."""
    if not accuracy.buckets:
        return f"accuracy not checked ({accuracy.skipped})"
    worst = min(accuracy.buckets, key=lambda bucket: bucket.cosine)
    rest = f"; not all compared: {accuracy.skipped}" if accuracy.skipped else ""
    return f"agrees with ONNX Runtime by {worst.cosine:.6f} or better (worst in bucket {worst.bucket}){rest}"
