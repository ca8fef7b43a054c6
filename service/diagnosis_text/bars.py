"""Numbers as they are read at a glance: durations, rates, shares, bars. Pure text, one line each."""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"
FULL, PARTS = "█", "▏▎▍▌▋▊▉"

UNKNOWN = "-"


def duration(seconds: float | None) -> str:
    """A duration in the unit that suits it, such as `1.25 ms`."""
    if seconds is None:
        return UNKNOWN
    for unit, per_s in (("s", 1.0), ("ms", 1e3)):
        if abs(seconds) * per_s >= 1.0:
            return f"{seconds * per_s:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def rate(per_s: float | None) -> str:
    """A rate per second."""
    return UNKNOWN if per_s is None else f"{per_s:,.4g}" if per_s < 1e4 else f"{per_s:,.0f}"


def share(ratio: float | None) -> str:
    """A share in percent."""
    return UNKNOWN if ratio is None else f"{ratio * 100:.1f} %"


def bar(ratio: float | None, width: int = 20) -> str:
    """A bar of at most `width` characters for a share between 0 and 1; larger ones fill it."""
    if ratio is None or ratio <= 0:
        return ""
    eighths = round(min(1.0, ratio) * width * 8)
    whole, part = divmod(eighths, 8)
    return FULL * whole + (PARTS[part - 1] if part else "")


def sparkline(values: Sequence[float]) -> str:
    """A character per value, as high as the value is among all; empty of none."""
    most = max(values, default=0.0)
    if most <= 0:
        return BLOCKS[0] * len(values)
    return "".join(BLOCKS[round(max(0.0, value) / most * (len(BLOCKS) - 1))] for value in values)
