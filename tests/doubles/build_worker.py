"""Speaks the protocol of `engines.worker` without TensorRT: the name of the model says how it behaves."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from engines.events import Done, Event, Failed, LogLine, PhaseStarted, PhaseStep, to_line
from engines.plan_files import HiddenPlan
from engines.report import AccuracyReport, BucketAccuracy, BuildReport
from engines.request import BuildRequest
from tests.doubles.fake_tensorrt_model import plan_of
from tests.doubles.fake_tensorrt_world import VERSIONS
from tests.doubles.trt_models import DOUBLE

MODULE = "tests.doubles.build_worker"
HELD_S = 60
"""How long a build takes that a test is to end."""


def emit(event: Event) -> None:
    print(to_line(event), flush=True)


def good(request: BuildRequest) -> int:
    """Builds the plan of `DOUBLE`."""
    emit(PhaseStarted("build", None, 2))
    emit(PhaseStep("build", 0))
    emit(LogLine("warning", "weights were narrowed"))
    emit(Done(_written(request)))
    return 0


def falls_over_at_its_end(request: BuildRequest) -> NoReturn:
    emit(Done(_written(request)))
    _die(signal.SIGSEGV)


def fails(request: BuildRequest) -> int:
    emit(Failed("node 'x': no such operator"))
    return 1


def crashes(request: BuildRequest) -> NoReturn:
    """In the midst of its work, with a plan half written."""
    with HiddenPlan(request.plan_path) as hidden:
        hidden.write(b"half a pl")
        print("free(): invalid pointer", file=sys.stderr, flush=True)
        _die(signal.SIGSEGV)


def is_killed(request: BuildRequest) -> NoReturn:
    _die(signal.SIGKILL)


def says_nothing(request: BuildRequest) -> int:
    print("a library's banner", flush=True)
    print("Traceback: something", file=sys.stderr)
    return 3


def held(request: BuildRequest) -> int:
    """Half a plan is written, and it says so; SIGINT ends it cleanly."""

    def stop(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop)
    try:
        with HiddenPlan(request.plan_path) as hidden:
            hidden.write(b"half a pl")
            emit(PhaseStarted(f"process {os.getpid()}", None, 0))
            time.sleep(HELD_S)
    except KeyboardInterrupt:
        emit(Failed("stopped", is_cancelled=True))
    return 1


def deaf(request: BuildRequest) -> int:
    """As `held`, and nothing but SIGKILL ends it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with HiddenPlan(request.plan_path) as hidden:
        hidden.write(b"half a pl")
        emit(PhaseStarted(f"process {os.getpid()}", None, 0))
        time.sleep(HELD_S)
    return 1


BEHAVIOURS: dict[str, Callable[[BuildRequest], int]] = {
    each.__name__: each for each in (good, falls_over_at_its_end, fails, crashes, is_killed, says_nothing, held, deaf)
}


def _written(request: BuildRequest) -> BuildReport:
    plan = plan_of(DOUBLE, VERSIONS["10"])
    with HiddenPlan(request.plan_path) as hidden:
        hidden.write(plan)
        hidden.write_manifest("{}")
        hidden.publish()
    return BuildReport(
        plan_path=request.plan_path,
        plan_bytes=len(plan),
        build_s=1.5,
        precision="fp16 (weakly typed)",
        profiles=(),
        layer_count=3,
        layer_precisions={"FP16": 3},
        scratch_bytes=(1024,),
        accuracy=AccuracyReport(
            min_cosine=0.999,
            buckets=(
                BucketAccuracy(bucket="1", profile=0, output="y", cosine=0.9999, largest_difference=0.001),
                BucketAccuracy(bucket="8", profile=0, output="y", cosine=0.9995, largest_difference=0.01),
            ),
        ),
    )


def _die(number: signal.Signals) -> NoReturn:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), number)
    raise AssertionError("it lives")


if __name__ == "__main__":
    wanted = BuildRequest.from_json(sys.stdin.read())
    sys.exit(BEHAVIOURS[wanted.model_folder.name](wanted))
