"""Models that are composed of others: when they serve, what replaces them, and whom they outlive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.errors import DeviceError, ModelLoadFailed, NotReady, Overloaded, ShuttingDown
from service.repository.composed import COMPOSED_PLATFORM, ComposedModel
from service.repository.served import ServedModel
from service.requests import InferenceRequest
from tests.doubles.held_repository import HeldRepository, begun, states, submit, until
from tests.doubles.pair_task import PairTask
from tests.doubles.requests import make_request

READY = "READY"


@pytest.fixture
async def repository(tmp_path: Path) -> AsyncIterator[HeldRepository]:
    """Models `det` and `rec`, and `a` of both, which comes first in the alphabet; nothing is loaded."""
    async with HeldRepository(tmp_path) as repository:
        repository.add("det")
        repository.add("rec")
        repository.add_composed("a", detector="det", recognizer="rec")
        repository.tasks["a"] = PairTask()
        yield repository


def composed(repository: HeldRepository) -> ComposedModel:
    model = repository.registry.get("a")
    assert isinstance(model, ComposedModel)
    return model


def opened(repository: HeldRepository) -> list[str]:
    return [backend.spec.name for backend in repository.backends]


async def test_at_start_up_members_come_first_and_are_loaded_once(repository: HeldRepository) -> None:
    assert await repository.registry.start(None) == {}
    assert opened(repository) == ["det", "rec"]
    assert [(name, state) for name, _, state, _ in states(repository.registry)] == [
        ("a", READY),
        ("det", READY),
        ("rec", READY),
    ]
    model = composed(repository)
    assert model.spec.platform == COMPOSED_PLATFORM
    assert (model.spec.inputs, model.spec.outputs, model.spec.max_batch_size, model.lack) == ((), (), 0, "")
    assert {key: member.spec.name for key, member in model.members.items()} == {"detector": "det", "recognizer": "rec"}


async def test_a_composed_model_brings_its_members_along(repository: HeldRepository) -> None:
    assert await repository.registry.start(["a"]) == {}
    assert opened(repository) == ["det", "rec"]
    assert isinstance(repository.registry.get("rec"), ServedModel)


async def test_it_moves_to_a_new_version_of_a_member_in_the_same_step(repository: HeldRepository) -> None:
    await repository.registry.start(None)
    before = composed(repository)
    repository.add("rec", "2")
    await repository.registry.load("rec")
    after = composed(repository)
    assert after is not before
    assert after.members["recognizer"] is repository.registry.get("rec")
    assert repository.composed == [
        {"detector": "1", "recognizer": "1"},
        {"detector": "1", "recognizer": "2"},
    ]


async def test_a_replaced_member_works_until_the_requests_that_need_it_have_ended(repository: HeldRepository) -> None:
    await repository.registry.start(None)
    model = composed(repository)
    old = model.members["recognizer"]
    with model.in_flight.taken("a"):
        await repository.registry.load("rec")
        await asyncio.sleep(0)
        pending = old.batcher.submit(submit_request())
        await pending.future
        with pytest.raises(ShuttingDown), model.in_flight.taken("a"):
            raise AssertionError("a retired model takes nothing")
    await until(lambda: _refuses(old))


def submit_request() -> InferenceRequest:
    return make_request(deadline_ns=1 << 62)


def _refuses(model: ServedModel) -> bool:
    try:
        model.batcher.submit(submit_request())
    except ShuttingDown:
        return True
    return False


async def test_without_a_member_it_is_not_ready_and_comes_back_with_it(repository: HeldRepository) -> None:
    await repository.registry.start(None)
    await repository.registry.unload("det")
    with pytest.raises(NotReady, match="'a' is not ready: model 'a': its detector 'det' is not ready"):
        repository.registry.get("a")
    assert ("a", "1") in repository.recorder.forgotten
    await repository.registry.load("det")
    assert composed(repository).members["detector"] is repository.registry.get("det")


async def test_once_unloaded_it_stays_away(repository: HeldRepository) -> None:
    await repository.registry.start(None)
    await repository.registry.unload("a")
    await repository.registry.load("det")
    with pytest.raises(NotReady, match="unloaded"):
        repository.registry.get("a")
    await repository.registry.load("a")
    assert composed(repository).spec.name == "a"
    assert opened(repository) == ["det", "rec", "det"], "members that serve are not loaded again"


async def test_it_ends_before_its_members_when_the_server_stops(repository: HeldRepository) -> None:
    await repository.registry.start(None)
    model = composed(repository)
    with model.in_flight.taken("a"):
        stopping = asyncio.create_task(repository.registry.stop())
        await asyncio.sleep(0)
        await model.members["recognizer"].batcher.submit(submit_request()).future
        assert not stopping.done()
    await stopping
    assert all(backend.is_closed for backend in repository.backends)


async def test_one_that_does_not_end_is_not_waited_for_beyond_the_drain_timeout(tmp_path: Path) -> None:
    async with HeldRepository(tmp_path, drain_timeout_s=0.01) as repository:
        repository.add("det")
        repository.add("rec")
        repository.add_composed("a", detector="det", recognizer="rec")
        repository.tasks["a"] = PairTask()
        await repository.registry.start(None)
        with composed(repository).in_flight.taken("a"):
            await asyncio.wait_for(repository.registry.stop(), 5)


async def test_a_lost_device_ends_its_members(repository: HeldRepository) -> None:
    await repository.registry.start(None)
    (detector, _) = repository.backends
    repository.hold(detector)
    pending = submit(repository, "det")
    await begun(detector)
    members = composed(repository).members.values()
    repository.registry.lose_device(DeviceError("gone", is_sticky=True))
    with pytest.raises(DeviceError):
        await pending.future
    with pytest.raises(ModelLoadFailed, match="its GPU is lost"):
        await repository.registry.load("a")
    detector.let(1000)
    for member in members:  # what the registry frees no more, lest it hang
        await asyncio.to_thread(member.batcher.close)


@pytest.mark.parametrize(
    ("card", "says"),
    [
        ("", "'b' cannot be loaded: .*holds neither model.onnx nor"),
        ('task = "ocr"\n[ocr]\ndetector = "det"\nrecognizer = "gone"\n', r"\[ocr\] recognizer = 'gone' is not in the"),
        ('task = "ocr"\n[ocr]\ndetector = "a"\nrecognizer = "rec"\n', r"\[ocr\] detector = 'a' is composed of others"),
        ('task = "ocr"\n[ocr]\ndetector = "b"\nrecognizer = "rec"\n', r"\[ocr\] detector = 'b' is composed of others"),
        ('task = "ocr"\n', r"needs an \[ocr\] table that names its models"),
    ],
)
async def test_cards_that_compose_nothing(repository: HeldRepository, card: str, says: str) -> None:
    (repository.root / "b").mkdir()
    (repository.root / "b" / "model.toml").write_text(card, encoding="utf-8")
    with pytest.raises(ModelLoadFailed, match=f"(?s)failed to load 'b': .*{says}"):
        await repository.registry.load("b")


async def test_a_member_that_fails_keeps_it_from_serving(repository: HeldRepository) -> None:
    repository.opening_fails["rec"] = lambda: ModelLoadFailed("torn")
    failures = await repository.registry.start(None)
    assert set(failures) == {"a", "rec"}
    assert "torn" in failures["a"].message
    del repository.opening_fails["rec"]
    await repository.registry.load("a")
    assert composed(repository).members.keys() == {"detector", "recognizer"}


async def test_one_that_cannot_be_loaded_again_goes_on(repository: HeldRepository) -> None:
    await repository.registry.start(None)
    before = composed(repository)
    (repository.root / "a" / "model.toml").write_text("task = 3", encoding="utf-8")
    with pytest.raises(ModelLoadFailed, match="failed to load 'a'"):
        await repository.registry.load("a")
    assert composed(repository) is before
    (entry,) = [entry for entry in states(repository.registry) if entry[0] == "a"]
    assert entry[:3] == ("a", "1", READY)
    assert "loading it again failed" in entry[3]


async def test_members_that_do_not_fit_any_more_take_it_out_of_service(repository: HeldRepository) -> None:
    await repository.registry.start(None)
    repository.opening_fails["a"] = lambda: ModelLoadFailed("other labels")
    await repository.registry.load("rec")
    with pytest.raises(NotReady, match="other labels"):
        repository.registry.get("a")
    assert isinstance(repository.registry.get("rec"), ServedModel)


async def test_a_model_of_its_own_may_take_its_name(repository: HeldRepository) -> None:
    await repository.registry.start(None)
    (repository.root / "a" / "model.toml").unlink()
    repository.add("a")
    repository.tasks.clear()
    await repository.registry.load("a")
    await repository.registry.load("det")
    assert isinstance(repository.registry.get("a"), ServedModel)


async def test_more_requests_than_its_card_allows_are_refused_at_once(repository: HeldRepository) -> None:
    with (repository.root / "a" / "model.toml").open("a", encoding="utf-8") as card:
        card.write("[batching]\nmax_queued_requests = 2\n")
    await repository.registry.start(None)
    in_flight = composed(repository).in_flight
    with in_flight.taken("a"), in_flight.taken("a"):
        with pytest.raises(Overloaded, match="model 'a' has 2 requests in progress, 2 may be") as caught:
            in_flight.taken("a").__enter__()
        assert caught.value.retry_after_s == 1.0
    with in_flight.taken("a"):
        assert in_flight.count == 1


async def test_its_requests_are_counted_while_they_run(repository: HeldRepository) -> None:
    await repository.registry.start(None)
    gauges = repository.recorder.gauges["a", "1"]
    with composed(repository).in_flight.taken("a"):
        assert gauges.in_flight_requests() == 1
    assert (gauges.in_flight_requests(), gauges.lanes(), gauges.queued_requests()) == (0, 0, 0)
