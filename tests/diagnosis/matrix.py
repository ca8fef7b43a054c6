"""What was injected against what was found, counted and written as markdown. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trial:
    """One attempt.

    Attributes:
        injected: the class, or `healthy`.
        found: the class that came first, `healthy` or `undecided`.
        others: further classes that were confirmed, ranked.
        is_disturbed: whether others took much of the machine meanwhile.
    """

    injected: str
    found: str
    others: tuple[str, ...] = ()
    is_disturbed: bool = False

    @property
    def is_right(self) -> bool:
        """Whether the injected class came first."""
        return self.injected == self.found


def accuracy(trials: Iterable[Trial]) -> tuple[int, int]:
    """Right ones, and all."""
    all_trials = list(trials)
    return sum(trial.is_right for trial in all_trials), len(all_trials)


def to_markdown(trials: Sequence[Trial]) -> str:
    """A row for each injected class in the order of the trials: which classes came first, and how often.

    Every attempt is counted. Those on a machine that was left alone are counted once more by themselves: what is found
    on a crowded one may well be the crowd.
    """
    lines = [
        "| injected | came first | confirmed below it | right | right of those left alone |",
        "| --- | --- | --- | --- | --- |",
    ]
    for injected in dict.fromkeys(trial.injected for trial in trials):
        own = [trial for trial in trials if trial.injected == injected]
        below = Counter(other for trial in own for other in trial.others)
        lines.append(
            f"| {injected} | {_told(Counter(trial.found for trial in own))} | {_told(below)} | {_right(own)} "
            f"| {_right(_left_alone(own))} |"
        )
    whole = f"| all | | | {_right(trials)} | {_right(_left_alone(trials))} |"
    return "\n".join([*lines, whole])


def _left_alone(trials: Iterable[Trial]) -> list[Trial]:
    return [trial for trial in trials if not trial.is_disturbed]


def _right(trials: Iterable[Trial]) -> str:
    right, of = accuracy(trials)
    return f"{right} of {of}"


def _told(counts: Mapping[str, int]) -> str:
    told = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} ({count})" for name, count in told) or "-"
