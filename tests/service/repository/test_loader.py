"""From a folder to a warm model, and nothing left behind where that fails or is cut off."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.backends import open_backend
from service.batching.batcher import Batcher
from service.buckets import Bucket, Form
from service.device_figures import LaneFigures
from service.errors import CardError, DeviceError, ExecutionFailed, ModelLoadFailed
from service.models import ModelSpec
from service.repository import loader as loader_module
from service.repository.layout import find
from service.repository.loader import ModelLoader
from service.repository.registry import Registry
from service.repository.served import ServedModel
from service.repository.start_up import LoadProgress, Phase
from tests.doubles import onnx_models
from tests.doubles.held_backend import HeldBackend
from tests.doubles.held_repository import KeepingServerRecorder, begun
from tests.doubles.requests import make_media_spec, make_request, make_spec
from tests.doubles.running_server import add_model

CYCLES = 100
SETTLING_CYCLES = 20
MAX_GROWTH_BYTES = 3 << 20
"""Half of what 80 leaked sessions of the smallest model would hold."""


class Bench:
    """A loader of one model `m`, whose backend and task the test gives."""

    def __init__(self, tmp_path: Path, backend: HeldBackend, make_task: Callable | None = None) -> None:
        folder = tmp_path / "m" / "1"
        folder.mkdir(parents=True)
        (folder / "model.onnx").touch()
        self.repository = tmp_path
        self.recorder = KeepingServerRecorder()
        self.progress: list[LoadProgress] = []
        self.lost: list[DeviceError] = []
        self.loader = ModelLoader(
            open_backend=lambda card, version, is_cut_off: backend,
            make_task=make_task or (lambda spec: None),
            recorder=self.recorder,
        )

    async def load(self) -> ServedModel:
        folder = find(self.repository, "m")
        return await self.loader.load(folder, folder.version(), self.progress.append, self.lost.append)


async def close(served: ServedModel) -> None:
    await served.batcher.drain(5)
    await asyncio.to_thread(served.batcher.close)


def lane_threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("lane-"))


async def test_a_loaded_model_is_warm_measured_and_takes_requests(tmp_path: Path) -> None:
    backend = HeldBackend(make_spec(max_batch_size=4), clock=time.monotonic_ns, lane_count=2, held=False)
    task = object()
    bench = Bench(tmp_path, backend, lambda spec: task)
    served = await bench.load()
    known = list(served.spec.buckets.known())
    assert backend.warmed == known * 2
    assert set(served.costs.measured_ns) == set(known)
    assert served.task is task
    assert served.recorder is bench.recorder.models["m", "1"]
    item = served.batcher.submit(make_request(deadline_ns=1 << 62))
    assert (await item.future)[0][0, 0] == 2.0
    await close(served)
    assert lane_threads() == []


async def test_progress_tells_the_beginning_each_bucket_of_each_lane_and_the_end(tmp_path: Path) -> None:
    backend = HeldBackend(make_spec(max_batch_size=2), clock=time.monotonic_ns, lane_count=2, held=False)
    bench = Bench(tmp_path, backend)
    await close(await bench.load())
    assert {(step.model, step.total) for step in bench.progress} == {("m", 4)}
    told = [(step.done, step.phase.value, step.bucket and step.bucket.label) for step in bench.progress]
    assert told == [
        (0, "warm_up", None),
        (1, "warm_up", "2"),
        (2, "warm_up", "1"),
        (2, "checks", None),
        (2, "lanes", None),
        (3, "lanes", "2"),
        (4, "lanes", "1"),
        (4, "lanes", None),
    ]
    assert [step.is_over for step in bench.progress] == [False] * 7 + [True]


async def test_a_model_of_exact_sizes_has_nothing_to_warm_but_begins_and_ends(tmp_path: Path) -> None:
    backend = HeldBackend(make_spec(exact=("width",)), clock=time.monotonic_ns, held=False)
    bench = Bench(tmp_path, backend)
    served = await bench.load()
    assert served.costs.measured_ns == {}
    assert {(step.done, step.total, step.bucket) for step in bench.progress} == {(0, 0, None)}
    assert [step.is_over for step in bench.progress] == [False, False, False, True]
    await close(served)


async def test_gauges_follow_the_batcher(tmp_path: Path) -> None:
    backend = HeldBackend(make_spec(), clock=time.monotonic_ns, held=False)
    backend.figures[0] = LaneFigures(h2d_bytes=5)
    backend.weights_bytes = 77
    bench = Bench(tmp_path, backend)
    served = await bench.load()
    backend.permits, backend.begun = threading.Semaphore(0), threading.Semaphore(0)
    gauges = bench.recorder.gauges["m", "1"]

    def values() -> tuple[int, ...]:
        return (
            gauges.queued_requests(),
            gauges.queued_bytes(),
            gauges.in_flight_requests(),
            gauges.busy_lanes(),
            gauges.lanes(),
        )

    assert values() == (0, 0, 0, 0, 1)
    assert (gauges.lane_figures(), gauges.weights_bytes()) == ((LaneFigures(h2d_bytes=5),), 77)
    items = [served.batcher.submit(make_request(deadline_ns=1 << 62))]
    await begun(backend)
    items += [served.batcher.submit(make_request(deadline_ns=1 << 62)) for _ in range(2)]
    assert values() == (2, 32, 3, 1, 1)
    backend.let(2)
    await asyncio.gather(*(item.future for item in items))
    assert values() == (0, 0, 0, 0, 1)
    await close(served)


async def test_the_recorder_is_told_what_start_up_found_and_how_long_it_took(tmp_path: Path) -> None:
    backend = HeldBackend(make_spec(max_batch_size=4), clock=time.monotonic_ns, held=False)
    backend.fails_on = lambda request: ExecutionFailed("no kernel") if request.rows == 4 else None
    bench = Bench(tmp_path, backend)
    served = await bench.load()
    gauges = bench.recorder.gauges["m", "1"]
    assert {bucket: why.reason.value for bucket, why in gauges.unserved.items()} == {Bucket(4): "cannot_run"}
    assert list(gauges.startup_ns) == ["open", "warm_up", "checks", "lanes"]
    assert list(gauges.startup_ns.values()) == list(served.phase_ns.values())
    await close(served)


async def test_the_task_is_made_for_what_is_served(tmp_path: Path) -> None:
    """Before a model is warmed, so that one that does not fit fails at once; and again where something is missing."""
    backend = HeldBackend(make_media_spec(max_batch_size=2), clock=time.monotonic_ns, held=False)
    backend.fails_on = lambda request: ExecutionFailed("no kernel") if request.form is Form.MEDIA else None
    specs: list[ModelSpec] = []
    bench = Bench(tmp_path, backend, lambda spec: specs.append(spec) or object())
    served = await bench.load()
    assert [spec.media is None for spec in specs] == [False, True]
    assert served.spec is specs[-1]
    assert [bucket.label for bucket in served.spec.buckets.known()] == ["2", "1"]
    assert served.lack.startswith("2 of 4 buckets are not served: 1:media: no kernel; 2:media: no kernel")
    await close(served)


async def test_where_nothing_is_missing_the_task_is_made_once(tmp_path: Path) -> None:
    backend = HeldBackend(make_media_spec(max_batch_size=2), clock=time.monotonic_ns, held=False)
    specs: list[ModelSpec] = []
    bench = Bench(tmp_path, backend, lambda spec: specs.append(spec) or object())
    await close(await bench.load())
    assert specs == [backend.spec]


def refuse_task(spec: object) -> None:
    raise ModelLoadFailed("the model does not fit its task")


async def test_a_model_that_does_not_fit_its_task_is_closed_before_it_is_warmed(tmp_path: Path) -> None:
    backend = HeldBackend(make_spec(), clock=time.monotonic_ns)
    bench = Bench(tmp_path, backend, refuse_task)
    with pytest.raises(ModelLoadFailed, match="does not fit its task"):
        await bench.load()
    assert backend.is_closed
    assert backend.warmed == []
    assert bench.progress == []
    assert bench.recorder.models == {}


async def test_a_failure_while_warming_closes_the_lanes_and_ends_the_progress(tmp_path: Path) -> None:
    backend = HeldBackend(make_spec(), clock=time.monotonic_ns, lane_count=2, held=False)
    backend.fails_on = lambda _: ModelLoadFailed("rows depend on their neighbours")
    bench = Bench(tmp_path, backend)
    with pytest.raises(ModelLoadFailed, match="rows depend"):
        await bench.load()
    assert backend.is_closed
    assert backend.closed_lanes == 1
    assert [(step.phase, step.bucket, step.is_over) for step in bench.progress] == [
        (Phase.WARM_UP, None, False),
        (Phase.WARM_UP, None, True),
    ]
    assert lane_threads() == []


async def test_a_lane_that_cannot_be_made_closes_the_others(tmp_path: Path) -> None:
    class OneLane(HeldBackend):
        def create_lane(self, lane_id: int):
            if lane_id:
                raise ModelLoadFailed("no memory for a second lane")
            return super().create_lane(lane_id)

    backend = OneLane(make_spec(), clock=time.monotonic_ns, lane_count=3, held=False)
    with pytest.raises(ModelLoadFailed, match="no memory for a second lane"):
        await Bench(tmp_path, backend).load()
    assert backend.closed_lanes == 1
    assert backend.is_closed
    assert lane_threads() == []


async def test_nothing_is_closed_on_a_device_that_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batchers: list[Batcher] = []

    def keep(*arguments: Any, **options: Any) -> Batcher:
        batchers.append(Batcher(*arguments, **options))
        return batchers[-1]

    monkeypatch.setattr(loader_module, "Batcher", keep)
    backend = HeldBackend(make_spec(), clock=time.monotonic_ns, held=False)
    backend.fails_on = lambda _: DeviceError("cudaErrorIllegalAddress", is_sticky=True)
    with pytest.raises(DeviceError):
        await Bench(tmp_path, backend).load()
    assert not backend.is_closed
    assert backend.closed_lanes == 0
    await asyncio.to_thread(batchers[0].close)


async def test_a_bad_card_opens_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, HeldBackend(make_spec(), clock=time.monotonic_ns))
    (tmp_path / "m" / "model.toml").write_text("max_batch = 3\n")
    with pytest.raises(CardError):
        await bench.load()
    assert lane_threads() == []


async def test_a_cancelled_load_stops_at_the_next_bucket_and_closes_everything(tmp_path: Path) -> None:
    backend = HeldBackend(make_spec(max_batch_size=8), clock=time.monotonic_ns)
    bench = Bench(tmp_path, backend)
    loading = asyncio.create_task(bench.load())
    await begun(backend)
    loading.cancel()
    await asyncio.sleep(0)
    assert not loading.done()
    backend.let(1000)
    with pytest.raises(asyncio.CancelledError):
        await loading
    assert len(backend.warmed) == 1
    assert backend.is_closed
    assert backend.closed_lanes == 1
    assert bench.recorder.models == {}
    assert lane_threads() == []


async def test_a_load_that_is_cancelled_at_its_last_moment_is_closed_too(tmp_path: Path) -> None:
    backend = HeldBackend(make_spec(max_batch_size=1), clock=time.monotonic_ns, held=False)
    bench = Bench(tmp_path, backend)
    is_over = threading.Event()

    def on_progress(step: LoadProgress) -> None:
        if step.is_over:
            is_over.set()

    folder = find(tmp_path, "m")
    loading = asyncio.create_task(bench.loader.load(folder, folder.version(), on_progress, bench.lost.append))
    for _ in range(2):
        await asyncio.sleep(0)
    assert is_over.wait(10)  # blocks the event loop on purpose: the thread ends before the task can go on
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    assert backend.is_closed
    assert lane_threads() == []


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def test_a_hundred_lives_of_a_real_model_leave_no_thread_and_no_memory(tmp_path: Path) -> None:
    add_model(tmp_path, "identity", onnx_models.make_identity, "[batching]\nmax_batch_size = 4\n")
    recorder = KeepingServerRecorder()
    loader = ModelLoader(
        open_backend=lambda card, version, is_cut_off: open_backend(card, version, cpu_threads=2),
        make_task=lambda spec: None,
        recorder=recorder,
    )
    registry = Registry(tmp_path, loader, recorder, drain_timeout_s=5, on_progress=lambda progress: None)
    # The default executor would add threads of its own whenever two calls overlap.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    await registry.start([])
    host_x = np.ones((1, 16), np.float32)
    counts: list[int] = []
    sizes: list[int] = []
    for _ in range(CYCLES):
        await registry.load("identity")
        served = registry.get("identity")
        await served.batcher.submit(replace(make_request(deadline_ns=1 << 62), inputs=(host_x,))).future
        await registry.unload("identity")
        counts.append(len(os.listdir("/proc/self/task")))
        sizes.append(resident_bytes())
    assert lane_threads() == []
    # A thread left by each life would make a hundred; one or two come and go with what other tests left behind.
    assert max(counts[SETTLING_CYCLES:]) < max(counts[:SETTLING_CYCLES]) + 3
    assert sizes[-1] - sizes[SETTLING_CYCLES] < MAX_GROWTH_BYTES
    await registry.stop()


async def test_whoever_asks_is_told_of_a_backend_before_it_is_warmed(tmp_path: Path) -> None:
    backend = HeldBackend(make_spec(), clock=time.monotonic_ns, held=False)
    bench = Bench(tmp_path, backend)
    told: list[tuple[object, int]] = []
    bench.loader.tell(lambda opened: told.append((opened, len(backend.warmed))))
    await close(await bench.load())
    assert told == [(backend, 0)]
    assert backend.warmed
