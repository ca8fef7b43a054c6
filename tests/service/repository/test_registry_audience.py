"""Somebody follows what serves: nothing that was replaced ends before they know."""

import asyncio

import pytest

from tests.doubles.held_repository import HeldRepository, submit, until


class HeldAudience:
    """Counts changes; knows only what a test lets it know."""

    def __init__(self) -> None:
        self.changes = 0
        self.asked = 0
        self.may_know = asyncio.Event()

    def changed(self) -> None:
        self.changes += 1

    async def informed(self) -> None:
        self.asked += 1
        await self.may_know.wait()


@pytest.fixture
async def repository(tmp_path):
    async with HeldRepository(tmp_path) as held:
        held.add("m")
        await held.registry.start(None)
        yield held


@pytest.fixture
async def audience(repository):
    audience = HeldAudience()
    repository.registry.tell(audience)
    yield audience
    audience.may_know.set()


async def test_what_is_replaced_takes_requests_until_all_know(repository, audience):
    old = repository.registry.get("m")
    loading = asyncio.create_task(repository.registry.load("m"))
    await until(lambda: audience.asked >= 2)
    assert audience.changes
    assert repository.registry.get("m") is not old
    assert not loading.done()
    (answer,) = await old.batcher.submit(submit(repository).request).future
    assert answer.tolist() == [[2.0] * 4]
    audience.may_know.set()
    await loading


async def test_an_unload_returns_once_all_know(repository, audience):
    unloading = asyncio.create_task(repository.registry.unload("m"))
    await until(lambda: audience.asked)
    assert "m" not in repository.registry.catalogue.models
    assert not unloading.done()
    audience.may_know.set()
    await unloading
