"""A build on a terminal: a bar for each phase whose steps are known, a spinner for the others, and the time."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from engines.events import Event, LogLine
from engines.phases import Phases

STYLES = {"info": "", "warning": "yellow", "error": "red"}
WHOLE = 1000
"""What a full bar counts to: a phase's part is a fraction."""


class BuildBars:
    """Shows one build; entered, it is on the screen. Called by one thread.

    The first line is the whole build and never has a bar: how long it takes, TensorRT does not say, and before 9.1 not
    even how far it is.

    Args:
        console: the terminal.
        model: the model's name.
    """

    def __init__(self, console: Console, model: str) -> None:
        self._console = console
        self._model = model
        self._phases = Phases()
        self._tasks: dict[str, TaskID] = {}
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[share]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )

    @property
    def picture(self) -> RenderableType:
        """What is on the screen now."""
        return self._progress.get_renderable()

    def __enter__(self) -> BuildBars:
        self._progress.start()
        self._progress.add_task(f"building {self._model}", total=None, share="")
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        """Shows an event of the build."""
        if isinstance(event, LogLine):
            self._console.print(Text(f"{self._model}: {event.text}", STYLES.get(event.severity, "")), soft_wrap=True)
            return
        self._phases.apply(event)
        active = {phase.name: phase for phase in self._phases.active}
        for name in self._tasks.keys() - active.keys():
            self._progress.remove_task(self._tasks.pop(name))
        for name, phase in active.items():
            if name not in self._tasks:
                indent = "  " * (1 + self._phases.depth(phase))
                self._tasks[name] = self._progress.add_task(f"{indent}{name}", total=None, share="")
            fraction = self._phases.fraction(phase)
            if fraction is not None:
                share = f"{fraction:.0%}".replace("%", " %")
                self._progress.update(self._tasks[name], total=WHOLE, completed=fraction * WHOLE, share=share)
