"""Drives a task by hand: what it asks for, and what it answers when given outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from service.pipeline.steps import Call, Outputs, Steps


def drive(steps: Steps, run: Callable[[Call], Outputs]) -> tuple[Any, list[list[Call]]]:
    """The answer of a task whose calls `run` answers, and the calls of every step."""
    asked: list[list[Call]] = []
    try:
        step = next(steps)
        while True:
            asked.append(list(step.calls))
            step = steps.send(tuple(run(call) for call in step.calls))
    except StopIteration as done:
        return done.value, asked
