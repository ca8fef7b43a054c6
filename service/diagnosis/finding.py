"""The words of a diagnosis: classes of bottlenecks, verdicts, evidence, gains and fixes, all frozen."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class BottleneckClass(Enum):
    """What can limit a server; the value is the stable id, the order is that of the taxonomy."""

    OVERLOAD = "overload"
    BATCH_FORMATION_DELAY = "batch-formation-delay"
    BATCH_TOO_SMALL = "batch-too-small"
    CPU_PREPROCESS = "cpu-preprocess"
    COPY_BANDWIDTH = "copy-bandwidth"
    PAGEABLE_OR_ALLOCATING = "pageable-or-allocating"
    LAUNCH_BOUND = "launch-bound"
    GRAPH_MISS = "graph-miss"
    NOT_CAPTURABLE = "not-capturable"
    COMPUTE_BOUND = "compute-bound"
    MEMORY_BOUND = "memory-bound"
    INEFFICIENT_LAYERS = "inefficient-layers"
    GPU_IDLE_GAPS = "gpu-idle-gaps"
    LANE_COUNT = "lane-count"
    PADDING_WASTE = "padding-waste"
    WRONG_PROFILE = "wrong-profile"
    SHAPE_SWITCHING = "shape-switching"
    PYTHON_BOUND = "python-bound"
    CLIENT_LIMITED = "client-limited"
    NETWORK_PAYLOAD = "network-payload"
    CLOCKS = "clocks"
    INTERFERENCE = "interference"
    CPU_STARVED = "cpu-starved"
    COLD_START = "cold-start"
    BURSTY_ARRIVALS = "bursty-arrivals"
    INVALID_MEASUREMENT = "invalid-measurement"


class Verdict(Enum):
    """What the evidence says of a hypothesis."""

    CONFIRMED = "confirmed"
    """The evidence that tells it from its neighbours is there."""
    REFUTED = "refuted"
    """The evidence is against it, or it costs too little to matter."""
    UNVERIFIED = "unverified"
    """What would decide is missing; the finding says what, and which probe would tell."""


class GainMetric(Enum):
    """What gets better."""

    LATENCY_MEAN = "latency_mean"
    """Mean time of a request; the gain is the share of it that goes away."""
    LATENCY_P99 = "latency_p99"
    """Its 99th percentile; likewise."""
    THROUGHPUT = "throughput"
    """Rows per second at most; the gain is what is added, as a share of the present."""


class GainLabel(Enum):
    """How far a gain can be believed."""

    MEASURED = "measured"
    """A probe ran both ways on this server."""
    MODELLED = "modelled"
    """Computed from what was measured."""
    UPPER_BOUND = "upper bound"
    """It can be no more; it may be nothing."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number that a verdict rests on.

    Attributes:
        name: what it is, such as `device utilisation`.
        value: the number.
        unit: such as `s`, `ratio`, `rows/s`.
        threshold: what it was held against; None where it is there for information.
    """

    name: str
    value: float
    unit: str
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Gain:
    """What a fix is expected to gain.

    Attributes:
        metric: what gets better.
        value: as a share, see `GainMetric`.
        low: lower end of its interval.
        high: upper end.
        label: how far it can be believed.
    """

    metric: GainMetric
    value: float
    low: float
    high: float
    label: GainLabel

    @property
    def saved(self) -> float:
        """Share of the time per request that goes away: what makes gains of latency and of throughput comparable."""
        return self.value / (1.0 + self.value) if self.metric is GainMetric.THROUGHPUT else self.value


@dataclass(frozen=True, slots=True)
class Fix:
    """What to change.

    Attributes:
        text: in one sentence.
        card: lines of the model's card; empty if the card has no say.
        command: to run or to set; empty if there is none.
    """

    text: str
    card: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class Missing:
    """What would decide: `what` is missing, and `probe` or setting would tell."""

    what: str
    probe: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One hypothesis and what became of it.

    Attributes:
        kind: the class.
        verdict: confirmed, refuted or unverified.
        summary: why, in a sentence with numbers.
        evidence: what it rests on.
        gain: of the fix; None if the finding is not confirmed, or the gain is not known.
        fix: what to change; None unless confirmed.
        verify: what must move, and how, once it is changed; empty unless confirmed.
        missing: what would decide; empty unless unverified.
        note: a misconception that this finding contradicts; empty if there is none.
    """

    kind: BottleneckClass
    verdict: Verdict
    summary: str
    evidence: tuple[Evidence, ...] = ()
    gain: Gain | None = None
    fix: Fix | None = None
    verify: str = ""
    missing: tuple[Missing, ...] = ()
    note: str = ""


def refuted(kind: BottleneckClass, summary: str, *evidence: Evidence, note: str = "") -> Finding:
    """A finding whose evidence speaks against it."""
    return Finding(kind=kind, verdict=Verdict.REFUTED, summary=summary, evidence=evidence, note=note)


def unverified(
    kind: BottleneckClass, summary: str, *evidence: Evidence, missing: tuple[Missing, ...], note: str = ""
) -> Finding:
    """A finding that cannot be decided."""
    return Finding(
        kind=kind, verdict=Verdict.UNVERIFIED, summary=summary, evidence=evidence, missing=missing, note=note
    )


def unrecorded(kind: BottleneckClass, what: str, *evidence: Evidence) -> Finding:
    """A finding that cannot be decided because the server's own metrics do not have `what`, a plural."""
    missing = (Missing(what, "the server's own metrics"),)
    return unverified(kind, f"{what} were not recorded", *evidence, missing=missing)


def percent(share: float) -> str:
    """A share as text, such as `12.5 %`."""
    return f"{share * 100:.1f} %"


def seconds(duration_s: float) -> str:
    """A duration as text in the unit that suits it, such as `1.25 ms`."""
    for unit, per_s in (("s", 1.0), ("ms", 1e3)):
        if abs(duration_s) * per_s >= 1.0:
            return f"{duration_s * per_s:.3g} {unit}"
    return f"{duration_s * 1e6:.3g} us"
