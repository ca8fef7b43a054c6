"""How far predictions of a class have held on this server: what their next ones can be believed by. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from service.diagnosis.finding import BottleneckClass, Finding, GainLabel

CONFIDENCE: Mapping[GainLabel, float] = {GainLabel.MEASURED: 1.0, GainLabel.MODELLED: 0.8, GainLabel.UPPER_BOUND: 0.5}
"""What a gain counts by its label; an upper bound is as likely to be nothing as to be all."""

BENEFIT_OF_DOUBT = 2.0
"""Predictions that are taken to have held before any was reviewed: one that failed must not silence its class."""


@dataclass(frozen=True, slots=True)
class TrackRecord:
    """Reviewed predictions of one class.

    Attributes:
        judged: changes that were its fix, and whose gain could be compared.
        held: those that gained what was predicted.
    """

    judged: int = 0
    held: int = 0

    @property
    def earned(self) -> float:
        """What confidence is multiplied by: 1 without reviews, towards the share that held with many."""
        return (self.held + BENEFIT_OF_DOUBT) / (self.judged + BENEFIT_OF_DOUBT)


TrackRecords: TypeAlias = Mapping[BottleneckClass, TrackRecord]

NO_RECORDS: TrackRecords = MappingProxyType({})


def confidence(finding: Finding, records: TrackRecords) -> float | None:
    """How far a finding's gain is believed, between 0 and 1: by its label and its class's record; None without one."""
    if finding.gain is None:
        return None
    return CONFIDENCE[finding.gain.label] * records.get(finding.kind, TrackRecord()).earned
