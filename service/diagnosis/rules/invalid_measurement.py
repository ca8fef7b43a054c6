"""invalid-measurement: nothing can be said of this window.

Confirmed where a check of `validity.py` fails that no other class names. Warm-up inside of the window and throttling
are named by cold-start and cpu-starved.
"""

from __future__ import annotations

from service.diagnosis.finding import BottleneckClass, Evidence, Finding, Fix, Verdict, refuted
from service.diagnosis.misconceptions import HOST_TIMERS_LIE
from service.diagnosis.stations import station_loads
from service.diagnosis.validity import fatal, run_checks
from service.telemetry.snapshot import MetricsSnapshot

KIND = BottleneckClass.INVALID_MEASUREMENT


def examine(snapshot: MetricsSnapshot) -> Finding:
    """Judges whether the window can be judged."""
    checks = run_checks(snapshot, station_loads(snapshot))
    failed = fatal(checks)
    evidence: tuple[Evidence, ...] = tuple(
        check.evidence for check in failed or checks if check.evidence and check.is_passed is not None
    )
    if not failed:
        known = sum(check.is_passed is not None for check in checks)
        return refuted(KIND, f"of {len(checks)} checks {known} could be made, and all of these hold", *evidence)
    return Finding(
        kind=KIND,
        verdict=Verdict.CONFIRMED,
        summary="; ".join(check.detail for check in failed),
        evidence=evidence,
        fix=Fix("; ".join(check.mend for check in failed)),
        verify="every check must hold",
        note=HOST_TIMERS_LIE,
    )
