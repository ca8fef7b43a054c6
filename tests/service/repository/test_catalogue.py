"""What a look-up answers, by what the catalogue holds."""

import pytest

from service.errors import ModelNotFound, NotReady
from service.repository.catalogue import Catalogue
from service.repository.plain import PlainModel
from service.repository.served import IndexEntry, ModelState
from tests.doubles.recorder import KeepingRecorder
from tests.doubles.requests import make_spec


def model(name="m"):
    return PlainModel(make_spec(name=name), batcher=None, recorder=KeepingRecorder(), task=None)


@pytest.fixture
def changes():
    return []


@pytest.fixture
def catalogue(changes):
    return Catalogue(lambda: changes.append(1))


def test_what_serves_is_found_by_name_and_by_version(catalogue):
    served = model()
    catalogue.put(served)
    assert catalogue.get("m") is served
    assert catalogue.get("m", served.spec.version) is served


@pytest.mark.parametrize(
    ("is_complete", "entry", "version", "error", "words"),
    [
        (False, None, None, NotReady, "still starting"),
        (True, None, None, ModelNotFound, "unknown model: 'n' is not found"),
        (True, None, "7", ModelNotFound, "unknown model: 'n' version 7 is not found"),
        (True, ("1", "its file is torn"), None, NotReady, "not ready: its file is torn"),
        (True, ("1", ""), None, NotReady, "not ready: loading"),
        (True, ("1", "torn"), "2", ModelNotFound, "version 2"),
    ],
)
def test_what_does_not_serve_is_refused_with_the_reason(catalogue, is_complete, entry, version, error, words):
    if is_complete:
        catalogue.complete()
    if entry is not None:
        catalogue.explain(IndexEntry("n", entry[0], ModelState.LOADING, entry[1]))
    with pytest.raises(error, match=words):
        catalogue.get("n", version)


def test_another_version_than_the_served_one_is_named(catalogue):
    catalogue.put(model())
    catalogue.complete()
    with pytest.raises(ModelNotFound, match="version 1 is served"):
        catalogue.get("m", "2")


def test_a_model_that_serves_again_has_no_excuse_any_more(catalogue):
    catalogue.explain(IndexEntry("m", "1", ModelState.UNAVAILABLE, "torn"))
    catalogue.put(model())
    assert not catalogue.unavailable
    assert list(catalogue.models) == ["m"]


def test_every_change_is_told_and_nothing_else(catalogue, changes):
    assert catalogue.take("m") is None
    assert not changes
    served = model()
    catalogue.put(served)
    assert catalogue.take("m") is served
    catalogue.explain(IndexEntry("m", "1", ModelState.UNAVAILABLE, "unloaded"))
    catalogue.complete()
    assert len(changes) == 4
