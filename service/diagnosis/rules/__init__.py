"""The rules, one per class of bottleneck: pure functions from a snapshot to a finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from service.diagnosis.finding import BottleneckClass, Finding
from service.diagnosis.rules import (
    batch_formation_delay,
    batch_too_small,
    bursty_arrivals,
    client_limited,
    clocks,
    cold_start,
    compute_bound,
    copy_bandwidth,
    cpu_preprocess,
    cpu_starved,
    gpu_idle_gaps,
    graph_miss,
    inefficient_layers,
    interference,
    invalid_measurement,
    lane_count,
    launch_bound,
    memory_bound,
    network_payload,
    not_capturable,
    overload,
    padding_waste,
    pageable_or_allocating,
    python_bound,
    shape_switching,
    wrong_profile,
)
from service.telemetry.snapshot import MetricsSnapshot

Rule: TypeAlias = Callable[[MetricsSnapshot], Finding]

_MODULES = (
    overload,
    batch_formation_delay,
    batch_too_small,
    cpu_preprocess,
    copy_bandwidth,
    pageable_or_allocating,
    launch_bound,
    graph_miss,
    not_capturable,
    compute_bound,
    memory_bound,
    inefficient_layers,
    gpu_idle_gaps,
    lane_count,
    padding_waste,
    wrong_profile,
    shape_switching,
    python_bound,
    client_limited,
    network_payload,
    clocks,
    interference,
    cpu_starved,
    cold_start,
    bursty_arrivals,
    invalid_measurement,
)

RULES: Mapping[BottleneckClass, Rule] = MappingProxyType({module.KIND: module.examine for module in _MODULES})
"""One rule per class, in the order of the taxonomy."""
