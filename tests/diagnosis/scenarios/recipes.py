"""Faults by their names: what is served, how, and under which load.

A recipe provokes one class on the CPU backend by configuration or load alone. Loads are those of `loadtest.bench`, run
in a process of its own; rates are low enough for two cores that are shared with others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from service.diagnosis.finding import BottleneckClass
from service.diagnosis.rules.overload import COMFORTABLE_LOAD
from tests.diagnosis.scenarios.loads import Bench, Load, Photos, SlowUplinks
from tests.doubles.scenario_models import (
    make_adder,
    make_echo,
    make_grinder,
    make_image_classifier,
    make_reader,
    make_worker,
)

Document = dict[str, Any]
"""The JSON of a diagnosis."""

MODEL = "m"
"""What a recipe's model is called where it is the only one."""

IMAGES_CARD = """
task = "classify"
[batching]
max_batch_size = 8
[preprocess]
resize = "stretch"
"""


MENDED_BY_CARD = {
    BottleneckClass.BATCH_FORMATION_DELAY,
    BottleneckClass.BATCH_TOO_SMALL,
    BottleneckClass.LANE_COUNT,
    BottleneckClass.PADDING_WASTE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One server under one load.

    Attributes:
        make: writes the model.
        card: of the model.
        load: what its clients do.
        settings: of the server.
        probes: names of the experiments that it must run on itself beforehand, for this class needs what they find.
        warm_s: how long it is loaded before them, so that they know what its traffic is like.
        expected: the class that must come first; None where no bottleneck may be found.
        cure: the clients once they do what the finding says, made from the diagnosis; None where the fix is the
            card's, or is none that could be tried here.
    """

    make: Callable[[Path], Path]
    card: str
    load: Load
    expected: BottleneckClass | None
    settings: Mapping[str, object] = field(default_factory=dict)
    probes: tuple[str, ...] = ()
    warm_s: float = 2.0
    cure: Callable[[Document], Load] | None = None

    @property
    def is_mended_by_card(self) -> bool:
        """Whether the class has a fix that lines of a card can make without another plan or precision."""
        return self.expected in MENDED_BY_CARD

    @property
    def expected_text(self) -> str:
        """The id of the class that must come first, `healthy` where none may."""
        return self.expected.value if self.expected else "healthy"


def as_asked(document: Document) -> Load:
    """As many clients as the finding asks for."""
    command = document["findings"][0]["fix"]["command"].split()
    return Bench(options=("--concurrency", command[command.index("--concurrency") + 1]))


def with_room(document: Document) -> Load:
    """Clients that ask for as much as the gain of overload is predicted for."""
    capacity = 1.0 / document["stations"]["device"]["demand_s"]
    return Bench(options=("--rate", f"{COMFORTABLE_LOAD * capacity:.1f}", "--max-connections", "64"))


def spread(document: Document) -> Load:
    """As many requests, from clients that know nothing of each other."""
    window = document["window"]
    return Bench(options=("--rate", f"{window['requests'] / window['duration_s']:.1f}"), seconds=8.0)


RECIPES: Mapping[str, Recipe] = {
    "healthy": Recipe(
        make=make_worker,
        card="[batching]\nmax_batch_size = 8\n",
        load=Bench(options=("--rate", "40")),
        expected=None,
    ),
    "overload": Recipe(
        make=make_grinder,
        card="[batching]\nmax_batch_size = 4\nmax_queued_requests = 32\n",
        load=Bench(options=("--rate", "300", "--max-connections", "64")),
        expected=BottleneckClass.OVERLOAD,
        cure=with_room,
    ),
    "batch-formation-delay": Recipe(
        make=make_worker,
        card="[batching]\nmax_batch_size = 8\nmax_queue_delay_ms = 20\n",
        load=Bench(options=("--rate", "40")),
        expected=BottleneckClass.BATCH_FORMATION_DELAY,
    ),
    "client-limited": Recipe(
        make=make_worker,
        card="[batching]\nmax_batch_size = 8\n",
        load=Bench(options=("--concurrency", "1")),
        expected=BottleneckClass.CLIENT_LIMITED,
        cure=as_asked,
    ),
    "python-bound": Recipe(
        make=partial(make_echo, width=20_000),
        card="[batching]\nmax_batch_size = 4\n",
        load=Bench(options=("--rate", "50", "--wire", "json")),
        probes=("codecs",),
        expected=BottleneckClass.PYTHON_BOUND,
        cure=lambda _: Bench(options=("--rate", "50", "--wire", "binary")),
    ),
    "cpu-preprocess": Recipe(
        make=make_image_classifier,
        card=IMAGES_CARD,
        load=Photos(side=1600, clients=3),
        settings={"cpu_threads": 2},
        expected=BottleneckClass.CPU_PREPROCESS,
        cure=lambda _: Photos(side=400, clients=3),
    ),
    "padding-waste": Recipe(
        make=make_reader,
        card="[batching]\nmax_batch_size = 4\n[buckets]\nsequence = [8, 512]\nbatch = [1, 2, 4]\n",
        load=Bench(options=("--concurrency", "4", "--dim", "sequence=16,24,32,48")),
        expected=BottleneckClass.PADDING_WASTE,
    ),
    "bursty-arrivals": Recipe(
        make=make_grinder,
        card="[batching]\nmax_batch_size = 4\n",
        load=Bench(options=("--rate", "35", "--arrivals", "burst", "--burst-size", "15"), seconds=8.0),
        expected=BottleneckClass.BURSTY_ARRIVALS,
        cure=spread,
    ),
    "network-payload": Recipe(
        make=partial(make_echo, width=50_000),
        card="[batching]\nmax_batch_size = 4\n",
        load=SlowUplinks(width=50_000, rate=15.0, upload_s=0.15),
        expected=BottleneckClass.NETWORK_PAYLOAD,
        cure=lambda _: SlowUplinks(width=50_000, rate=15.0, upload_s=0.0),
    ),
    "invalid-measurement": Recipe(
        make=make_worker,
        card="[batching]\nmax_batch_size = 8\n",
        load=Bench(options=("--rate", "2")),
        expected=BottleneckClass.INVALID_MEASUREMENT,
    ),
    "batch-too-small": Recipe(
        make=make_worker,
        card="[batching]\nmax_batch_size = 1\n",
        load=Bench(options=("--concurrency", "6")),
        probes=("other-buckets",),
        expected=BottleneckClass.BATCH_TOO_SMALL,
    ),
    "compute-bound": Recipe(
        make=partial(make_worker, side=1024, products=6),
        card="[batching]\nmax_batch_size = 128\n[buckets]\nbatch = [1, 128]\n",
        load=Bench(options=("--concurrency", "1", "--rows", "128")),
        settings={"cpu_threads": 2},
        probes=("layers", "peaks"),
        expected=BottleneckClass.COMPUTE_BOUND,
    ),
    "memory-bound": Recipe(
        make=make_adder,
        card="[batching]\nmax_batch_size = 1\n",
        load=Bench(options=("--concurrency", "1")),
        probes=("layers", "peaks"),
        expected=BottleneckClass.MEMORY_BOUND,
    ),
    "lane-count": Recipe(
        make=make_grinder,
        card="[batching]\nmax_batch_size = 1\n[lanes]\ncount = 1\nthreads_per_lane = 1\n",
        load=Bench(options=("--concurrency", "2")),
        settings={"cpu_threads": 2},
        probes=("lanes",),
        expected=BottleneckClass.LANE_COUNT,
    ),
}
