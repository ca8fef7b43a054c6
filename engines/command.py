"""`inferlane build`: models one after another, each in a child process; what fails keeps no other from being built."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TypeAlias

from rich.console import Console
from rich.text import Text

from engines.bars import STYLES, BuildBars
from engines.events import OnEvent
from engines.job import RunBuild, run_build
from engines.narrator import Narrator
from engines.outcomes import Outcome, State
from engines.plan_builder import require_packages
from engines.request import BuildOptions
from engines.serialise import CANCELLED, BuildCancelled
from engines.targets import Target, all_targets, decide, find_targets, request_for
from engines.worker import open_machinery
from service.cards import CARD_FILE
from service.errors import ModelLoadFailed, ServiceError
from service.repository.card import load_card
from service.repository.layout import ONNX_FILE
from service.runtime.cuda.device import Cuda
from service.runtime.trt.flavour import Flavour

Show: TypeAlias = Callable[[str], AbstractContextManager[OnEvent]]
"""Shows the build of the model of that name, while it is entered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a command line asks for.

    Attributes:
        targets: the models.
        options: of every build.
        is_forced: plans are built that are there and fit.
        is_sweeping: the models were not named one by one, so those that need no plan are passed over.
    """

    targets: tuple[Target, ...]
    options: BuildOptions
    is_forced: bool = False
    is_sweeping: bool = False


class _PassedOver(Exception):
    """A model that no plan is to be built for."""


def build_models(
    order: Order,
    flavour: Flavour,
    cuda: Cuda,
    *,
    show: Show,
    is_cut_off: threading.Event,
    build: RunBuild = run_build,
) -> Iterator[Outcome]:
    """Builds what is missing or out of date, and yields what became of each model; blocking, for minutes each.

    Args:
        order: what to build.
        flavour: the installed TensorRT, whose plans count as up to date.
        cuda: the process's CUDA.
        show: shows a build.
        is_cut_off: ends the build in hand, and those after it do not begin.
        build: builds one plan.
    """
    for target in order.targets:
        try:
            yield _build_one(order, target, (flavour, cuda), show, build, is_cut_off)
        except (BuildCancelled, KeyboardInterrupt):
            yield Outcome(target.folder.name, State.CANCELLED, CANCELLED)
            return
        except _PassedOver as reason:
            state = State.PASSED_OVER if order.is_sweeping else State.FAILED
            yield Outcome(target.folder.name, state, str(reason))
        except ServiceError as error:
            yield Outcome(target.folder.name, State.FAILED, error.message)
        except OSError as error:
            yield Outcome(target.folder.name, State.FAILED, f"'{error.filename}' cannot be read: {error.strerror}")


def _build_one(
    order: Order,
    target: Target,
    machinery: tuple[Flavour, Cuda],
    show: Show,
    build: RunBuild,
    is_cut_off: threading.Event,
) -> Outcome:
    name, version = target.folder.name, target.folder.version(target.version)
    card = load_card(target.folder.path)
    if version.onnx is None:
        raise _PassedOver(f"'{version.path}' holds no {ONNX_FILE} to build a plan from")
    if card.backend == "onnxruntime":
        raise _PassedOver('its card says backend = "onnxruntime", so no plan would be used; set "auto" or "tensorrt"')
    options = order.options
    if options.device is not None:
        card = replace(card, lanes=replace(card.lanes, device=options.device))
    decision = decide(card, version, target.folder.path / CARD_FILE, *machinery)
    is_asked = order.is_forced or replace(options, device=None, timing_cache=None) != BuildOptions()
    if not (decision.is_needed or is_asked):
        return Outcome(name, State.IN_PLACE, decision.reason)
    with show(name) as on_event:
        return Outcome(name, State.BUILT, report=build(request_for(name, version, options), on_event, is_cut_off))


@contextmanager
def signals_cut_off(is_cut_off: threading.Event) -> Iterator[None]:
    """While entered, the first SIGINT or SIGTERM sets the event; one more ends the command at once.

    Raises:
        KeyboardInterrupt: at the second signal, in the main thread.
    """

    def cut_off(number: int, frame: FrameType | None) -> None:
        if is_cut_off.is_set():
            raise KeyboardInterrupt
        is_cut_off.set()

    before = {number: signal.signal(number, cut_off) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def shown_on(console: Console) -> Show:
    """Bars on a terminal, lines elsewhere."""

    def lines(model: str) -> Narrator:
        def say(severity: str, text: str) -> None:
            console.print(Text(f"{model}: {text}", STYLES.get(severity, "")), soft_wrap=True)

        return Narrator(say)

    return (lambda model: BuildBars(console, model)) if console.is_terminal else lines


def order(models: Sequence[str], repository: Path, options: BuildOptions, *, is_all: bool, is_forced: bool) -> Order:
    """What the words of a command line mean.

    Raises:
        ModelLoadFailed: a model is not there, or the words name nothing, or everything and something.
    """
    if is_all == bool(models):
        raise ModelLoadFailed("name the models to build, or give --all for every model of the repository")
    targets = all_targets(repository) if is_all else find_targets(models, repository)
    return Order(targets=targets, options=options, is_forced=is_forced, is_sweeping=is_all)


def run(order: Order, console: Console) -> Iterator[Outcome]:
    """Builds on this machine, with Ctrl-C to stop it; to be exhausted on the main thread.

    Args:
        order: what to build.
        console: shows the builds.

    Raises:
        ModelLoadFailed: nothing can be built here at all: TensorRT, its builder, a GPU or a package is missing.
    """
    require_packages()
    flavour, cuda = open_machinery()
    flavour.require_builder()
    is_cut_off = threading.Event()
    show = shown_on(console)
    with signals_cut_off(is_cut_off):
        yield from build_models(order, flavour, cuda, show=show, is_cut_off=is_cut_off)
