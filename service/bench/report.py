"""The figures as a table for a terminal and as JSON-able objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from service.bench.measure import BucketFigures, Ceiling
from service.models import ModelSpec
from service.runtime.probe import LaunchTimes


def ceilings_table(spec: ModelSpec, figures: Sequence[BucketFigures]) -> Table:
    """What the device alone does per bucket; without a device there is no row."""
    columns = ("bucket", "graph µs", "eager µs", "host µs per launch, eager → graph", "h2d µs", "d2h µs", "rows/s")
    table = Table(*columns, title=f"{spec.name}: the device alone")
    for each in figures:
        if each.ceiling is not None:
            table.add_row(each.bucket.label, *_ceiling_cells(each.ceiling, each.bucket.padded_size))
    return table


def lanes_table(spec: ModelSpec, figures: Sequence[BucketFigures]) -> Table:
    """What lanes do per bucket, host to host."""
    columns = ("bucket", "lanes", "rows/s", "of ceiling", "enqueue µs", "host µs per batch", "p50 ms", "p99 ms")
    table = Table(*columns, title=f"{spec.name}: lanes, host to host")
    for each in figures:
        for lanes in each.lanes:
            share = "-" if lanes.ceiling_share is None else f"{lanes.ceiling_share:.1%}"
            rest = (f"{lanes.enqueue_us:.0f}", f"{lanes.host_us:.0f}", f"{lanes.p50_ms:.2f}", f"{lanes.p99_ms:.2f}")
            table.add_row(each.bucket.label, str(lanes.lanes), f"{lanes.rows_per_s:,.0f}", share, *rest)
    return table


def to_dicts(figures: Sequence[BucketFigures]) -> list[dict[str, Any]]:
    """The figures as JSON-able objects, times in microseconds."""
    return [
        {
            "bucket": each.bucket.label,
            "ceiling": None if each.ceiling is None else _ceiling_dict(each.ceiling),
            "lanes": [
                {
                    "lanes": lanes.lanes,
                    "rows_per_s": lanes.rows_per_s,
                    "ceiling_share": lanes.ceiling_share,
                    "enqueue_us": lanes.enqueue_us,
                    "host_us": lanes.host_us,
                    "p50_ms": lanes.p50_ms,
                    "p99_ms": lanes.p99_ms,
                }
                for lanes in each.lanes
            ],
        }
        for each in figures
    ]


def _ceiling_cells(ceiling: Ceiling, rows: int) -> tuple[str, ...]:
    replay = ceiling.replay
    host = f"{ceiling.eager.host_ns / 1e3:.1f} → {'-' if replay is None else f'{replay.host_ns / 1e3:.1f}'}"
    return (
        "-" if replay is None else f"{replay.device_ns / 1e3:.0f}",
        f"{ceiling.eager.device_ns / 1e3:.0f}",
        host,
        f"{ceiling.h2d.device_ns / 1e3:.0f}",
        f"{ceiling.d2h.device_ns / 1e3:.0f}",
        f"{rows / ceiling.batch_ns * 1e9:,.0f}",
    )


def _ceiling_dict(ceiling: Ceiling) -> dict[str, Any]:
    launches: dict[str, LaunchTimes | None] = {
        "graph": ceiling.replay,
        "eager": ceiling.eager,
        "h2d": ceiling.h2d,
        "d2h": ceiling.d2h,
    }
    return {
        name: None if times is None else {"device_us": times.device_ns / 1e3, "host_us": times.host_ns / 1e3}
        for name, times in launches.items()
    }
