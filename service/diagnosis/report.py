"""From a snapshot to a diagnosis: the gate, the laws, the rules, the order. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from service.diagnosis.finding import Finding, Verdict, percent
from service.diagnosis.layers import LayerTable, classify
from service.diagnosis.observed import is_held_up, is_pool_kept_from_cores
from service.diagnosis.ranking import MATERIAL, rank, settle
from service.diagnosis.rules import RULES
from service.diagnosis.stations import StationLoad, knee_requests, limiter, station_loads
from service.diagnosis.track_record import NO_RECORDS, TrackRecords
from service.diagnosis.validity import Check, fatal, run_checks
from service.telemetry.snapshot import MetricsSnapshot
from service.telemetry.snapshot_load import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One diagnosis.

    Attributes:
        id: by which a later one can refer to it.
        snapshot: what it was made from.
        checks: whether the window could be judged.
        stations: who was how busy.
        limiter: the station that would limit throughput first; None without data.
        knee_requests: requests in flight beyond which throughput grows no more; None without data.
        findings: one per class, ranked.
        layers: of the profiled buckets, placed under the roof.
        records: how far earlier predictions have held, by which findings were ranked.
    """

    id: str
    snapshot: MetricsSnapshot
    checks: tuple[Check, ...]
    stations: tuple[StationLoad, ...]
    limiter: StationLoad | None
    knee_requests: float | None
    findings: tuple[Finding, ...]
    layers: tuple[LayerTable, ...]
    records: TrackRecords = field(default_factory=lambda: NO_RECORDS)

    @property
    def is_valid(self) -> bool:
        """Whether the window can be judged."""
        return not fatal(self.checks)

    @property
    def confirmed(self) -> tuple[Finding, ...]:
        """The bottlenecks, the one to care for first at first."""
        return tuple(finding for finding in self.findings if finding.verdict is Verdict.CONFIRMED)

    @property
    def is_healthy(self) -> bool:
        """Whether no bottleneck was found in a window that tells enough to find one, and nothing slowed the server."""
        return self.is_valid and not self.confirmed and self._is_told and not self._is_kept_from_cores

    @property
    def headline(self) -> str:
        """The diagnosis in a sentence."""
        if self.is_healthy:
            return f"no bottleneck above {MATERIAL:.0%}".replace("%", " %") + self._doubts
        if not self.is_valid:
            return f"this window cannot be judged: {self.confirmed[0].summary}"
        if not self.confirmed and self._is_told:
            return f"no bottleneck was found, but something keeps the server's threads from cores{self._doubts}"
        if not self.confirmed:
            return f"no bottleneck was found, but too little was recorded to rule one out{self._doubts}"
        first = self.confirmed[0]
        gain = f" (up to {percent(first.gain.value)} of {first.gain.metric.value})" if first.gain else ""
        return f"{first.kind.value}: {first.summary}{gain}"

    @property
    def _is_told(self) -> bool:
        """Whether stations and stages were recorded: without them nothing could have been found."""
        return self.limiter is not None and set(self.snapshot.requests.stages) == set(Stage)

    @property
    def _is_kept_from_cores(self) -> bool:
        """Whether requests wait for threads that hardly work: who keeps them is not known, but it costs time."""
        return is_held_up(self.snapshot) or is_pool_kept_from_cores(self.snapshot)

    @property
    def _doubts(self) -> str:
        count = sum(finding.verdict is Verdict.UNVERIFIED for finding in self.findings)
        noun = "hypothesis" if count == 1 else "hypotheses"
        return f"; {count} {noun} could not be decided" if count else ""


def diagnose(snapshot: MetricsSnapshot, *, report_id: str, records: TrackRecords = NO_RECORDS) -> Report:
    """Judges a window by every rule.

    Args:
        snapshot: the window.
        report_id: what the report is to be called.
        records: how far earlier predictions have held.
    """
    stations = station_loads(snapshot)
    first = limiter(stations)
    findings = settle(rule(snapshot) for rule in RULES.values())
    return Report(
        id=report_id,
        snapshot=snapshot,
        checks=run_checks(snapshot, stations),
        stations=stations,
        limiter=first,
        knee_requests=knee_requests(snapshot, stations),
        findings=rank(
            findings,
            snapshot.arrivals.rows_per_s if snapshot.arrivals else None,
            first.capacity_rows_per_s if first else None,
            records,
        ),
        layers=tuple(classify(profile, snapshot.probes.peaks) for profile in snapshot.layers),
        records=records,
    )
