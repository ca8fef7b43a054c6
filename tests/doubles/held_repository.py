"""A registry on real folders and real lane threads, whose backends finish when the test lets them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from service.batching.batcher import Batcher
from service.batching.pending import Pending
from service.cards import BatchingCard, ModelCard
from service.models import ModelSpec
from service.pipeline.task import Task
from service.repository.layout import VersionFolder
from service.repository.loader import ModelLoader
from service.repository.registry import Registry
from service.repository.start_up import LoadProgress
from service.telemetry.recorder import ModelGauges, NullRecorder
from tests.doubles.held_backend import HeldBackend
from tests.doubles.recorder import KeepingRecorder
from tests.doubles.requests import make_request, make_spec

WAIT_S = 10
FAR_NS = 1 << 62


class KeepingServerRecorder(NullRecorder):
    """Keeps what it is told: per model version a `KeepingRecorder`, and every call by name."""

    def __init__(self) -> None:
        self.models: dict[tuple[str, str], KeepingRecorder] = {}
        self.gauges: dict[tuple[str, str], ModelGauges] = {}
        self.forgotten: list[tuple[str, str]] = []
        self.unattributed: list[str] = []
        self.open_streams = 0
        self.dropped_frames = 0

    def for_model(self, name: str, version: str, gauges: ModelGauges) -> KeepingRecorder:
        self.gauges[name, version] = gauges
        return self.models.setdefault((name, version), KeepingRecorder())

    def forget(self, name: str, version: str) -> None:
        self.forgotten.append((name, version))
        self.gauges.pop((name, version), None)

    def record_unattributed(self, reason: str) -> None:
        self.unattributed.append(reason)

    def record_streams(self, change: int) -> None:
        self.open_streams += change

    def record_dropped_frame(self) -> None:
        self.dropped_frames += 1

    @property
    def requests(self) -> int:
        """Requests that were recorded as answered, by any model."""
        return sum(len(model.requests) for model in self.models.values())

    @property
    def failures(self) -> list[str]:
        """Reasons of all recorded failures, of models and of none."""
        return [*(reason for model in self.models.values() for reason in model.failures), *self.unattributed]


class HeldRepository:
    """A repository in `root`; `x: FP32[batch, 4] -> y = 2 x` is whatever its models hold.

    Attributes that tests use: `backends` in the order of their opening; `opening_fails`, by model, what opening raises;
    `may_open`, which while cleared keeps every opening waiting on its worker thread; `make_spec`, what a model is;
    `on_open`, told of every backend before it is warmed; `tasks` by model, or `make_task`; `composed`, the versions of
    the members, each time that a model was composed.
    """

    def __init__(self, root: Path, *, drain_timeout_s: float = WAIT_S, batching: BatchingCard | None = None) -> None:
        self.root = root
        self.batching = batching
        self.recorder = KeepingServerRecorder()
        self.backends: list[HeldBackend] = []
        self.opening_fails: dict[str, Callable[[], BaseException]] = {}
        self.opened = threading.Semaphore(0)
        self.may_open = threading.Event()
        self.may_open.set()
        self.warms_held = False
        self.make_spec: Callable[..., ModelSpec] = make_spec
        self.on_open: Callable[[HeldBackend], None] = lambda backend: None
        self.tasks: dict[str, Task] = {}
        self.make_task: Callable[[ModelSpec], Task | None] = lambda spec: self.tasks.get(spec.name)
        self.composed: list[dict[str, str]] = []
        self.progress: list[LoadProgress] = []
        loader = ModelLoader(
            open_backend=self._open,
            make_task=self._make_task,
            compose_task=self._compose,
            recorder=self.recorder,
        )
        self.registry = Registry(
            root, loader, self.recorder, drain_timeout_s=drain_timeout_s, on_progress=self.progress.append
        )

    async def __aenter__(self) -> HeldRepository:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.may_open.set()
        for backend in self.backends:
            backend.let(1000)
        await self.registry.stop()

    def add(self, name: str, *versions: str) -> None:
        """Lays out a model; what its files hold is never read."""
        for version in versions or ("1",):
            folder = self.root / name / version
            folder.mkdir(parents=True)
            (folder / "model.onnx").touch()

    def add_composed(self, name: str, *, detector: str, recognizer: str) -> None:
        """Lays out a card that names two members; its task is that of `tasks`."""
        (self.root / name).mkdir()
        card = f'task = "ocr"\n[ocr]\ndetector = "{detector}"\nrecognizer = "{recognizer}"\n'
        (self.root / name / "model.toml").write_text(card, encoding="utf-8")

    async def until_opening(self) -> None:
        """Until one more opening has begun."""
        assert await asyncio.to_thread(self.opened.acquire, timeout=WAIT_S)

    def hold(self, backend: HeldBackend) -> None:
        """From now on its batches wait for `backend.let()`."""
        backend.permits = threading.Semaphore(0)
        backend.begun = threading.Semaphore(0)

    def batcher(self, name: str) -> Batcher:
        return self.registry.get(name).batcher

    def _make_task(self, spec: ModelSpec) -> Task | None:
        return self.make_task(spec)

    def _compose(self, spec: ModelSpec, members: Mapping[str, ModelSpec]) -> Task:
        self.composed.append({key: member.version for key, member in members.items()})
        if spec.name in self.opening_fails:
            raise self.opening_fails[spec.name]()
        return self.tasks[spec.name]

    def _open(self, card: ModelCard, version: VersionFolder, is_cut_off: threading.Event) -> HeldBackend:
        self.opened.release()
        assert self.may_open.wait(WAIT_S)
        if card.name in self.opening_fails:
            raise self.opening_fails[card.name]()
        spec = replace(self.make_spec(name=card.name, batching=self.batching), version=version.version)
        backend = HeldBackend(spec, clock=time.monotonic_ns, held=self.warms_held)
        self.on_open(backend)
        self.backends.append(backend)
        return backend


async def begun(backend: HeldBackend) -> None:
    """Until one more batch has begun on the backend's lanes."""
    assert await asyncio.to_thread(backend.begun.acquire, timeout=WAIT_S)


async def until(condition: Callable[[], bool]) -> None:
    """Until `condition` holds, for what a thread brings about and only the event loop can look at."""
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "it never came"
        await asyncio.sleep(0)


def states(registry: Registry) -> list[tuple[str, str, str, str]]:
    """The index: name, version, state and reason of every model."""
    return [(entry.name, entry.version, entry.state.value, entry.reason) for entry in registry.index()]


def submit(repository: HeldRepository, name: str = "m", fill: float = 1.0) -> Pending:
    """Queues a request that never expires."""
    return repository.batcher(name).submit(make_request(deadline_ns=FAR_NS, fill=fill))
