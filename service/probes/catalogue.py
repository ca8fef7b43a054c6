"""The experiments that there are, by the names by which they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from service.client_text import name_text
from service.errors import InvalidInput
from service.probes.bench import Bench, Rounds
from service.probes.ceilings import ceilings
from service.probes.codecs import codecs
from service.probes.copies import copies
from service.probes.exposed_copies import exposed_copies
from service.probes.idle import idle
from service.probes.lanes import lanes
from service.probes.launches import launches
from service.probes.layers import layers
from service.probes.other_costs import other_costs
from service.probes.peaks import peaks
from service.probes.preprocess import preprocess
from service.probes.profiles import profiles

EVERY = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeKind:
    """One experiment.

    Attributes:
        name: by which it is asked for.
        numbers: by which the diagnosis speaks of it.
        about: what it finds out.
        budget_s: seconds of work after which it makes its results of the rounds so far.
        start: begins it.
        is_mostly_idle: whether it disturbs nobody for most of its time.
        takes_all: whether it takes all that the machine can do, so that it cannot run beside traffic.
        fills_queue: whether it needs the lanes that serve, so that they must not be paused.
    """

    name: str
    numbers: str
    about: str
    budget_s: float
    start: Callable[[Bench], Rounds]
    is_mostly_idle: bool = False
    takes_all: bool = False
    fills_queue: bool = False


CATALOGUE = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            ProbeKind(
                name="launches",
                numbers="P1",
                about="batches with their CUDA Graph and without it",
                budget_s=3.0,
                start=launches,
            ),
            ProbeKind(
                name="copies",
                numbers="P2",
                about="how fast pinned memory is copied",
                budget_s=1.0,
                start=copies,
            ),
            ProbeKind(
                name="exposed-copies",
                numbers="P3",
                about="what copies add although they overlap",
                budget_s=4.0,
                start=exposed_copies,
            ),
            ProbeKind(
                name="lanes",
                numbers="P4",
                about="full batches on one lane and on several",
                budget_s=6.0,
                start=lanes,
            ),
            ProbeKind(
                name="other-buckets",
                numbers="P5",
                about="batches of sizes that the card does not serve",
                budget_s=3.0,
                start=other_costs,
            ),
            ProbeKind(
                name="layers",
                numbers="P6",
                about="time, FLOPs and bytes of every layer",
                budget_s=10.0,
                start=layers,
            ),
            ProbeKind(
                name="profiles",
                numbers="P7",
                about="shapes on every profile that allows them",
                budget_s=3.0,
                start=profiles,
            ),
            ProbeKind(
                name="peaks",
                numbers="P9",
                about="what the machine does at best",
                budget_s=3.0,
                start=peaks,
                takes_all=True,
            ),
            ProbeKind(
                name="ceilings",
                numbers="P10",
                about="rows per second at most, behind HTTP and through it",
                budget_s=20.0,
                start=ceilings,
                takes_all=True,
                fills_queue=True,
            ),
            ProbeKind(
                name="codecs",
                numbers="P11",
                about="parsing and rendering as JSON and as binary tensors",
                budget_s=1.0,
                start=codecs,
            ),
            ProbeKind(
                name="preprocess",
                numbers="P11",
                about="the task's kernels on the device",
                budget_s=2.0,
                start=preprocess,
            ),
            ProbeKind(
                name="idle",
                numbers="P12",
                about="batches after pauses of different length",
                budget_s=15.0,
                start=idle,
                is_mostly_idle=True,
            ),
        )
    }
)


def kinds_named(names: Sequence[str]) -> tuple[ProbeKind, ...]:
    """The experiments by these names, each once, in the order of the catalogue; all of them for `EVERY` alone.

    Raises:
        InvalidInput: there is no such experiment, or none is named.
    """
    unknown = [name for name in names if name not in CATALOGUE and name != EVERY]
    if unknown or not names:
        got = ", ".join(map(name_text, unknown)) or "none"
        raise InvalidInput(
            f"'probes' names {got}; there are {', '.join(CATALOGUE)}; name some of them in a list, or write \"{EVERY}\""
        )
    return tuple(kind for name, kind in CATALOGUE.items() if name in names or EVERY in names)
