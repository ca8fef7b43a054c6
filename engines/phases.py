"""Which phases of a build are under way, and how far each is: kept from the events that a build tells."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engines.events import Event, PhaseFinished, PhaseStarted, PhaseStep


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase under way.

    Attributes:
        name: as TensorRT, or this project, calls it.
        parent: the phase that it is a part of, or None.
        steps: how many steps it has; 0 where that is not known.
        done: steps that are done.
    """

    name: str
    parent: str | None
    steps: int
    done: int = 0


class Phases:
    """The phases under way, in the order in which they began. Used by one thread at a time."""

    def __init__(self) -> None:
        self._active: dict[str, Phase] = {}

    @property
    def active(self) -> tuple[Phase, ...]:
        """The phases, the oldest first."""
        return tuple(self._active.values())

    def apply(self, event: Event) -> None:
        """Follows one event. A step of a phase that nobody began is nobody's; the end of one is that of its parts."""
        match event:
            case PhaseStarted(name, parent, steps):
                self._finish(name)  # one that begins again, so that no phase is ever a part of itself
                self._active[name] = Phase(name, parent if parent in self._active else None, steps)
            case PhaseStep(name, step) if name in self._active:
                phase = self._active[name]
                # Threads of TensorRT tell their steps in any order.
                self._active[name] = replace(phase, done=max(phase.done, step + 1))
            case PhaseFinished(name):
                self._finish(name)
            case _:
                return

    def depth(self, phase: Phase) -> int:
        """How many phases it is a part of."""
        return 0 if phase.parent is None else 1 + self.depth(self._active[phase.parent])

    def fraction(self, phase: Phase) -> float | None:
        """How much of a phase is done, 0 to 1, counting the step in hand by its own part; None where nobody knows."""
        inner = max((known for part in self._parts(phase) if (known := self.fraction(part)) is not None), default=None)
        if not phase.steps:
            return inner
        return min(1.0, (phase.done + (inner or 0.0)) / phase.steps)

    @property
    def summary(self) -> str:
        """The newest outermost phase, such as `build, 45 %`; empty between phases."""
        roots = [phase for phase in self._active.values() if phase.parent is None]
        if not roots:
            return ""
        fraction = self.fraction(roots[-1])
        return roots[-1].name if fraction is None else f"{roots[-1].name}, {fraction:.0%}".replace("%", " %")

    def _parts(self, phase: Phase) -> list[Phase]:
        return [part for part in self._active.values() if part.parent == phase.name]

    def _finish(self, name: str) -> None:
        phase = self._active.pop(name, None)
        if phase is not None:
            for part in self._parts(phase):
                self._finish(part.name)
