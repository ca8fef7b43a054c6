"""Renders collected metrics in Prometheus' text format and in OpenMetrics, byte for byte as prometheus_client does.

prometheus_client escapes and checks every name of every sample anew, which takes more than the 20 ms that a scrape of
ten models may cost (`python -m service.telemetry.recorder_cost` shows both), mostly holding the interpreter lock
against the event loop. Here names are trusted, since they are our own.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString


def render(metrics: Iterable[Metric], *, is_openmetrics: bool) -> bytes:
    """Renders metrics without exemplars, time stamps, creation times, units or native histograms.

    Args:
        metrics: counters, gauges, histograms and metrics of unknown type, with names that need no escaping.
        is_openmetrics: whether to render OpenMetrics 1.0 instead of Prometheus' text format 0.0.4.
    """
    lines: list[str] = []
    for metric in metrics:
        lines.append(_openmetrics_head(metric) if is_openmetrics else _text_head(metric))
        for sample in metric.samples:
            lines.append(f"{sample.name}{_labels(sample.labels)} {go_float(sample.value)}\n")
    if is_openmetrics:
        lines.append("# EOF\n")
    return "".join(lines).encode()


def _openmetrics_head(metric: Metric) -> str:
    return f"# HELP {metric.name} {_escaped(metric.documentation)}\n# TYPE {metric.name} {metric.type}\n"


def _text_head(metric: Metric) -> str:
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    kind = "untyped" if metric.type == "unknown" else metric.type
    text = metric.documentation.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join([f'{name}="{_escaped(labels[name])}"' for name in sorted(labels)]) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def go_float(value: float) -> str:
    """A number as both formats write it."""
    # The library's own rule, which it applies with more steps, for the numbers that most of a scrape consists of.
    if -1_000_000 < value < 1_000_000:
        return repr(float(value))
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]
    return text
