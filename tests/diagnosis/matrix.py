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

    @property
    def is_counted(self) -> bool:
        """Whether it says something of the rules: a right answer always does, a wrong one on a machine left alone."""
        return self.is_right or not self.is_disturbed


def accuracy(trials: Iterable[Trial]) -> tuple[int, int]:
    """Right ones, and all that count."""
    counted = [trial for trial in trials if trial.is_counted]
    return sum(trial.is_right for trial in counted), len(counted)


def to_markdown(trials: Sequence[Trial]) -> str:
    """A row for each injected class in the order of the trials: which classes came first, and how often.

    A disturbed attempt that was wrong stands in its row all the same, in the column of what was not counted.
    """
    lines = [
        "| injected | came first | confirmed below it | right | disturbed and wrong, not counted |",
        "| --- | --- | --- | --- | --- |",
    ]
    for injected in dict.fromkeys(trial.injected for trial in trials):
        own = [trial for trial in trials if trial.injected == injected]
        counted = [trial for trial in own if trial.is_counted]
        right, of = accuracy(own)
        below = Counter(other for trial in counted for other in trial.others)
        left_out = Counter(trial.found for trial in own if not trial.is_counted)
        lines.append(
            f"| {injected} | {_told(Counter(trial.found for trial in counted))} | {_told(below)} | {right} of {of} "
            f"| {_told(left_out)} |"
        )
    right, of = accuracy(trials)
    return "\n".join([*lines, "", f"{right} of {of} attempts found the injected class first."])


def _told(counts: Mapping[str, int]) -> str:
    told = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} ({count})" for name, count in told) or "-"
