"""Whom the publisher tells what, and when it lets go of what was replaced."""

import asyncio

import pytest

from service.repository.catalogue import Catalogue
from service.repository.composed import ComposedModel, InFlight
from service.repository.served import IndexEntry, ModelState, ServedModel
from service.transport.objects import PublishedCatalogue, unpack_object
from service.transport.publish import Publisher
from service.transport.wire import HEAD_BYTES
from tests.doubles.requests import linear_costs, make_media_spec, make_spec


class Lanes:
    lane_count = 2


class Follower:
    def __init__(self):
        self.known = 0
        self.catalogues = []

    def publish(self, frame):
        self.catalogues.append(unpack_object(memoryview(frame)[HEAD_BYTES:], PublishedCatalogue))

    @property
    def names(self):
        return [model.spec.name for model in self.catalogues[-1].models]


def model(name="m", *, spec=None):
    spec = spec or make_spec(name=name)
    costs = linear_costs(spec, fixed_us=1, row_us=1)
    return ServedModel(spec=spec, batcher=Lanes(), recorder=None, task=None, costs=costs, unserved={}, phase_ns={})


def composed(name, **members):
    return ComposedModel(make_spec(name=name), None, None, members, InFlight(1))


@pytest.fixture
def catalogue():
    return Catalogue(lambda: None)


@pytest.fixture
async def publisher(catalogue):
    publisher = Publisher(catalogue, max_silence_s=10)
    catalogue._on_change = publisher.changed
    return publisher


async def turn():
    await asyncio.sleep(0)


async def test_whoever_joins_is_told_everything(publisher, catalogue):
    catalogue.put(model())
    catalogue.explain(IndexEntry("n", "1", ModelState.LOADING, "loading"))
    follower = Follower()
    publisher.join(follower)
    (published,) = follower.catalogues
    assert (follower.names, published.is_complete) == (["m"], False)
    assert published.unavailable == (IndexEntry("n", "1", ModelState.LOADING, "loading"),)
    assert published.models[0].lanes == 2


async def test_changes_of_one_turn_are_one_catalogue(publisher, catalogue):
    follower = Follower()
    publisher.join(follower)
    catalogue.put(model())
    catalogue.put(model("n"))
    catalogue.complete()
    assert len(follower.catalogues) == 1
    await turn()
    assert len(follower.catalogues) == 2
    assert follower.names == ["m", "n"]
    assert follower.catalogues[1].is_complete
    await turn()
    assert len(follower.catalogues) == 2


async def test_a_model_keeps_its_number_and_a_reload_gets_another(publisher, catalogue):
    kept, replaced, new = model("kept"), model(), model()
    catalogue.put(kept)
    catalogue.put(replaced)
    follower = Follower()
    publisher.join(follower)
    catalogue.put(new)
    await turn()
    first, second = ({each.spec.name: each.number for each in told.models} for told in follower.catalogues)
    assert first["kept"] == second["kept"]
    assert publisher.find(first["m"]) is replaced
    assert publisher.find(second["m"]) is new


async def test_what_was_replaced_is_found_until_all_say_that_they_know(publisher, catalogue):
    old = model()
    catalogue.put(old)
    followers = [Follower(), Follower()]
    for follower in followers:
        publisher.join(follower)
    number = followers[0].catalogues[0].models[0].number
    catalogue.take("m")
    waiting = asyncio.create_task(publisher.informed())
    await turn()
    serial = followers[0].catalogues[-1].serial
    followers[0].known = serial
    publisher.heard()
    await turn()
    assert publisher.find(number) is old
    assert not waiting.done()
    followers[1].known = serial
    publisher.heard()
    await asyncio.wait_for(waiting, 10)
    assert publisher.find(number) is None


async def test_nobody_waits_for_a_front_end_that_is_gone(publisher, catalogue):
    follower = Follower()
    publisher.join(follower)
    catalogue.put(model())
    waiting = asyncio.create_task(publisher.informed())
    await turn()
    assert not waiting.done()
    publisher.leave(follower)
    publisher.leave(follower)
    await asyncio.wait_for(waiting, 10)


async def test_without_front_ends_all_know_at_once(publisher, catalogue):
    catalogue.put(model())
    await asyncio.wait_for(publisher.informed(), 10)


async def test_compositions_name_their_members_by_number(publisher, catalogue):
    member, other = model("rec"), model("m")
    catalogue.put(other)
    catalogue.put(member)
    catalogue.put(composed("pair", recognizer=member))
    follower = Follower()
    publisher.join(follower)
    (told,) = follower.catalogues
    numbers = {each.spec.name: each.number for each in told.models}
    (composition,) = told.compositions
    assert composition.members == {"recognizer": numbers["rec"]}
    assert publisher.is_member(numbers["rec"])
    assert not publisher.is_member(numbers["m"])


async def test_examples_of_media_stay_at_home(publisher, catalogue):
    catalogue.put(model(spec=make_media_spec(name="m")))
    follower = Follower()
    publisher.join(follower)
    media = follower.catalogues[0].models[0].spec.media
    with pytest.raises(AssertionError):
        media.example(1, ())
