"""Faults by their names on a GPU: what is built, how it is served, and under which load.

All models are served side by side by one server, each loaded in its turn, so that a device is started once. They are
made here, and small enough to be built in a minute; sizes are chosen for an H200, whose figures stand in docs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from service.diagnosis.finding import BottleneckClass
from tests.diagnosis.scenarios.loads import Bench, Photos, Readers, SlowUplinks
from tests.diagnosis.scenarios.recipes import IMAGES_CARD, Recipe
from tests.doubles.scenario_models import (
    make_doubler,
    make_grinder,
    make_image_classifier,
    make_ladder,
    make_reader,
    make_selector,
    make_smoother,
    make_talker,
    make_worker,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How large the models are.

    Attributes:
        tokens: rows of each product of a mill, for one row of a request.
        side: of its square weights.
        products: how many of them there are.
        rungs: products of a ladder, one after another.
        square: side of what a smoother reads and writes.
        talk: numbers of the answer that nobody asks for.
        length: of the largest bucket of texts.
    """

    tokens: int = 4096
    side: int = 1024
    products: int = 12
    rungs: int = 250
    square: int = 8192
    talk: int = 8 << 20
    length: int = 2048


TINY = Sizes(tokens=8, side=32, products=2, rungs=4, square=16, talk=1024, length=64)
"""For a rehearsal on a device that is none: what is found then means nothing."""

NOT_REHEARSED = frozenset({"not-capturable"})
"""The emulated device has no engines whose answers have sizes of their own."""

EIGHT = "[lanes]\ncount = 2\n[buckets]\nbatch = [1, 2, 4, 8]\n[batching]\nmax_batch_size = 8\n"
TEXTS = "[lanes]\ncount = 2\n[batching]\nmax_batch_size = 8\n[buckets]\nbatch = [8]\n"
"""The number of lanes is given everywhere: to find it takes a second of each model's start."""
ONE = "[batching]\nmax_batch_size = 1\n"
UP_TO_TWO = "[[profile]]\nx = { min = [1, 8], opt = [1, 8], max = [2, 8] }\n[buckets]\nbatch = [1]\n"
FAR_OPTIMUM = "[[profile]]\nx = {{ min = [1, 1, 8], opt = [1, {0}, 8], max = [8, {0}, 8] }}\n"
ONE_LANE = "[lanes]\ncount = 1\n"


def gpu_recipes(sizes: Sizes) -> Mapping[str, Recipe]:
    """The recipes by their classes, and one of no fault."""
    return {**_of_load(sizes), **_of_the_host(), **_of_launching(sizes), **_of_layers(sizes), **_of_others(sizes)}


def _of_load(sizes: Sizes) -> dict[str, Recipe]:
    mill = partial(make_grinder, tokens=sizes.tokens, side=sizes.side, products=sizes.products)
    worker = partial(make_worker, side=sizes.side)
    return {
        "healthy": Recipe(make=mill, card=EIGHT, load=Bench(options=("--rate", "40")), expected=None),
        "overload": Recipe(
            make=mill,
            card=EIGHT,
            load=Bench(options=("--rate", "1000", "--rows", "8", "--max-connections", "64")),
            expected=BottleneckClass.OVERLOAD,
        ),
        "batch-formation-delay": Recipe(
            make=mill,
            card=f"{EIGHT}max_queue_delay_ms = 20\n",
            load=Bench(options=("--rate", "40")),
            expected=BottleneckClass.BATCH_FORMATION_DELAY,
        ),
        "bursty-arrivals": Recipe(
            make=mill,
            card=EIGHT,
            load=Bench(options=("--rate", "60", "--arrivals", "burst", "--burst-size", "30")),
            expected=BottleneckClass.BURSTY_ARRIVALS,
        ),
        "client-limited": Recipe(
            make=worker,
            card=EIGHT,
            load=Bench(options=("--concurrency", "1")),
            expected=BottleneckClass.CLIENT_LIMITED,
        ),
        "invalid-measurement": Recipe(
            make=worker,
            card=EIGHT,
            load=Bench(options=("--rate", "2")),
            expected=BottleneckClass.INVALID_MEASUREMENT,
        ),
    }


def _of_the_host() -> dict[str, Recipe]:
    return {
        "cpu-preprocess": Recipe(
            make=make_image_classifier,
            card=f"{IMAGES_CARD}{ONE_LANE}",
            load=Photos(side=1600, clients=3),
            expected=BottleneckClass.CPU_PREPROCESS,
        ),
        "python-bound": Recipe(
            make=partial(make_doubler, width=20_000),
            card=f"{ONE_LANE}[batching]\nmax_batch_size = 4\n",
            load=Bench(options=("--rate", "50", "--wire", "json")),
            probes=("codecs",),
            expected=BottleneckClass.PYTHON_BOUND,
        ),
        "network-payload": Recipe(
            make=partial(make_doubler, width=50_000),
            card=f"{ONE_LANE}[batching]\nmax_batch_size = 4\n",
            load=SlowUplinks(width=50_000, rate=15.0, upload_s=0.15),
            expected=BottleneckClass.NETWORK_PAYLOAD,
        ),
    }


