from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator

import pytest

from service.api.admin import check_control_parameters
from service.api.admin_settings import TRACE_SETTINGS
from service.api.responses import MAX_ADMIN_BODY_BYTES
from service.api.schemas import LogSettings, RepositoryIndexItem, TraceSettings
from service.errors import InvalidInput, ModelLoadFailed
from service.repository.served import ModelState
from tests.doubles.control_plane import ControlPlane, Options

LOAD, UNLOAD = "/v2/repository/models/resnet/load", "/v2/repository/models/resnet/unload"
POSTS = ("/v2/repository/index", LOAD, UNLOAD, "/v2/logging", "/v2/trace/setting", "/v2/models/resnet/trace/setting")


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    plane = ControlPlane()
    plane.logger.setLevel(logging.INFO)
    yield plane
    plane.logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"ready":false}'])
async def test_index_lists_every_model(plane: ControlPlane, body: bytes) -> None:
    plane.registry.states["resnet"] = ModelState.UNAVAILABLE
    index = (await plane.request("POST", "/v2/repository/index", content=body)).json()
    assert index == [
        {"name": "resnet", "version": "3", "state": "UNAVAILABLE", "reason": "unloaded"},
        {"name": "two words", "version": "1", "state": "READY"},
    ]
    assert [RepositoryIndexItem.model_validate(item).model_dump(exclude_unset=True) for item in index] == index


async def test_index_of_ready_models(plane: ControlPlane) -> None:
    plane.registry.states["resnet"] = ModelState.LOADING
    index = (await plane.request("POST", "/v2/repository/index", json={"ready": True})).json()
    assert [item["name"] for item in index] == ["two words"]


@pytest.mark.parametrize("unload_dependents", [True, False])
async def test_unload_and_load(plane: ControlPlane, unload_dependents: bool) -> None:
    body = {"parameters": {"unload_dependents": unload_dependents}}
    response = await plane.request("POST", UNLOAD, json=body)
    assert (response.status_code, response.content) == (200, b"")
    assert (await plane.request("GET", "/v2/models/resnet/ready")).status_code == 503
    response = await plane.request("POST", LOAD)
    assert (response.status_code, response.content) == (200, b"")
    assert (await plane.request("GET", "/v2/models/resnet/ready")).status_code == 200


async def test_unknown_models(plane: ControlPlane) -> None:
    assert (await plane.request("POST", "/v2/repository/models/nope/unload")).status_code == 200
    response = await plane.request("POST", "/v2/repository/models/nope/load")
    assert response.status_code == 404
    assert "'nope'" in response.json()["error"]


async def test_failed_load_tells_why(plane: ControlPlane) -> None:
    plane.registry.fail_load_with = ModelLoadFailed("model 'resnet' cannot be loaded: two plans")
    response = await plane.request("POST", LOAD)
    assert (response.status_code, response.json()["error"]) == (500, "model 'resnet' cannot be loaded: two plans")


@pytest.mark.parametrize("path", [LOAD, UNLOAD])
@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"parameters":{"config":"{}"}}', "'config' would override what is on disk"),
        (b'{"parameters":{"file:1/model.onnx":"AAAA"}}', "'file:1/model.onnx' would override what is on disk"),
        (b'{"parameters":{"force":true}}', "'force' is unknown, allowed are"),
        (b'{"parameters":[]}', "'parameters' must be a JSON object, got an array"),
        (b'{"parameters":null}', "'parameters' must be a JSON object, got null"),
    ],
)
async def test_refused_parameters(plane: ControlPlane, path: str, body: bytes, told: str) -> None:
    plane.registry.states["resnet"] = ModelState.UNAVAILABLE if path == LOAD else ModelState.READY
    before = dict(plane.registry.states)
    response = await plane.request("POST", path, content=body)
    assert response.status_code == 400
    assert told in response.json()["error"]
    assert plane.registry.states == before


@pytest.mark.parametrize("path", [LOAD, UNLOAD])
async def test_control_switched_off(path: str) -> None:
    plane = ControlPlane(Options(control_enabled=False))
    response = await plane.request("POST", path)
    assert response.status_code == 403
    assert "INFERLANE_REPOSITORY_CONTROL_ENABLED" in response.json()["error"]
    assert plane.registry.states["resnet"] is ModelState.READY
    assert (await plane.request("POST", "/v2/repository/index")).status_code == 200


@pytest.mark.parametrize("path", POSTS)
async def test_bodies_are_bounded_with_and_without_a_length(plane: ControlPlane, path: str) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(MAX_ADMIN_BODY_BYTES // 1024 + 1):
            yield b" " * 1024

    for content in (chunks(), b" " * (MAX_ADMIN_BODY_BYTES + 1)):
        response = await plane.request("POST", path, content=content)
        assert response.status_code == 413
        assert str(MAX_ADMIN_BODY_BYTES) in response.json()["error"]


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("body", [b"{", b"[]", b"x=1"])
async def test_malformed_bodies(plane: ControlPlane, path: str, body: bytes) -> None:
    assert (await plane.request("POST", path, content=body)).status_code == 400


async def test_index_needs_a_boolean(plane: ControlPlane) -> None:
    response = await plane.request("POST", "/v2/repository/index", json={"ready": "yes"})
    assert (response.status_code, response.json()["error"]) == (400, "'ready' must be true or false, got a string")


async def test_logging_acts_on_the_logger(plane: ControlPlane) -> None:
    before = (await plane.request("GET", "/v2/logging")).json()
    assert LogSettings.model_validate(before).model_dump() == before
    assert (before["log_info"], before["log_verbose_level"]) == (True, 0)
    after = (await plane.request("POST", "/v2/logging", json={"log_verbose_level": 3})).json()
    assert after == {**before, "log_verbose_level": 1}
    assert plane.logger.level == logging.DEBUG
    assert (await plane.request("GET", "/v2/logging")).json() == after


async def test_refused_logging_changes_nothing(plane: ControlPlane) -> None:
    response = await plane.request("POST", "/v2/logging", json={"log_verbose_level": 1, "log_file": "/tmp/x"})
    assert response.status_code == 400
    assert plane.logger.level == logging.INFO


@pytest.mark.parametrize("path", ["/v2/trace/setting", "/v2/models/two%20words/trace/setting"])
async def test_tracing_is_off_and_stays_off(plane: ControlPlane, path: str) -> None:
    settings = (await plane.request("GET", path)).json()
    assert settings == TRACE_SETTINGS == TraceSettings.model_validate(settings).model_dump()
    assert (await plane.request("POST", path, json={"trace_level": ["OFF"]})).json() == settings
    response = await plane.request("POST", path, json={"trace_level": ["TIMESTAMPS"]})
    assert response.status_code == 501
    assert "stays OFF" in response.json()["error"]


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_tracing_of_an_unknown_model(plane: ControlPlane, method: str) -> None:
    assert (await plane.request(method, "/v2/models/nope/trace/setting")).status_code == 404


@pytest.mark.parametrize("value", ["abc", 1, None, {}])
def test_unload_dependents_is_a_boolean(value: object) -> None:
    with pytest.raises(InvalidInput, match="must be true or false"):
        check_control_parameters({"unload_dependents": value})
