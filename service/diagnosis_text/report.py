"""The JSON document of a diagnosis, or of a review, as tables for a terminal. Pure.

Works on the document alone (`docs/diagnose.schema.json`), so that a server elsewhere is shown as the one at hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from io import StringIO
from typing import Any, TypeAlias

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from service.diagnosis_text.bars import bar, duration, rate, share, sparkline

Document: TypeAlias = Mapping[str, Any]

PLAIN_WIDTH = 120
LAYERS_SHOWN = 10

_VERDICT_STYLES = {"confirmed": "bold red", "unverified": "yellow", "refuted": "dim"}


def render(document: Document, *, shows_all: bool = False) -> RenderableType:
    """Everything that a terminal is told of a document, a review or a diagnosis.

    Args:
        document: as the server answers it.
        shows_all: whether refuted findings are shown with their evidence too.
    """
    if "outcomes" in document:
        return _review(document)
    parts: list[RenderableType] = [_headline(document), Text(), _load(document), Text(), _stages(document), Text()]
    parts += [_stations(document), Text(), _buckets(document)]
    parts += [_layers(table) for table in document["layers"]]
    parts += [Text(), *_findings(document["findings"], shows_all=shows_all), *_failed_checks(document)]
    return Group(*parts)


def is_clear(document: Document) -> bool:
    """Whether no finding is confirmed; of a review, whether no bottleneck that was found before is still there."""
    found = document["outcomes"] if "outcomes" in document else document["findings"]
    return not any(each["verdict"] == "confirmed" for each in found)


def to_text(document: Document) -> str:
    """The same without colours, for `text/plain`."""
    output = StringIO()
    Console(file=output, width=PLAIN_WIDTH, no_color=True, highlight=False).print(render(document))
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()) + "\n"


def _headline(document: Document) -> Text:
    model, window = document["model"], document["window"]
    style = "bold green" if document["healthy"] else "bold red" if window["valid"] else "bold yellow"
    return Text.assemble(
        (f"{model['name']} {model['version']}", "bold cyan"),
        f" on {model['backend']}, {duration(window['duration_s'])} watched, report {document['id']}\n",
        (window["headline"], style),
    )


def _load(document: Document) -> Text:
    window = document["window"]
    knee = window["in_flight_knee"]
    return Text(
        f"{rate(window['rows_per_s'])} rows/s answered of {rate(window['offered_rows_per_s'])} offered, in "
        f"{window['requests']:,} requests; latency mean {duration(window['latency_mean_s'])}, "
        f"p50 {duration(window['latency_p50_s'])}, p99 {duration(window['latency_p99_s'])}; "
        f"{rate(window['in_flight'])} in flight" + (f", {rate(knee)} would fill the server" if knee else "")
    )


def _stages(document: Document) -> Table:
    stages = {name: spent or 0.0 for name, spent in document["window"]["stages_s"].items()}
    total = sum(stages.values()) or 1.0
    table = _table("stage", "mean", "share", "")
    for name, spent in stages.items():
        table.add_row(name, duration(spent), share(spent / total), bar(spent / total))
    table.add_row(Text("by stage", style="dim"), "", "", Text(sparkline(list(stages.values())), style="dim"))
    return table


def _stations(document: Document) -> Table:
    table = _table("station", "demand/row", "busy", "capacity", "load", "")
    for name, station in document["stations"].items():
        within = f" (in {station['within']})" if station["within"] else ""
        is_limiter = name == document["limiter"]
        table.add_row(
            Text(name + within, style="bold magenta" if is_limiter else "dim" if within else ""),
            duration(station["demand_s"]),
            share(station["utilisation"]),
            f"{rate(station['capacity_rows_per_s'])} rows/s",
            share(station["load"]),
            bar(station["load"]) + (" limits first" if is_limiter else ""),
        )
    return table


def _buckets(document: Document) -> Table:
    table = _table("bucket", "batches", "rows", "fill", "waste", "batch", "warm-up", "graph", "")
    most = max((bucket["rows"] for bucket in document["buckets"]), default=0) or 1
    for bucket in sorted(document["buckets"], key=lambda each: -int(each["rows"])):
        table.add_row(
            bucket["bucket"],
            f"{bucket['batches']:,}",
            f"{bucket['rows']:,}",
            share(bucket["fill"]),
            share(bucket["waste"]),
            duration(bucket["batch_s"]),
            duration(bucket["cost_s"]),
            _graph(bucket),
            bar(bucket["rows"] / most, 10),
        )
    return table


def _graph(bucket: Document) -> str:
    runs = bucket["replays"] + bucket["eager_runs"]
    if not runs:
        return "-"
    return share(bucket["replays"] / runs) + (f" ({bucket['miss_reason']})" if bucket["miss_reason"] else "")


def _layers(table: Document) -> Table:
    title = f"layers of bucket {table['bucket']}, {duration(table['span_s'])}, {share(table['coverage'])} classified"
    shown = _table("layer", "kind", "time", "share", "class", "of the roof", title=title)
    for layer in sorted(table["layers"], key=lambda each: -float(each["time_s"] or 0.0))[:LAYERS_SHOWN]:
        shown.add_row(
            layer["name"][:60],
            layer["kind"],
            duration(layer["time_s"]),
            share(layer["share"]),
            layer["class"],
            share(layer["efficiency"]),
        )
    return shown


def _findings(findings: Iterable[Document], *, shows_all: bool) -> Iterable[RenderableType]:
    table = _table("class", "verdict", "gain", "why")
    details: list[RenderableType] = []
    for finding in findings:
        style = _VERDICT_STYLES[finding["verdict"]]
        gain = finding["gain"]
        table.add_row(
            Text(finding["class"], style=style),
            Text(finding["verdict"], style=style),
            f"{share(gain['value'])} {gain['metric']}, {gain['label']}" if gain else "",
            Text(finding["summary"]),
        )
        if finding["verdict"] == "confirmed" or shows_all:
            details.append(_details(finding))
    return (table, *details)


def _details(finding: Document) -> RenderableType:
    text = Text()
    text.append(f"\n{finding['class']}\n", style="bold")
    for evidence in finding["evidence"]:
        limit = f", held against {_number(evidence['threshold'])}" if evidence["threshold"] is not None else ""
        text.append(f"evidence: {evidence['name']} {_number(evidence['value'])} {evidence['unit']}{limit}\n")
    fix = finding["fix"]
    if fix:
        text.append(f"fix: {fix['text']}\n", style="green")
        for lines in (fix["card"], fix["command"]):
            for line in lines.splitlines():
                text.append(f"    {line}\n", style="green")
    for name in ("verify", "note"):
        if finding[name]:
            text.append(f"{name}: {finding[name]}\n")
    for missing in finding["missing"]:
        text.append(f"missing: {missing['what']} ({missing['probe']})\n", style="yellow")
    return Padding(text, (0, 0, 0, 2))


def _failed_checks(document: Document) -> Iterable[RenderableType]:
    for check in document["window"]["checks"]:
        if check["passed"] is False:
            yield Text(f"check {check['name']}: {check['detail']}; {check['mend']}", style="yellow")


def _review(document: Document) -> RenderableType:
    table = _table("class", "now", "predicted", "achieved", "")
    for outcome in document["outcomes"]:
        predicted = outcome["predicted"]
        held = {True: "held", False: "did not hold", None: "cannot be told"}[outcome["held"]]
        table.add_row(
            outcome["class"],
            outcome["verdict"],
            f"{share(predicted['value'])} {predicted['metric']}",
            share(outcome["achieved"]),
            Text(f"{held}: {outcome['detail']}"),
        )
    change = Text(f"since report {document['since']}: the load changed by {share(document['load_change'])}")
    if not document["outcomes"]:
        return Group(change, Text("that report predicted nothing"))
    return Group(change, table)


def _table(first: str, *others: str, title: str | None = None) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, title=title, title_justify="left")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="left" if name in ("", "why", "verdict", "kind", "class") else "right")
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