def _of_launching(sizes: Sizes) -> dict[str, Recipe]:
    ladder = partial(make_ladder, rungs=sizes.rungs)
    return {
        "launch-bound": Recipe(
            make=ladder,
            card=f"{ONE}{ONE_LANE}",
            load=Bench(options=("--concurrency", "4")),
            probes=("launches", "layers", "peaks"),
            expected=BottleneckClass.LAUNCH_BOUND,
        ),
        "graph-miss": Recipe(
            make=ladder,
            card=f"{ONE}{ONE_LANE}graph_memory_bytes = 0\n",
            load=Bench(options=("--concurrency", "4")),
            probes=("launches",),
            expected=BottleneckClass.GRAPH_MISS,
        ),
        "not-capturable": Recipe(
            make=make_selector,
            card=ONE_LANE,
            load=Bench(options=("--concurrency", "4")),
            probes=("launches",),
            expected=BottleneckClass.NOT_CAPTURABLE,
        ),
        "batch-too-small": Recipe(
            make=ladder,
            card=f"{ONE}{ONE_LANE}{UP_TO_TWO}",
            load=Bench(options=("--concurrency", "8")),
            probes=("other-buckets",),
            expected=BottleneckClass.BATCH_TOO_SMALL,
        ),
        "lane-count": Recipe(
            make=ladder,
            card=f"{ONE}{ONE_LANE}",
            load=Bench(options=("--concurrency", "8")),
            probes=("lanes",),
            expected=BottleneckClass.LANE_COUNT,
        ),
        "gpu-idle-gaps": Recipe(
            make=partial(make_worker, side=64, products=1),
            card=f"{ONE}{ONE_LANE}",
            load=Bench(options=("--concurrency", "32")),
            expected=BottleneckClass.GPU_IDLE_GAPS,
        ),
    }


def _of_layers(sizes: Sizes) -> dict[str, Recipe]:
    full = Bench(options=("--concurrency", "3", "--rows", "8"))
    half = '[precision]\nmode = "fp16"\nmin_cosine = 0.9\n'
    return {
        "compute-bound": Recipe(
            make=partial(make_grinder, tokens=sizes.tokens, side=2 * sizes.side, products=sizes.products // 2),
            card=f"{EIGHT}{half}",
            load=full,
            probes=("layers", "peaks"),
            expected=BottleneckClass.COMPUTE_BOUND,
        ),
        "memory-bound": Recipe(
            make=partial(make_smoother, side=sizes.square, passes=8),
            card=f"{ONE}{ONE_LANE}",
            load=Bench(options=("--concurrency", "3")),
            probes=("layers", "peaks"),
            expected=BottleneckClass.MEMORY_BOUND,
        ),
        "inefficient-layers": Recipe(
            make=partial(make_grinder, tokens=sizes.tokens, side=sizes.side - 1, products=sizes.products),
            card=f"{EIGHT}{half}",
            load=full,
            probes=("layers", "peaks"),
            expected=BottleneckClass.INEFFICIENT_LAYERS,
        ),
        "copy-bandwidth": Recipe(
            make=partial(make_talker, width=sizes.talk),
            card=f"{ONE}{ONE_LANE}",
            load=Readers(clients=4, width=8, wanted="y"),
            probes=("copies", "exposed-copies"),
            expected=BottleneckClass.COPY_BANDWIDTH,
        ),
        "padding-waste": Recipe(
            make=partial(make_reader, side=sizes.side, products=sizes.products),
            card=f"{TEXTS}sequence = [{sizes.length // 16}, {sizes.length}]\n",
            load=Bench(options=("--concurrency", "4", "--dim", f"sequence={sizes.length // 12},{sizes.length // 10}")),
            expected=BottleneckClass.PADDING_WASTE,
        ),
    }


def _of_others(sizes: Sizes) -> dict[str, Recipe]:
    mill = partial(make_grinder, tokens=sizes.tokens, side=sizes.side, products=sizes.products)
    return {
        "clocks": Recipe(
            make=mill,
            card=EIGHT,
            load=Bench(options=("--rate", "8")),
            probes=("idle",),
            expected=BottleneckClass.CLOCKS,
        ),
        "wrong-profile": Recipe(
            make=partial(make_reader, side=sizes.side, products=sizes.products),
            card=f"{TEXTS}sequence = [16]\n"
            + FAR_OPTIMUM.format(sizes.length)
            + FAR_OPTIMUM.format(16).replace("[8, 16, 8]", "[8, 32, 8]"),
            load=Bench(options=("--concurrency", "8", "--rows", "8", "--dim", "sequence=16")),
            probes=("profiles",),
            expected=BottleneckClass.WRONG_PROFILE,
        ),
    }
