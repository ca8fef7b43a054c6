"""Layers as a table for a terminal and as JSON-able objects. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from service.bench.layers import BucketLayers
from service.diagnosis.document import JsonValue, layers_document
from service.diagnosis.layers import ClassifiedLayer, LayerClass, LayerTable

SHOWN_SHARE = 0.99
"""Of the time, that the table's rows explain; the many layers of the rest are one row."""

_ORIGINS = 2


def layers_table(found: BucketLayers, model: str) -> Table:
    """The layers that take 99 % of the time, the longest first, and the rest in one row."""
    title = f"{model}: layers of bucket {found.table.bucket.label}"
    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for heading in ("µs", "share", "TFLOP/s", "GB/s", "of roof"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("bound by", "type", "layer"):
        table.add_column(heading, overflow="fold")
    shown, rest = _split(found.table)
    for layer in shown:
        table.add_row(*map(_text, _cells(layer)))
    if rest:
        rest_s, share = sum(layer.time_s for layer in rest), sum(layer.share for layer in rest)
        cells = (f"{rest_s * 1e6:.1f}", f"{share:.1%}", "", "", "", "", "", f"{len(rest)} more")
        table.add_row(*map(_text, cells))
    return table


def notes(found: BucketLayers) -> Iterator[str]:
    """What the table as a whole tells, a line each."""
    table, trace = found.table, found.trace
    how = "by the graph's replay" if trace.is_replayed else "without a graph"
    profiled_s = sum(layer.time_s for layer in trace.layers)
    yield (
        f"one execution takes {table.span_s * 1e6:.1f} µs; with the profiler, {how}, its {len(table.layers)} layers "
        f"add up to {profiled_s * 1e6:.1f} µs and are scaled by {table.scale:.3f} (medians of {trace.runs} runs)"
    )
    yield f"FLOPs and bytes are known of {found.known_share:.1%} of the time, what bounds it of {table.coverage:.1%}"
    if found.peaks is None:
        yield f"the machine's peaks are not known, so nothing is classified: {found.problem}"
    else:
        peaks = found.peaks.peaks
        rates = ", ".join(f"{dtype} {rate / 1e12:.3g} TFLOP/s" for dtype, rate in sorted(peaks.flops_per_s.items()))
        yield f"peaks measured on {found.peaks.machine}: {rates}, {peaks.bytes_per_s / 1e9:,.0f} GB/s"
    bounds = ", ".join(f"{kind.value} {share:.1%}" for kind in LayerClass if (share := table.share_of(kind)) > 0)
    yield f"time by what bounds it: {bounds}"
    yield from _remarks(table)


def to_dict(found: BucketLayers) -> dict[str, JsonValue]:
    """One bucket as in the document of `/diagnose`, with how it was measured."""
    peaks = found.peaks
    return {
        **layers_document(found.table),
        "known_share": found.known_share,
        "runs": found.trace.runs,
        "replayed": found.trace.is_replayed,
        "overlapping": found.trace.are_overlapping,
        "machine": None if peaks is None else peaks.machine,
        "peaks": None
        if peaks is None
        else {
            "flops_per_s": dict(peaks.peaks.flops_per_s),
            "bytes_per_s": peaks.peaks.bytes_per_s,
            "empty_kernel_s": peaks.peaks.empty_kernel_s,
            "cache_bytes": peaks.peaks.cache_bytes,
        },
    }


def _split(table: LayerTable) -> tuple[list[ClassifiedLayer], list[ClassifiedLayer]]:
    """The longest layers, and those that are left once they explain enough; never one alone."""
    ordered = sorted(table.layers, key=lambda layer: -layer.time_s)
    total = sum(layer.share for layer in ordered)
    explained, count = 0.0, 0
    while count < len(ordered) and explained < SHOWN_SHARE * total:
        explained += ordered[count].share
        count += 1
    count = len(ordered) if len(ordered) - count == 1 else count
    return ordered[:count], ordered[count:]


def _cells(layer: ClassifiedLayer) -> tuple[str, ...]:
    figures, time_s = layer.figures, layer.time_s
    origin = " + ".join(figures.origin[:_ORIGINS]) + (" + ..." if len(figures.origin) > _ORIGINS else "")
    resident = ", in cache" if layer.is_cache_resident else ""
    return (
        f"{time_s * 1e6:.1f}",
        f"{layer.share:.1%}",
        _rate(figures.flops, time_s, 1e12, "{:.3f}"),
        _rate(figures.nbytes, time_s, 1e9, "{:,.0f}"),
        "-" if layer.efficiency is None else f"{layer.efficiency:.0%}",
        f"{layer.kind.value}{resident}",
        f"{figures.kind} {figures.dtype}".strip(),
        origin if origin and len(origin) < len(figures.name) else figures.name,
    )


def _rate(amount: float | None, time_s: float, unit: float, form: str) -> str:
    return "-" if amount is None or time_s <= 0 else form.format(amount / time_s / unit)


def _remarks(table: LayerTable) -> Iterator[str]:
    if table.reformat_share > 0:
        yield f"layers that only change type or layout take {table.reformat_share:.1%}"
    if plain := table.without_tensor_cores:
        share = sum(layer.share for layer in plain)
        yield f"products that leave the tensor cores idle take {share:.1%}: {_named(plain)}"
    unaligned = [layer for layer in table.layers if layer.figures.is_aligned is False]
    if unaligned:
        share = sum(layer.share for layer in unaligned)
        yield f"products whose channels tensor cores have to pad take {share:.1%}: {_named(unaligned)}"
    if table.has_many_tiny_layers:
        tiny = table.tiny_layers
        yield f"{len(tiny)} layers take less than 5 µs each and {sum(layer.share for layer in tiny):.1%} together"


def _named(layers: tuple[ClassifiedLayer, ...] | list[ClassifiedLayer]) -> str:
    longest = sorted(layers, key=lambda layer: -layer.share)[:3]
    return ", ".join(layer.figures.name for layer in longest)


def _text(cell: str) -> Text:
    """Not markup: brackets of names would be taken for styles. TensorRT 8.6 writes characters that steer a terminal."""
    return Text("".join(character if character.isprintable() else "�" for character in cell))
