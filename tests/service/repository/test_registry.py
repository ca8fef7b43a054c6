"""Which models serve: with real folders and lane threads, and backends that wait for the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from service.errors import (
    CardError,
    ExecutionFailed,
    ModelLoadFailed,
    ModelNotFound,
    NotReady,
    ServiceError,
)
from service.repository.served import ModelState
from tests.doubles.held_repository import HeldRepository, begun, states, submit, until


async def test_before_start_every_model_is_not_ready(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("m")
        assert not repository.registry.is_ready
        for name in ("m", "unknown"):
            with pytest.raises(NotReady, match="the server is still starting; GET /v2/health/ready"):
                repository.registry.get(name)


async def test_start_loads_every_model_and_becomes_ready(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("b", "1", "3")
        repository.add("a")
        assert await repository.registry.start(None) == {}
        assert repository.registry.is_ready
        assert [served.spec.name for served in repository.registry.served()] == ["a", "b"]
        assert repository.registry.versions("b") == ("3",)
        assert states(repository.registry) == [("a", "1", "READY", ""), ("b", "3", "READY", "")]
        assert repository.registry.get("b").spec.version == "3"
        assert repository.registry.get("b", "3") is repository.registry.get("b")


async def test_start_loads_only_what_is_named(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("a")
        repository.add("b")
        assert await repository.registry.start(["b"]) == {}
        assert states(repository.registry) == [("a", "1", "UNAVAILABLE", "not loaded"), ("b", "1", "READY", "")]
        with pytest.raises(NotReady, match="model 'a' is not ready: not loaded"):
            repository.registry.get("a")


async def test_models_that_start_will_load_later_say_that_they_wait(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        for name in ("a", "b", "c"):
            repository.add(name)
        repository.may_open.clear()
        starting = asyncio.create_task(repository.registry.start(["a", "c"]))
        await repository.until_opening()
        waits = "waits for its turn to be loaded"
        assert states(repository.registry) == [
            ("a", "1", "LOADING", "loading"),
            ("b", "1", "UNAVAILABLE", "not loaded"),
            ("c", "1", "UNAVAILABLE", waits),
        ]
        with pytest.raises(NotReady, match=f"model 'c' is not ready: {waits}"):
            repository.registry.get("c")
        repository.may_open.set()
        assert await starting == {}


async def test_start_says_which_models_failed_and_serves_the_others(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        for name in ("bad", "good"):
            repository.add(name)
        repository.opening_fails["bad"] = lambda: CardError("no such key")
        failures = await repository.registry.start(["bad", "absent", "good"])
        assert {name: type(error) for name, error in failures.items()} == {
            "bad": ModelLoadFailed,
            "absent": ModelNotFound,
        }
        assert failures["bad"].message == "failed to load 'bad': no such key"
        assert "which holds ['bad', 'good']" in failures["absent"].message
        assert repository.registry.is_ready
        assert repository.registry.get("good").spec.name == "good"


async def test_a_repository_that_cannot_be_read_leaves_a_server_without_models(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path / "absent") as repository:
        with pytest.raises(ModelLoadFailed, match="cannot be read"):
            await repository.registry.start(None)
        assert repository.registry.is_ready
        assert repository.registry.index() == ()
        repository.add("m")
        await repository.registry.load("m")
        assert repository.registry.get("m").spec.version == "1"


@pytest.mark.parametrize(
    ("name", "version", "kind", "text"),
    [
        ("nope", None, ModelNotFound, "Request for unknown model: 'nope' is not found; POST /v2/repository/index"),
        ("nope", "1", ModelNotFound, "Request for unknown model: 'nope' version 1 is not found"),
        ("m", "1", ModelNotFound, "'m' version 1 is not found; version 2 is served"),
        ("m", "02", ModelNotFound, "'m' version 02 is not found; version 2 is served"),
        ("m", "3", ModelNotFound, "'m' version 3 is not found; version 2 is served"),
        ("broken", None, NotReady, "model 'broken' is not ready: it is rotten"),
        ("broken", "1", NotReady, "model 'broken' is not ready: it is rotten"),
        ("broken", "9", ModelNotFound, "'broken' version 9 is not found"),
    ],
)
async def test_what_cannot_be_had_says_why(
    tmp_path: Path, name: str, version: str | None, kind: type[ServiceError], text: str
) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("m", "1", "2")
        repository.add("broken")
        repository.opening_fails["broken"] = lambda: ModelLoadFailed("it is rotten")
        await repository.registry.start(None)
        with pytest.raises(kind) as caught:
            repository.registry.get(name, version)
        assert text in caught.value.message
        assert type(caught.value) is kind


async def test_states_of_a_life(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        registry = repository.registry
        await registry.start(None)
        assert states(registry) == []
        repository.add("m")

        repository.may_open.clear()
        loading = asyncio.create_task(registry.load("m"))
        await repository.until_opening()
        assert states(registry) == [("m", "1", "LOADING", "loading")]
        with pytest.raises(NotReady, match="model 'm' is not ready: loading"):
            registry.get("m")
        repository.may_open.set()
        await loading
        assert states(registry) == [("m", "1", "READY", "")]

        repository.hold(repository.backends[0])
        running = submit(repository)
        await begun(repository.backends[0])
        unloading = asyncio.create_task(registry.unload("m"))
        await until(lambda: states(registry) != [("m", "1", "READY", "")])
        assert states(registry) == [("m", "1", "UNLOADING", "unloading")]
        with pytest.raises(NotReady, match="model 'm' is not ready: unloading"):
            registry.get("m")
        assert not repository.backends[0].is_closed
        repository.backends[0].let()
        await running.future
        await unloading
        assert states(registry) == [("m", "1", "UNAVAILABLE", "unloaded")]
        assert repository.backends[0].is_closed

        await registry.load("m")
        assert states(registry) == [("m", "1", "READY", "")]
        assert repository.recorder.forgotten == [("m", "1")]


@pytest.mark.parametrize(
    "failure",
    [lambda: CardError("bad card"), lambda: ModelLoadFailed("bad file"), lambda: ExecutionFailed("bad bucket")],
    ids=["card", "load", "execution"],
)
async def test_a_failed_load_is_said_and_can_be_tried_again(
    tmp_path: Path, failure: Callable[[], ServiceError]
) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("m")
        repository.opening_fails["m"] = failure
        words = failure().message
        with pytest.raises(ModelLoadFailed, match=f"failed to load 'm': {words}"):
            await repository.registry.load("m")
        assert states(repository.registry) == [("m", "1", "UNAVAILABLE", words)]
        repository.opening_fails.clear()
        await repository.registry.load("m")
        assert states(repository.registry) == [("m", "1", "READY", "")]
        assert repository.recorder.forgotten == []


async def test_an_unforeseen_error_fails_its_model_alone_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("bad")
        repository.add("good")
        repository.opening_fails["bad"] = lambda: RuntimeError("/secret/place")
        failures = await repository.registry.start(None)
        assert list(failures) == ["bad"]
        assert failures["bad"].message == "failed to load 'bad': unexpected error; the server's log has the cause"
        assert "/secret/place" in caplog.text
        assert repository.registry.is_ready
        assert repository.registry.get("good") is not None
        assert repository.registry.index()[0].state is ModelState.UNAVAILABLE


async def test_a_failed_reload_keeps_the_old_model_and_says_why(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("m", "1")
        await repository.registry.start(None)
        old = repository.registry.get("m")
        repository.opening_fails["m"] = lambda: ModelLoadFailed("worse than before")

        with pytest.raises(ModelLoadFailed):
            await repository.registry.load("m")
        assert repository.registry.get("m") is old
        assert states(repository.registry) == [("m", "1", "READY", "loading it again failed: worse than before")]

        repository.add("m", "2")
        with pytest.raises(ModelLoadFailed):
            await repository.registry.load("m")
        assert repository.registry.get("m", "1") is old
        with pytest.raises(NotReady, match="worse than before"):
            repository.registry.get("m", "2")
        assert states(repository.registry) == [
            ("m", "1", "READY", ""),
            ("m", "2", "UNAVAILABLE", "worse than before"),
        ]
        (host_y,) = await submit(repository, fill=3.0).future
        assert host_y[0, 0] == 6.0
        assert repository.recorder.forgotten == []

        repository.opening_fails.clear()
        await repository.registry.load("m")
        assert states(repository.registry) == [("m", "2", "READY", "")]


async def test_a_model_that_left_the_disk_goes_on_serving(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("m")
        await repository.registry.start(None)
        (tmp_path / "m").rename(tmp_path / ".gone")
        with pytest.raises(ModelNotFound):
            await repository.registry.load("m")
        assert repository.registry.get("m").spec.name == "m"
        assert states(repository.registry) == [("m", "1", "READY", "")]


async def test_a_cancelled_load_is_said(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("m")
        await repository.registry.start([])
        repository.may_open.clear()
        loading = asyncio.create_task(repository.registry.load("m"))
        await repository.until_opening()
        loading.cancel()
        repository.may_open.set()
        with pytest.raises(asyncio.CancelledError):
            await loading
        assert states(repository.registry) == [("m", "1", "UNAVAILABLE", "its loading was cut off")]
        await repository.registry.load("m")
        assert states(repository.registry) == [("m", "1", "READY", "")]


async def test_two_loads_at_once_follow_each_other(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("m")
        await repository.registry.start([])
        repository.may_open.clear()
        loads = [asyncio.create_task(repository.registry.load("m")) for _ in range(2)]
        await repository.until_opening()
        assert not repository.opened.acquire(blocking=False)
        repository.may_open.set()
        await asyncio.gather(*loads)
        await until(lambda: [backend.is_closed for backend in repository.backends] == [True, False])
        assert states(repository.registry) == [("m", "1", "READY", "")]


async def test_models_load_beside_each_other(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path) as repository:
        repository.add("a")
        repository.add("b")
        await repository.registry.start([])
        repository.may_open.clear()
        loads = [asyncio.create_task(repository.registry.load(name)) for name in ("a", "b")]
        for _ in loads:
            await repository.until_opening()
        repository.may_open.set()
        await asyncio.gather(*loads)
