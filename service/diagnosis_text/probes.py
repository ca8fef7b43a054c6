"""Lets a server run its experiments, and waits for them; blocking."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.text import Text

from service.diagnosis_text.client import ask

POLL_S = 0.5
STYLES = {"done": "green", "skipped": "dim", "failed": "red", "stopped": "yellow"}
"""Of the states in which an experiment stays."""


def run_probes(
    url: str,
    model: str | None,
    mode: str,
    *,
    api_key: str | None,
    show: Callable[[Text], None],
    wait: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Runs every experiment that the model and the machine allow, and tells of each as it ends.

    Interrupted, it ends the run on the server too.

    Args:
        url: of the server.
        model: its name; None where one alone serves.
        mode: `shadow` or `exclusive`.
        api_key: the admin key, where there is one.
        show: takes a line for a terminal.
        wait: waits so many seconds.

    Raises:
        DiagnosisUnavailable: the server cannot be reached, or refuses.
    """
    order = {"probes": "all", "mode": mode} | ({"model": model} if model is not None else {})
    document = ask(url, "/diagnose/probes", method="POST", body=order, api_key=api_key)
    path = f"/diagnose/probes/{document['id']}"
    show(Text(f"probing model {document['model']} in mode {mode}: run {document['id']}"))
    told = 0
    try:
        while True:
            over = [probe for probe in document["probes"] if probe["state"] in STYLES]
            for probe in over[told:]:
                show(_line(probe))
            told = len(over)
            if document["state"] != "running":
                return document
            wait(POLL_S)
            document = ask(url, path, api_key=api_key)
    except KeyboardInterrupt:
        ask(url, path, method="DELETE", api_key=api_key)
        raise


def _line(probe: dict[str, Any]) -> Text:
    state = str(probe["state"])
    line = Text.assemble(f"  {probe['numbers']:>3} {probe['name']:<15} ", (f"{state:<8}", STYLES[state]))
    return line.append(f" {probe.get('reason') or probe['about']}")
