"""Models that are replaced, unloaded or stopped while requests run: what was accepted is finished."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from service.batching.batcher import Batcher
from service.batching.pending import Pending
from service.errors import DeviceError, ModelLoadFailed, NotReady, ShuttingDown
from service.repository import loader as loader_module
from tests.doubles.held_backend import HeldBackend
from tests.doubles.held_repository import FAR_NS, HeldRepository, begun, states, submit, until
from tests.doubles.requests import make_request


@pytest.mark.parametrize(("new_version", "forgotten"), [("1", []), ("2", [("m", "1")])], ids=["same", "newer"])
async def test_a_reload_swaps_in_one_step_and_the_old_one_finishes(
    tmp_path: Path, new_version: str, forgotten: list[tuple[str, str]]
) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("m")
        await repository.registry.start(None)
        old, old_backend = repository.registry.get("m"), repository.backends[0]
        repository.hold(old_backend)
        running = submit(repository)
        await begun(old_backend)
        waiting = submit(repository)
        if new_version != "1":
            repository.add("m", new_version)

        repository.may_open.clear()
        loading = asyncio.create_task(repository.registry.load("m"))
        await until(lambda: repository.opened.acquire(blocking=False) and len(repository.backends) == 1)
        assert repository.registry.get("m") is old
        assert states(repository.registry) == [("m", "1", "READY", "")]
        repository.may_open.set()
        await loading

        assert repository.registry.get("m") is not old
        assert repository.registry.get("m").spec.version == new_version
        assert repository.recorder.forgotten == forgotten
        assert not old_backend.is_closed
        new = submit(repository)
        await new.future
        assert not running.future.done()
        with pytest.raises(ShuttingDown):
            old.batcher.submit(make_request(deadline_ns=FAR_NS))
        old_backend.let(2)
        await asyncio.gather(running.future, waiting.future)
        await until(lambda: old_backend.is_closed)
        assert old_backend.closed_lanes == 1
        gauges = repository.recorder.gauges["m", new_version]
        assert gauges.queued_requests() == 0
        assert gauges.lanes() == 1


async def test_unload_finishes_what_waits(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("m")
        await repository.registry.start(None)
        (backend,) = repository.backends
        repository.hold(backend)
        items = [submit(repository)]
        await begun(backend)
        items += [submit(repository) for _ in range(3)]
        unloading = asyncio.create_task(repository.registry.unload("m"))
        await until(lambda: repository.recorder.forgotten == [("m", "1")])
        backend.let(2)
        results = await asyncio.gather(*(item.future for item in items))
        assert [host_y[0, 0] for (host_y,) in results] == [2.0] * 4
        await unloading
        assert backend.closed_lanes == 1


async def test_unload_of_what_does_not_serve_is_no_error(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("m")
        await repository.registry.start([])
        await repository.registry.unload("unknown")
        await repository.registry.unload("m")
        assert states(repository.registry) == [("m", "1", "UNAVAILABLE", "not loaded")]
        assert repository.recorder.forgotten == []


async def test_unload_during_a_load_comes_after_it(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("m")
        await repository.registry.start([])
        repository.may_open.clear()
        loading = asyncio.create_task(repository.registry.load("m"))
        await repository.until_opening()
        unloading = asyncio.create_task(repository.registry.unload("m"))
        repository.may_open.set()
        await asyncio.gather(loading, unloading)
        assert states(repository.registry) == [("m", "1", "UNAVAILABLE", "unloaded")]
        assert repository.backends[0].is_closed


async def cancelled_unload(repository: HeldRepository) -> tuple[HeldBackend, Pending]:
    """Model `m` runs a request and is unloaded, which nobody waits for any more."""
    repository.add("m")
    await repository.registry.start(None)
    (backend,) = repository.backends
    repository.hold(backend)
    running = submit(repository)
    await begun(backend)
    unloading = asyncio.create_task(repository.registry.unload("m"))
    await until(lambda: repository.registry.served() == ())
    unloading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await unloading
    assert states(repository.registry) == [("m", "1", "UNLOADING", "unloading")]
    return backend, running


async def test_a_cancelled_unload_still_closes_the_lanes(tmp_path: Path) -> None:
    repository = HeldRepository(tmp_path)
    backend, running = await cancelled_unload(repository)
    backend.let()
    await running.future
    await until(lambda: states(repository.registry) == [("m", "1", "UNAVAILABLE", "unloaded")])
    await repository.registry.stop()
    assert backend.is_closed


async def test_a_model_that_is_loaded_while_its_cancelled_unload_goes_on_is_told_as_it_is(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        backend, running = await cancelled_unload(repository)
        await repository.registry.load("m")
        backend.let()
        await running.future
        await until(lambda: backend.is_closed)
        assert states(repository.registry) == [("m", "1", "READY", "")]


async def test_stop_finishes_what_runs_and_what_waits(tmp_path: Path) -> None:
    repository = HeldRepository(tmp_path)
    for name in ("a", "b"):
        repository.add(name)
    await repository.registry.start(None)
    for backend in repository.backends:
        repository.hold(backend)
    items = [submit(repository, "a"), submit(repository, "b")]
    for backend in repository.backends:
        await begun(backend)
    items.append(submit(repository, "a"))
    stopping = asyncio.create_task(repository.registry.stop())
    await until(lambda: not repository.registry.is_ready)
    await asyncio.sleep(0)
    with pytest.raises(ShuttingDown):
        submit(repository, "a")
    for backend in repository.backends:
        backend.let(2)
    await asyncio.gather(*(item.future for item in items))
    await stopping
    assert [backend.is_closed for backend in repository.backends] == [True, True]
    assert repository.registry.served() == ()


async def test_stop_ends_what_waits_after_its_timeout(tmp_path: Path) -> None:
    repository = HeldRepository(tmp_path, drain_timeout_s=0.01)
    repository.add("m")
    await repository.registry.start(None)
    (backend,) = repository.backends
    repository.hold(backend)
    running = submit(repository)
    await begun(backend)
    waiting = submit(repository)
    stopping = asyncio.create_task(repository.registry.stop())
    with pytest.raises(ShuttingDown, match="model 'm' stopped before this request could run"):
        await waiting.future
    backend.let()
    await asyncio.gather(stopping, running.future)
    assert backend.is_closed
    assert len([batch for batch in backend.batches if batch.requests[0].deadline_ns == FAR_NS]) == 1


async def test_stop_during_a_load_serves_it_no_more(tmp_path: Path) -> None:
    repository = HeldRepository(tmp_path)
    repository.add("m")
    await repository.registry.start([])
    repository.may_open.clear()
    loading = asyncio.create_task(repository.registry.load("m"))
    await repository.until_opening()
    await repository.registry.stop()
    repository.may_open.set()
    with pytest.raises(ShuttingDown, match="the server stopped while model 'm' was loading"):
        await loading
    assert repository.registry.served() == ()
    assert repository.backends[0].is_closed
    assert repository.backends[0].closed_lanes == 1


async def test_stop_waits_for_a_model_that_a_reload_retires(tmp_path: Path) -> None:
    repository = HeldRepository(tmp_path)
    repository.add("m")
    await repository.registry.start(None)
    (old,) = repository.backends
    repository.hold(old)
    running = submit(repository)
    await begun(old)
    await repository.registry.load("m")
    stopping = asyncio.create_task(repository.registry.stop())
    await until(lambda: repository.backends[1].is_closed)
    assert not stopping.done()
    old.let()
    await asyncio.gather(stopping, running.future)
    assert old.is_closed


def lost() -> DeviceError:
    return DeviceError("cudaErrorIllegalAddress: an illegal memory access was encountered, in X", is_sticky=True)


async def test_a_device_that_is_lost_ends_the_requests_of_every_model(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        registry = repository.registry
        repository.add("a")
        repository.add("b")
        await registry.start(None)
        for backend in repository.backends:
            repository.hold(backend)
        batchers = [repository.batcher("a"), repository.batcher("b")]
        broken, beside = submit(repository, "a"), submit(repository, "b")
        for backend in repository.backends:
            await begun(backend)
        repository.backends[0].fails_on = lambda request: lost()
        repository.backends[0].let()
        error = await asyncio.wait_for(registry.device_lost(), 10)
        assert error.message == lost().message
        for item in (broken, beside):
            with pytest.raises(DeviceError, match="cudaErrorIllegalAddress"):
                await item.future
        assert not registry.is_ready
        assert "its GPU is lost, and it ends now: cudaErrorIllegalAddress" in registry.unready_reason
        with pytest.raises(NotReady, match="the GPU is lost"):
            submit(repository, "b")
        await asyncio.wait_for(registry.stop(), 10)
        assert not any(backend.is_closed for backend in repository.backends)
        for backend, batcher in zip(repository.backends, batchers, strict=True):
            backend.let(1000)
            await asyncio.to_thread(batcher.close)


async def test_a_device_that_is_lost_while_a_model_is_warmed_ends_start_up(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        registry = repository.registry
        repository.add("a")
        repository.add("b")
        repository.opening_fails["a"] = lost
        failures = await registry.start(None)
        assert list(failures) == ["a"]
        assert isinstance(failures["a"], ModelLoadFailed)
        assert repository.backends == []
        assert not registry.is_ready
        assert (await registry.device_lost()).is_sticky


async def test_an_error_of_the_device_that_passes_fails_one_model_alone(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("a")
        repository.add("b")
        repository.opening_fails["a"] = lambda: DeviceError("cudaErrorMemoryAllocation: out of memory, in cudaMalloc")
        failures = await repository.registry.start(None)
        assert list(failures) == ["a"]
        assert repository.registry.is_ready


async def test_a_device_that_is_lost_ends_the_requests_of_a_model_that_was_replaced(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        registry = repository.registry
        repository.add("m")
        await registry.start(None)
        old_batcher, old_backend = repository.batcher("m"), repository.backends[0]
        repository.hold(old_backend)
        running = submit(repository)
        await begun(old_backend)
        waiting = submit(repository)
        await registry.load("m")
        new_batcher, new_backend = repository.batcher("m"), repository.backends[1]
        new_backend.fails_on = lambda request: lost()
        for item in (submit(repository), running):
            with pytest.raises(DeviceError):
                await asyncio.wait_for(item.future, 10)
        with pytest.raises(NotReady, match="the GPU is lost"):
            await waiting.future
        old_backend.let(1000)
        for batcher in (old_batcher, new_batcher):
            await asyncio.to_thread(batcher.close)


async def test_a_model_that_is_loaded_while_the_device_is_lost_never_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever it answered would wait for a device that may never do."""
    batchers: list[Batcher] = []

    def keep(*arguments: Any, **options: Any) -> Batcher:
        batchers.append(Batcher(*arguments, **options))
        return batchers[-1]

    monkeypatch.setattr(loader_module, "Batcher", keep)
    async with HeldRepository(tmp_path) as repository:
        registry = repository.registry
        repository.add("m")
        await registry.start(None)
        old = registry.get("m")
        await repository.until_opening()
        repository.may_open.clear()
        loading = asyncio.create_task(registry.load("m"))
        await repository.until_opening()
        registry.lose_device(lost())
        repository.may_open.set()
        with pytest.raises(ModelLoadFailed, match="failed to load 'm': its GPU is lost"):
            await loading
        assert registry.get("m") is old
        with pytest.raises(ModelLoadFailed, match="failed to load 'm': its GPU is lost"):
            await registry.load("m")
        assert len(repository.backends) == 2, "a load after the loss opens nothing"
        assert not any(backend.is_closed for backend in repository.backends)
        for backend in repository.backends:
            backend.let(1000)
        for batcher in batchers:  # whose threads other tests would find
            await asyncio.to_thread(batcher.close)


@pytest.mark.parametrize("end", ["unload", "reload"])
async def test_a_device_that_is_found_lost_when_a_model_is_freed(tmp_path: Path, end: str) -> None:
    async with HeldRepository(tmp_path) as repository:
        registry = repository.registry
        repository.add("m")
        await registry.start(None)
        repository.backends[0].close_fails = lost()
        await (registry.unload("m") if end == "unload" else registry.load("m"))
        assert (await asyncio.wait_for(registry.device_lost(), 10)).is_sticky
        assert not registry.is_ready
        for served in registry.served():
            await asyncio.to_thread(served.batcher.close)
