"""Graph misses by their reason, and what the graphs would save."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.diagnosis.finding import Verdict
from service.diagnosis.rules.graph_miss import examine
from service.telemetry.snapshot_probes import ProbeFigures
from tests.doubles.faults import graph_miss, launch_bound, not_capturable
from tests.doubles.snapshots import around, healthy, probes

SPOILT = graph_miss()


def missing_for(reason: str, eager_runs: int = 37_500):
    return replace(SPOILT, buckets=(replace(SPOILT.buckets[0], miss_reason=reason, eager_runs=eager_runs),))


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(
            SPOILT, Verdict.CONFIRMED, "50.0 % of the batches ran without a graph, in the buckets 8", id="memory"
        ),
        pytest.param(missing_for("replay_differs"), Verdict.CONFIRMED, "replay_differs", id="differs"),
        pytest.param(missing_for("memory_budget", 50), Verdict.REFUTED, "no bucket misses", id="hardly any"),
        pytest.param(launch_bound(), Verdict.REFUTED, "no bucket misses", id="switched off"),
        pytest.param(not_capturable(), Verdict.REFUTED, "no bucket misses", id="cannot be captured"),
        pytest.param(replace(SPOILT, probes=ProbeFigures()), Verdict.UNVERIFIED, "what one would save", id="no P1"),
        pytest.param(
            replace(
                SPOILT,
                probes=probes(
                    launches={
                        SPOILT.buckets[0].bucket: replace(
                            probes().launches[SPOILT.buckets[0].bucket], eager=around(560e-6)
                        )
                    }
                ),
            ),
            Verdict.REFUTED,
            "could be told from noise",
            id="graphs save nothing",
        ),
        pytest.param(healthy(buckets=()), Verdict.UNVERIFIED, "not recorded", id="no batches"),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


@pytest.mark.parametrize(
    ("reason", "card"), [("memory_budget", "[lanes]\ngraph_memory_bytes = 1073741824"), ("replay_differs", "[buckets]")]
)
def test_the_fix_is_of_the_reason(reason, card):
    fix = examine(missing_for(reason)).fix
    assert fix is not None
    assert fix.card == card


def test_half_of_the_batches_gain_half():
    whole, half = missing_for("memory_budget", 75_000), SPOILT
    assert examine(whole).gain.low == pytest.approx(2 * examine(half).gain.low)
    assert examine(whole).gain.value > 1.8 * examine(half).gain.value
