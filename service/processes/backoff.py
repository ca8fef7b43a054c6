"""How long a process that ended waits to be started again."""

from __future__ import annotations

LEAST_DELAY_S = 0.1
MOST_DELAY_S = 5.0
STEADY_S = 30.0
"""A process that lived so long ended for a reason of its own: the next one begins as if it were the first."""


def failures_after(failures: int, *, lived_s: float) -> int:
    """How many in a row have ended early, one that lived `lived_s` being the last."""
    return 0 if lived_s >= STEADY_S else failures + 1


def restart_delay_s(failures: int) -> float:
    """Seconds until the next start, after so many early ends in a row: twice as long each time, up to a bound."""
    return min(MOST_DELAY_S, LEAST_DELAY_S * (1 << min(max(0, failures - 1), 16)))
