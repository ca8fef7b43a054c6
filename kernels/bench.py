"""How fast the kernels are on this machine's GPU, as shares of what the device itself reaches.

    python -m kernels.bench [--json FILE] [--cache FOLDER] [--only KERNEL ...]

Prints one line a case: microseconds, bytes moved and how fast, and the share of the roofline, which is the measured
device copy for all but the matrix products and multiply-adds. Beside it stand OpenCV on 1 and 8 threads and PyTorch,
where they are installed. Times are medians of launches within captured graphs, by events of the device.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kernels.bench_cases import CASES, Peaks
from kernels.compile import nvrtc
from kernels.launch import driver_api
from kernels.rivals import rivals_of
from kernels.session import DeviceSession
from service.runtime.cuda.calls import PreparedCall
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.stream import Event

ROUNDS = 7
ROUND_US = 5000.0
"""A round lasts about this long: far above what a launch of a graph costs."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One line of the report.

    Attributes:
        name: kernel and case.
        time_us: of one launch.
        gigabytes_per_s: bytes that must be read and written, by that time.
        teraflops: floating-point operations by that time, where they are what counts.
        roofline_share: of the device's copy, or of its matrix products or multiply-adds as measured here.
        rivals_us: what others need for the same, by name.
    """

    name: str
    time_us: float
    gigabytes_per_s: float
    teraflops: float
    roofline_share: float
    rivals_us: dict[str, float] = field(default_factory=dict)


def time_us(session: DeviceSession, calls: Sequence[PreparedCall]) -> float:
    """Microseconds of one run of the calls, the median of several rounds of many runs each."""
    once = _round_us(session, calls, 1, 2)
    repeats = max(1, min(200, round(ROUND_US / max(once, 1.0))))
    return _round_us(session, calls, repeats, ROUNDS)


def _round_us(session: DeviceSession, calls: Sequence[PreparedCall], repeats: int, rounds: int) -> float:
    stream, times = session.stream, []
    with (
        session.capture(*[call for _ in range(repeats) for call in calls]) as graph,
        Event(session.cuda, timing_enabled=True, blocking_sync=False) as begun,
        Event(session.cuda, timing_enabled=True, blocking_sync=False) as done,
    ):
        graph.launch(stream=stream)
        for _ in range(rounds):
            begun.record(stream=stream)
            graph.launch(stream=stream)
            done.record(stream=stream)
            done.sync()
            times.append(done.elapsed_ns_since(begun) / 1000 / repeats)
    return statistics.median(times)


def measure(session: DeviceSession, only: Sequence[str]) -> Iterator[Measurement]:
    """Runs the cases of the named kernels, or all; the device's own peaks come first, since the others need them."""
    peaks = Peaks()
    for kernel, cases in CASES.items():
        if only and kernel not in only and kernel != "peaks":
            continue
        for make in cases:
            with session.scope():
                case = make(session)
                elapsed = time_us(session, case.calls)
            peaks.note(case, elapsed)
            yield Measurement(
                name=case.name,
                time_us=elapsed,
                gigabytes_per_s=case.nbytes / elapsed / 1e3,
                teraflops=case.flops / elapsed / 1e6,
                roofline_share=peaks.share(case, elapsed),
                rivals_us=rivals_of(case),
            )


def _line(found: Measurement) -> str:
    rivals = "".join(f"  {name} {us:.0f} µs ({us / found.time_us:.1f} x)" for name, us in found.rivals_us.items())
    rate = f"{found.teraflops:8.1f} TFLOP/s" if found.teraflops else f"{found.gigabytes_per_s:8.0f} GB/s   "
    return f"{found.name:<44}{found.time_us:10.1f} µs {rate} {found.roofline_share:6.1%} of roofline{rivals}\n"


def main(arguments: Sequence[str]) -> int:
    """Measures and prints; gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m kernels.bench", description="Speed of the CUDA kernels.")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--cache", type=Path, default=Path(".cache/kernels"), help="folder of compiled kernels")
    parser.add_argument("--only", nargs="*", default=[], choices=[*CASES], help="kernels to measure")
    options = parser.parse_args(arguments)
    found = []
    cuda = Cuda.load()
    with DeviceSession.open(cuda, driver_api(), nvrtc(), cache=options.cache, device=0) as session:
        sys.stdout.write(f"{cuda.device_name(0)}\n")
        for measurement in measure(session, options.only):
            found.append(measurement)
            sys.stdout.write(_line(measurement))
            sys.stdout.flush()
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(measurement) for measurement in found], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
