"""Behind `inferlane bench`: measures, then prints tables or JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import orjson
from rich.console import Console

from service.bench import layers_report
from service.bench.gate import GateOptions, Outcome, run_gate
from service.bench.gate_report import changes_table, conclusion, notes, to_dict
from service.bench.layers import bench_layers
from service.bench.measure import Trial
from service.bench.report import ceilings_table, lanes_table, to_dicts
from service.bench.run import bench_buckets, bench_mixed, open_model, parse_lengths
from service.settings import Settings


def buckets(settings: Settings, model: str, labels: Sequence[str], trial: Trial, *, as_json: bool) -> None:
    """Prints what the device alone does, and what lanes do, per bucket.

    Raises:
        ServiceError: as `bench_buckets`.
    """
    threads = settings.resolved_cpu_threads
    backend = open_model(settings.repository, model, cpu_threads=threads, is_marked=settings.nvtx_enabled)
    spec = backend.spec
    figures = list(bench_buckets(backend, labels, trial))
    if as_json:
        _print_json(to_dicts(figures))
        return
    console = Console()
    if any(each.ceiling is not None for each in figures):
        console.print(ceilings_table(spec, figures))
    console.print(lanes_table(spec, figures))


def mixed(
    settings: Settings, model: str, dims: Sequence[str], *, concurrency: int, duration_s: float, as_json: bool
) -> None:
    """Prints what the served model does with single rows of mixed sizes.

    Raises:
        ServiceError: as `bench_mixed`.
    """
    figures = asyncio.run(
        bench_mixed(
            settings.repository,
            model,
            parse_lengths(dims),
            concurrency=concurrency,
            duration_s=duration_s,
            cpu_threads=settings.resolved_cpu_threads,
        )
    )
    if as_json:
        _print_json(asdict(figures))
        return
    Console().print(
        f"{model}: {figures.requests_per_s:,.0f} requests/s with {figures.concurrency} in flight, "
        f"p50 {figures.p50_ms:.2f} ms, p99 {figures.p99_ms:.2f} ms",
        soft_wrap=True,
        markup=False,
    )


def gate(
    settings: Settings, model: str, labels: Sequence[str], trial: Trial, options: GateOptions, *, as_json: bool
) -> Outcome:
    """Records the model, and prints how it compares with the baseline where there is one.

    Returns:
        What came of it; a recording alone has passed.

    Raises:
        ServiceError: as `run_gate`.
    """
    result = run_gate(settings.repository, model, labels, trial, options, cpu_threads=settings.resolved_cpu_threads)
    if result.comparison is None:
        return result.outcome
    if as_json:
        _print_json(to_dict(result))
    else:
        console = Console()
        console.print(changes_table(result.comparison, result.tolerance.min_slowdown))
        for line in (*notes(result), conclusion(result)):
            console.print(line, soft_wrap=True, markup=False)
    return result.outcome


def layers(
    settings: Settings, model: str, labels: Sequence[str], export_profile: Path | None, *, as_json: bool
) -> None:
    """Prints the layers of buckets, and writes them to a file that is wanted.

    Raises:
        ServiceError: as `bench_layers`.
    """
    threads = settings.resolved_cpu_threads
    backend = open_model(settings.repository, model, cpu_threads=threads)
    found = list(bench_layers(backend, labels, cpu_threads=threads, export_profile=export_profile))
    if as_json:
        _print_json([layers_report.to_dict(each) for each in found])
        return
    console = Console()
    for each in found:
        console.print(layers_report.layers_table(each, model))
        for line in layers_report.notes(each):
            console.print(line, soft_wrap=True, markup=False, highlight=False)


def _print_json(value: object) -> None:
    Console().print(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode(), markup=False, soft_wrap=True)
