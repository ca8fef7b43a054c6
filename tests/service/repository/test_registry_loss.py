"""A lost device holds up nobody who unloads a model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import pytest

from service.batching.batcher import Batcher
from service.errors import DeviceError, ModelLoadFailed, NotReady
from tests.doubles.held_repository import HeldRepository, begun, submit


def lost() -> DeviceError:
    return DeviceError("cudaErrorIllegalAddress", is_sticky=True)


async def test_unloading_ends_when_the_device_is_lost_meanwhile(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path, drain_timeout_s=3600) as repository:
        repository.add("m")
        await repository.registry.start(None)
        repository.hold(repository.backends[0])
        batcher = repository.batcher("m")
        pending = submit(repository)
        await begun(repository.backends[0])
        unloading = asyncio.create_task(repository.registry.unload("m"))
        await asyncio.sleep(0)
        repository.registry.lose_device(lost())
        with pytest.raises(NotReady, match="model 'm' cannot be unloaded: its GPU is lost"):
            await asyncio.wait_for(unloading, 10)
        with pytest.raises(DeviceError):
            await pending.future
        repository.backends[0].let(1000)
        await asyncio.to_thread(batcher.close)  # or its threads would live on


class KeptBatcher(Batcher):
    """One that the test can close: where the device is lost, the server leaves its threads to the process's end."""

    kept: ClassVar[list[Batcher]] = []

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.kept.append(self)


async def test_unloading_does_not_wait_for_a_load_that_may_never_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.repository.loader.Batcher", KeptBatcher)
    async with HeldRepository(tmp_path) as repository:
        repository.add("m")
        await repository.registry.start(None)
        repository.may_open.clear()
        loading = asyncio.create_task(repository.registry.load("m"))
        await repository.until_opening()
        await repository.until_opening()
        repository.registry.lose_device(lost())
        with pytest.raises(NotReady, match="its GPU is lost"):
            await asyncio.wait_for(repository.registry.unload("m"), 10)
        repository.may_open.set()
        with pytest.raises(ModelLoadFailed, match="its GPU is lost"):
            await loading
        for backend in repository.backends:
            await asyncio.to_thread(backend.close)
        while KeptBatcher.kept:
            await asyncio.to_thread(KeptBatcher.kept.pop().close)


async def test_a_model_that_is_away_is_unloaded_all_the_same(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.registry.lose_device(lost())
        await repository.registry.unload("unknown")
