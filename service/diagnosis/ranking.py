"""Which findings count, and in which order: by gain times confidence, the refuted last.

Promises: the order depends on the findings alone, not on the order in which they come; a finding that saves less than
3 % is no bottleneck; where the window cannot be judged, nothing is confirmed but that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from service.diagnosis.finding import (
    BottleneckClass,
    Evidence,
    Finding,
    Gain,
    GainLabel,
    GainMetric,
    Missing,
    Verdict,
    percent,
)
from service.diagnosis.track_record import NO_RECORDS, TrackRecords, confidence

MATERIAL = 0.03
"""Share of a request's time, or of throughput, that a bottleneck must cost (taxonomy 2.4, step 6)."""

_CLASSES = list(BottleneckClass)
_VERDICTS = (Verdict.CONFIRMED, Verdict.UNVERIFIED, Verdict.REFUTED)


def score(finding: Finding, records: TrackRecords = NO_RECORDS) -> float:
    """Gain times confidence, in shares of a request's time; 0 without a gain."""
    return finding.gain.saved * (confidence(finding, records) or 0.0) if finding.gain else 0.0


def settle(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, less confirmed ones that cost too little, or that an invalid window cannot carry."""
    material = tuple(map(_material, findings))
    invalid = _confirmed(material, BottleneckClass.INVALID_MEASUREMENT)
    if invalid is None:
        return material
    return tuple(finding if finding is invalid else _doubted(finding) for finding in material)


def rank(
    findings: Sequence[Finding],
    offered_rows_per_s: float | None,
    capacity_rows_per_s: float | None,
    records: TrackRecords = NO_RECORDS,
) -> tuple[Finding, ...]:
    """The findings in the order in which to care for them.

    An invalid measurement comes first. Overload comes after a confirmed cause whose fix lets the server make what is
    asked of it: then it is that cause's symptom.

    Args:
        findings: settled.
        offered_rows_per_s: what is asked; None if unknown.
        capacity_rows_per_s: what the limiter makes at most; None if unknown.
        records: how far earlier predictions have held.
    """
    cause = _cause_of_overload(findings, offered_rows_per_s, capacity_rows_per_s)

    def key(finding: Finding) -> tuple[bool, int, float, bool, int]:
        is_symptom = cause is not None and finding.kind is BottleneckClass.OVERLOAD
        own = score(finding, records)
        if is_symptom and cause is not None:
            own = min(own, score(cause, records))
        is_invalid = finding.kind is BottleneckClass.INVALID_MEASUREMENT and finding.verdict is Verdict.CONFIRMED
        place = _CLASSES.index(finding.kind)
        return not is_invalid, _VERDICTS.index(finding.verdict), -own, is_symptom, place

    return tuple(sorted(findings, key=key))


def _cause_of_overload(
    findings: Sequence[Finding], offered_rows_per_s: float | None, capacity_rows_per_s: float | None
) -> Finding | None:
    """The best confirmed cause that surely raises throughput to what is offered; None if there is none."""
    if _confirmed(findings, BottleneckClass.OVERLOAD) is None or offered_rows_per_s is None or not capacity_rows_per_s:
        return None
    needed = offered_rows_per_s / capacity_rows_per_s - 1.0
    causes = [
        finding
        for finding in findings
        if finding.kind is not BottleneckClass.OVERLOAD
        and finding.verdict is Verdict.CONFIRMED
        and finding.gain is not None
        and finding.gain.metric is GainMetric.THROUGHPUT
        and finding.gain.low > max(0.0, needed)
    ]
    return max(causes, key=score, default=None)


def _confirmed(findings: Iterable[Finding], kind: BottleneckClass) -> Finding | None:
    return next((one for one in findings if one.kind is kind and one.verdict is Verdict.CONFIRMED), None)


def _material(finding: Finding) -> Finding:
    """Refutes a confirmed finding whose gain does not count, or cannot be told from nothing."""
    gain = finding.gain
    if finding.verdict is not Verdict.CONFIRMED or gain is None or (gain.saved >= MATERIAL and not _is_noise(gain)):
        return finding
    return replace(
        finding,
        verdict=Verdict.REFUTED,
        summary=f"{finding.summary}; that costs {percent(gain.saved)}, which does not count",
        evidence=(*finding.evidence, Evidence("what a fix would save", gain.saved, "ratio", MATERIAL)),
        gain=None,
        fix=None,
        verify="",
    )


def _is_noise(gain: Gain) -> bool:
    """Whether a measured gain is less than twice the half width of its interval (taxonomy 2.4, step 6)."""
    return gain.label is GainLabel.MEASURED and gain.value < gain.high - gain.low


def _doubted(finding: Finding) -> Finding:
    if finding.verdict is not Verdict.CONFIRMED:
        return finding
    return replace(
        finding,
        verdict=Verdict.UNVERIFIED,
        summary=f"in a window that cannot be judged: {finding.summary}",
        gain=None,
        fix=None,
        verify="",
        missing=(Missing("a valid window", "see invalid-measurement"),),
    )
