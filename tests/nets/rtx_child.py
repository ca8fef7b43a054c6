"""Builds one model with TensorRT-RTX by our own builder, in a process of its own, and prints what came of it as JSON.

    python -m tests.nets.rtx_child MODEL_FOLDER PLAN [cancel]

`serialise` is the part of a build that needs no GPU. With `cancel` the build is told to stop once TensorRT has begun.
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engines.config import decide
from engines.events import Event, LogLine, PhaseFinished, PhaseStarted, PhaseStep
from engines.onnx_facts import read_facts
from engines.request import BuildOptions
from engines.serialise import BUILD_PHASE, BuildCancelled, Job, Voice, serialise
from service.errors import ServiceError
from service.repository.card import load_card
from service.runtime.trt.flavour import describe

FREE_BYTES = 4 << 30


class Listener:
    """Keeps what a build says."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def has_begun(self) -> bool:
        """Whether TensorRT itself has begun a phase."""
        return any(isinstance(event, PhaseStarted) and event.parent == BUILD_PHASE for event in self.events)

    def summary(self) -> dict[str, Any]:
        """Phases as they were started and finished, by name; the steps' number; lines."""
        return {
            "started": [asdict(event) for event in self.events if isinstance(event, PhaseStarted)],
            "finished": [event.phase for event in self.events if isinstance(event, PhaseFinished)],
            "steps": sum(isinstance(event, PhaseStep) for event in self.events),
            "lines": [f"{event.severity}: {event.text}" for event in self.events if isinstance(event, LogLine)],
        }


def main(model_folder: Path, plan_path: Path, *, is_cancelled_midway: bool) -> None:
    """Builds, writes the plan and prints the outcome."""
    flavour = describe("tensorrt_rtx", importlib.import_module("tensorrt_rtx"))
    card, onnx = load_card(model_folder), model_folder / "1" / "model.onnx"
    listener = Listener()
    job = Job(
        onnx=onnx,
        facts=read_facts(onnx),
        card=card,
        settings=decide(BuildOptions(), card, FREE_BYTES),
        cache_path=plan_path.with_suffix(".timing-cache"),
    )
    voice = Voice(listener, listener.has_begun if is_cancelled_midway else lambda: False)
    outcome: dict[str, Any] = {"version": flavour.version, "error": ""}
    try:
        built = serialise(flavour, job, voice)
        plan_path.write_bytes(bytes(built.plan))
        outcome |= {
            "precision": built.precision.text,
            "is_strongly_typed": built.precision.is_strongly_typed,
            "profiles": [{name: asdict(shapes) for name, shapes in each.items()} for each in built.profiles],
        }
    except BuildCancelled as error:
        outcome |= {"is_cancelled": True, "error": error.message}
    except ServiceError as error:
        outcome["error"] = error.message
    sys.stdout.write(json.dumps({**outcome, **listener.summary()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), is_cancelled_midway=sys.argv[3:] == ["cancel"])
