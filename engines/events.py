"""What a build says while it goes on: one JSON object per line, from the child that builds to whoever shows it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from engines.report import BuildReport


@dataclass(frozen=True, slots=True)
class PhaseStarted:
    """A phase begins.

    Attributes:
        phase: its name, unique among the phases that are under way.
        parent: the phase that it is a part of, or None.
        steps: how many steps it will take; 0 where that is not known.
    """

    phase: str
    parent: str | None
    steps: int


@dataclass(frozen=True, slots=True)
class PhaseStep:
    """A step of a phase, counted from 0, is done."""

    phase: str
    step: int


@dataclass(frozen=True, slots=True)
class PhaseFinished:
    """A phase ends, perhaps before its last step."""

    phase: str


@dataclass(frozen=True, slots=True)
class LogLine:
    """Something worth a line: `severity` is `info`, `warning` or `error`."""

    severity: str
    text: str


@dataclass(frozen=True, slots=True)
class Done:
    """The plan has its name. The last event of a build that succeeded."""

    report: BuildReport


@dataclass(frozen=True, slots=True)
class Failed:
    """There is no new plan, and nothing of one was left. The last event of a build that did not succeed.

    Attributes:
        message: what happened and how to mend it.
        is_cancelled: whether that is only because it was told to stop.
    """

    message: str
    is_cancelled: bool = False


Event: TypeAlias = PhaseStarted | PhaseStep | PhaseFinished | LogLine | Done | Failed

OnEvent: TypeAlias = Callable[[Event], None]
"""Takes events as they happen, from whatever thread TensorRT uses: it must be thread-safe and must not raise."""

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (PhaseStarted, PhaseStep, PhaseFinished, LogLine, Failed)
}


def to_line(event: Event) -> str:
    """The event as one line of JSON, without the line's end."""
    if isinstance(event, Done):
        return json.dumps({"event": "Done", "report": event.report.to_content()})
    return json.dumps({"event": type(event).__name__, **asdict(event)})


def from_line(line: str) -> Event:
    """Reads what `to_line` wrote.

    Raises:
        ValueError: the line is no event.
    """
    try:
        content = json.loads(line)
        kind = content.pop("event")
        if kind == "Done":
            return Done(BuildReport.from_content(content["report"]))
        event: Event = _KINDS[kind](**content)
        return event
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"this is no event of a build: {line[:200]!r} ({error!r})") from error
