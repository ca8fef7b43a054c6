"""The gate as a finding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.diagnosis.finding import Verdict
from service.diagnosis.rules.invalid_measurement import examine
from tests.doubles.faults import cold_start, cpu_starved, invalid_measurement
from tests.doubles.snapshots import bare, healthy, requests


@pytest.mark.parametrize(
    ("snapshot", "verdict", "words"),
    [
        pytest.param(invalid_measurement(), Verdict.CONFIRMED, "N and X * R differ by", id="inconsistent"),
        pytest.param(healthy(requests=requests(count=5)), Verdict.CONFIRMED, "5 requests were answered", id="few"),
        pytest.param(healthy(), Verdict.REFUTED, "of 11 checks 11 could be made", id="valid"),
        pytest.param(cold_start(), Verdict.REFUTED, "all of these hold", id="named by cold-start"),
        pytest.param(cpu_starved(), Verdict.REFUTED, "all of these hold", id="named by cpu-starved"),
        pytest.param(bare(), Verdict.REFUTED, "2 could be made", id="little recorded"),
    ],
)
def test_verdicts(snapshot, verdict, words):
    finding = examine(snapshot)
    assert finding.verdict is verdict
    assert words in finding.summary


def test_every_failure_is_told_and_mended():
    window = replace(healthy().window, duration_s=1.0, wall_duration_s=9.0)
    finding = examine(healthy(window=window, requests=requests(count=5)))
    assert finding.summary.count(";") == finding.fix.text.count(";") >= 2
    assert len(finding.evidence) >= 3
