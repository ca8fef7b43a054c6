"""P9: what the machine does at best, by the project's own kernels or, on the CPU, by ONNX Runtime."""

from __future__ import annotations

from service.probes.bench import Bench, Results, Rounds
from service.telemetry.snapshot_probes import ProbeFigures


def peaks(bench: Bench) -> Rounds:
    """One round: the ceilings are measured at once, and known for the rest of the process.

    Raises:
        ServiceError: the kernels do not compile here, or the device has no memory left for them.
    """
    if not (yield):
        return Results()
    return Results(ProbeFigures(peaks=bench.tools.peaks(bench.backend)))
