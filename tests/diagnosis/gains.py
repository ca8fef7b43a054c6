"""Predicted against achieved: does what the first finding says, loads again, and asks the server for a review."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.diagnosis.card_change import changed
from tests.diagnosis.scenarios.disturbance import Disturbance, between, core_count, look
from tests.diagnosis.scenarios.loads import Load
from tests.diagnosis.scenarios.play import diagnosis, observe, serving, write_model
from tests.diagnosis.scenarios.recipes import MODEL, Document, Recipe
from tests.doubles.running_server import RunningServer


@dataclass(frozen=True, slots=True, kw_only=True)
class GainTrial:
    """One fix.

    Attributes:
        injected: the class.
        found: the class that came first; where it is another one, no fix was tried, and what follows is empty.
        change: what was changed.
        metric: what was to get better.
        predicted: its gain, as a share.
        low: lower end of the predicted interval.
        high: upper end.
        label: how far the prediction can be believed.
        achieved: what the server's own review says; None where it cannot compare.
        has_held: whether it lies in the interval or within a quarter of the prediction; None likewise.
        detail: the review's words.
        rates: requests answered per second, before and after.
        means_s: mean time of a request, before and after.
        others: shares of the machine that others took, before and after.
    """

    injected: str
    found: str
    change: str = ""
    metric: str = ""
    predicted: float | None = None
    low: float | None = None
    high: float | None = None
    label: str = ""
    achieved: float | None = None
    has_held: bool | None = None
    detail: str = ""
    rates: tuple[float, ...] = ()
    means_s: tuple[float, ...] = ()
    others: tuple[float, ...] = ()


def measure(recipe: Recipe) -> GainTrial:
    """Plays the recipe, applies the fix of its class to the same server, and plays it again."""
    with tempfile.TemporaryDirectory() as folder, serving(recipe, Path(folder)) as server:
        before = observe(server, recipe)
        if not before.is_right or before.document["findings"][0]["gain"] is None:
            return GainTrial(injected=before.expected, found=before.found)
        finding = before.document["findings"][0]
        load = recipe.cure(before.document) if recipe.cure else recipe.load
        if recipe.cure is None:
            write_model(replace(recipe, card=changed(recipe.card, finding["fix"]["card"])), server.repository)
            reload_model(server)
        disturbance = _play(server, load)
        review = _review(server, load, before.document["id"])
        after = diagnosis(server, load)
    return _trial(before.document, after, review, (before.disturbance, disturbance), recipe)


def reload_model(server: RunningServer) -> None:
    """Has the server read the card again."""
    with server.client() as client:
        answer = client.post(f"/v2/repository/models/{MODEL}/load")
    assert answer.status_code == 200, answer.text


def _play(server: RunningServer, load: Load) -> Disturbance:
    before = look([server.process.pid])
    load.run(server.url, MODEL)
    return between(before, look([server.process.pid]), core_count())


def _review(server: RunningServer, load: Load, since: str) -> Document:
    with server.client() as client:
        answer = client.get("/diagnose", params={"since": since, "window": load.seconds})
    assert answer.status_code == 200, answer.text
    document: Document = answer.json()
    return document


def _trial(
    before: Document, after: Document, review: Document, others: Sequence[Disturbance], recipe: Recipe
) -> GainTrial:
    finding = before["findings"][0]
    outcome = next(one for one in review["outcomes"] if one["class"] == finding["class"])
    windows = before["window"], after["window"]
    gain = finding["gain"]
    return GainTrial(
        injected=finding["class"],
        found=finding["class"],
        change=" ".join(finding["fix"]["card"].split()) if recipe.cure is None else finding["fix"]["text"],
        metric=gain["metric"],
        predicted=gain["value"],
        low=gain["low"],
        high=gain["high"],
        label=gain["label"],
        achieved=outcome["achieved"],
        has_held=outcome["held"],
        detail=outcome["detail"],
        rates=tuple(window["requests"] / window["duration_s"] for window in windows),
        means_s=tuple(window["latency_mean_s"] for window in windows),
        others=tuple(one.others + one.stolen for one in others),
    )


def to_markdown(trials: Iterable[GainTrial]) -> str:
    """A row for each fix that was tried, and one for each that was not."""
    lines = [
        "| class | what was changed | predicted | achieved | held | requests/s | mean latency | others' share |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in trials:
        if one.predicted is None:
            lines.append(f"| {one.injected} | nothing: {one.found} came first | - | - | - | - | - | - |")
            continue
        achieved = "not comparable" if one.achieved is None else f"{one.achieved:.0%}"
        held = {True: "yes", False: "**no**", None: "-"}[one.has_held]
        lines.append(
            f"| {one.injected} | {one.change} | {one.metric} {one.predicted:.0%} ({one.low:.0%} to {one.high:.0%}, "
            f"{one.label}) | {achieved} | {held} | {_pair(one.rates, 1.0, '')} | {_pair(one.means_s, 1e3, ' ms')} "
            f"| {_pair(one.others, 100.0, ' %')} |"
        )
    return "\n".join(lines)


def _pair(values: Sequence[float], scale: float, unit: str) -> str:
    return " → ".join(f"{value * scale:.3g}{unit}" for value in values)
