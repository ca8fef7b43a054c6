"""Steps of load, and scenario files that list them. Pure but for reading the file."""

from __future__ import annotations

import dataclasses
import difflib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtest.arrivals import Arrivals
from loadtest.errors import LoadTestError
from loadtest.payloads import Wire

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One load on one model. Exactly one of `concurrency`, `rate` and `capacity_fraction` is given.

    Attributes:
        label: name in the report; derived when empty.
        concurrency: requests in flight of a closed loop.
        rate: requests per second of an open loop.
        capacity_fraction: rate of an open loop as a fraction of the best throughput of the closed loops before it.
        arrivals: spread of an open loop's send times.
        burst_size: requests due at once with `Arrivals.BURST`.
        duration_s: measured time in seconds.
        warm_up_s: time in seconds before it, whose requests are not reported.
        grace_s: time in seconds after it in which answers may still arrive.
        rows: sizes of requests to mix.
        dims: sizes to mix by dynamic dimension.
        wire: how tensors travel.
        seed: of send times and payloads.
    """

    label: str = ""
    concurrency: int | None = None
    rate: float | None = None
    capacity_fraction: float | None = None
    arrivals: Arrivals = Arrivals.POISSON
    burst_size: int = 16
    duration_s: float = 10.0
    warm_up_s: float = 2.0
    grace_s: float = 5.0
    rows: tuple[int, ...] = (1,)
    dims: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    wire: Wire = Wire.BINARY
    seed: int = 0

    @property
    def title(self) -> str:
        """The label, or what the step does in words."""
        if self.label:
            return self.label
        if self.concurrency is not None:
            return f"closed c={self.concurrency}"
        if self.rate is not None:
            return f"{self.arrivals.value} {self.rate:g}/s"
        return f"{self.arrivals.value} {self.capacity_fraction or 0:g} x capacity"


_LOADS = ("concurrency", "rate", "capacity_fraction")


def check_step(step: Step) -> Step:
    """`step` itself if its values make sense.

    Raises:
        LoadTestError: they do not; the message names the key.
    """
    given = [name for name in _LOADS if getattr(step, name) is not None]
    if len(given) != 1:
        raise LoadTestError(f"step {step.title!r} gives {given or 'no load'}; give exactly one of {', '.join(_LOADS)}")
    if getattr(step, given[0]) <= 0:
        raise LoadTestError(f"step {step.title!r}: {given[0]} = {getattr(step, given[0])}; it must be positive")
    if step.duration_s <= 0 or step.warm_up_s < 0 or step.grace_s < 0 or step.burst_size < 1:
        raise LoadTestError(
            f"step {step.title!r}: duration {step.duration_s} s, warm-up {step.warm_up_s} s, grace {step.grace_s} s, "
            f"burst size {step.burst_size}; the first and last must be positive, the others not negative"
        )
    return step


def load_scenario(path: Path, defaults: Step) -> list[Step]:
    """The steps of a scenario file.

    A key of `[defaults]` holds for all steps, a key of a `[[step]]` for that step; `defaults` gives the rest, its
    load apart.

    Raises:
        LoadTestError: the file cannot be read, is no TOML, or has an unknown key or a value of a wrong type.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LoadTestError(f"scenario {path}: {error}") from error
    _known(path, document, ("defaults", "step"))
    shared, steps = document.get("defaults", {}), document.get("step", [])
    if not isinstance(shared, dict) or not isinstance(steps, list) or not steps:
        raise LoadTestError(f"scenario {path}: expected a table [defaults], or none, and at least one [[step]]")
    base = dataclasses.replace(defaults, label="", concurrency=None, rate=None, capacity_fraction=None)
    base = dataclasses.replace(base, **_fields(path, shared))
    return [check_step(dataclasses.replace(base, **_fields(path, entry))) for entry in steps]


def _fields(path: Path, table: object) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise LoadTestError(f"scenario {path}: got {table!r} where a table of keys was expected")
    _known(path, table, tuple(_READERS))
    fields = {}
    for key, value in table.items():
        try:
            fields[key] = _READERS[key](value)
        except (TypeError, ValueError, AttributeError) as error:
            raise LoadTestError(f"scenario {path}: {key} = {value!r}: {error}") from error
    return fields


def _known(path: Path, table: Mapping[str, object], keys: tuple[str, ...]) -> None:
    for key in table:
        if key not in keys:
            near = difflib.get_close_matches(key, keys, n=1, cutoff=0.0)
            raise LoadTestError(f"scenario {path}: unknown key {key!r}; did you mean {near[0]!r}? Known: {list(keys)}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("expected text")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("expected a number")
    return float(value)


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("expected an integer")
    return value


def _sizes(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise TypeError("expected a list of positive integers, such as [1, 4]")
    sizes = tuple(_integer(item) for item in value)
    if min(sizes) < 1:
        raise ValueError("expected positive integers")
    return sizes


def _dims(value: object) -> dict[str, tuple[int, ...]]:
    if not isinstance(value, dict):
        raise TypeError("expected a table of sizes by dimension, such as { width = [160, 320] }")
    return {name: _sizes(sizes) for name, sizes in value.items()}


_READERS: Mapping[str, Callable[[object], object]] = {
    "label": _text,
    "concurrency": _integer,
    "rate": _number,
    "capacity_fraction": _number,
    "arrivals": Arrivals,
    "burst_size": _integer,
    "duration_s": _number,
    "warm_up_s": _number,
    "grace_s": _number,
    "rows": _sizes,
    "dims": _dims,
    "wire": Wire,
    "seed": _integer,
}
