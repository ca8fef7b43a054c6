"""The HTML that a browser gets first: it holds no figure and no name but those of its own address, escaped. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from string import Template
from urllib.parse import parse_qsl, urlencode

KEPT_PARAMETERS = frozenset({"model", "window", "since"})


@dataclass(frozen=True, slots=True)
class View:
    """One of the two pages.

    Attributes:
        name: which script draws it.
        title: of the tab.
    """

    name: str
    title: str


DASHBOARD = View("dashboard", "Inferlane")
DIAGNOSIS = View("diagnosis", "Diagnosis · Inferlane")


def render_shell(template: str, view: View, *, base: str, has_charts: bool, has_report: bool, query: str) -> str:
    """The page of a view; every value in it is escaped.

    Args:
        template: `shell.html`, with `$names`.
        view: which page.
        base: folder of the page's files, relative to the page and without a slash at its end.
        has_charts: whether the charts' script can be had.
        has_report: whether the server diagnoses.
        query: of the request; of it the model, the window and the report to compare with reach the text report.
    """
    known = [(name, value) for name, value in parse_qsl(query) if name in KEPT_PARAMETERS]
    report = f"diagnose?{urlencode([*known, ('format', 'text')])}"
    values = {
        "title": view.title,
        "reach": "" if has_report else "hidden",
        "view": view.name,
        "base": base,
        "charts": f"{base}/plotly.min.js" if has_charts else "",
        "report": report if has_report else "v2",
        "document": f"diagnose?{urlencode([*known, ('format', 'json')])}" if has_report else "?format=json",
    }
    return Template(template).substitute({name: escape(value) for name, value in values.items()})
