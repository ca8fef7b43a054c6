from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from starlette.types import Message, Receive, Scope, Send

from service.api.gate import OPEN_PATHS, Access, ApiKeyGate, ApiKeys, required_access
from service.app import create_app
from service.errors import Forbidden, SettingsInvalid, Unauthorized
from service.settings import Settings
from tests.doubles.control_plane import ControlPlane, Options, with_keys

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
READER, KEEPER = b"Bearer reader", b"Bearer keeper"
BOTH = ApiKeys(b"reader", b"keeper")
NEITHER = ApiKeys(None, None)
READER_ONLY = ApiKeys(b"reader", None)
KEEPER_ONLY = ApiKeys(None, b"keeper")


def every_route() -> list[tuple[str, str]]:
    """Each method and path of the application: the documented ones and those that no document shows."""
    app = ControlPlane().fastapi
    documented = {
        (method.upper(), path) for path, operations in app.openapi()["paths"].items() for method in operations
    }
    plain = {
        (method, route.path)  # type: ignore[attr-defined]
        for route in app.routes
        for method in getattr(route, "methods", None) or ()
    }
    return sorted(documented | plain)


def concrete(path: str) -> str:
    values = {"model": "resnet", "version": "3", "region": "r", "kind": "overload", "run": "1"}
    return path.format(**values)


EXPECTED = {
    ("GET", "/v2/health/live"): Access.OPEN,
    ("GET", "/v2/health/ready"): Access.OPEN,
    ("GET", "/docs"): Access.OPEN,
    ("GET", "/openapi.json"): Access.OPEN,
    ("GET", "/"): Access.INFERENCE,
    ("GET", "/metrics"): Access.INFERENCE,
    ("GET", "/v2/models/resnet"): Access.INFERENCE,
    ("GET", "/v2/logging"): Access.INFERENCE,
    ("POST", "/v2/models/resnet/infer"): Access.INFERENCE,
    ("POST", "/v2/models/resnet/versions/3/infer"): Access.INFERENCE,
    ("POST", "/v2/models/resnet/predict"): Access.INFERENCE,
    ("POST", "/v2/repository/index"): Access.INFERENCE,
    ("POST", "/v2/repository/models/resnet/load"): Access.ADMIN,
    ("POST", "/v2/repository/models/resnet/unload"): Access.ADMIN,
    ("POST", "/v2/repository/models/x/load/infer"): Access.ADMIN,
    ("POST", "/v2/logging"): Access.ADMIN,
    ("POST", "/v2/trace/setting"): Access.ADMIN,
    ("POST", "/v2/models/resnet/trace/setting"): Access.ADMIN,
    ("POST", "/v2/models/infer/trace/setting"): Access.ADMIN,
    ("POST", "/v2/models/../repository/models/x/load/infer"): Access.ADMIN,
    ("POST", "/v2/models/a/b/infer"): Access.ADMIN,
    ("POST", "/v2/systemsharedmemory/region/r/register"): Access.ADMIN,
    ("POST", "/diagnose/probes"): Access.ADMIN,
    ("POST", "/something/new"): Access.ADMIN,
    ("DELETE", "/something/new"): Access.ADMIN,
    ("BREW", "/something/new"): Access.ADMIN,
    ("GET", "/v2/health/live/"): Access.INFERENCE,
    ("GET", "//v2/health/live"): Access.INFERENCE,
}


@pytest.mark.parametrize(("request_line", "access"), EXPECTED.items(), ids=str)
def test_required_access(request_line: tuple[str, str], access: Access) -> None:
    assert required_access(*request_line) is access


@given(method=st.sampled_from(METHODS) | st.text(max_size=8), path=st.text(max_size=40).map(lambda path: f"/{path}"))
def test_nothing_unlisted_is_open(method: str, path: str) -> None:
    if path not in OPEN_PATHS:
        assert required_access(method, path) is not Access.OPEN


@pytest.mark.parametrize(
    ("keys", "access", "authorization", "refused_with"),
    [
        (NEITHER, Access.INFERENCE, None, None),
        (NEITHER, Access.ADMIN, None, None),
        (READER_ONLY, Access.OPEN, None, None),
        (READER_ONLY, Access.INFERENCE, None, Unauthorized),
        (READER_ONLY, Access.INFERENCE, READER, None),
        (READER_ONLY, Access.ADMIN, None, Unauthorized),
        (READER_ONLY, Access.ADMIN, READER, None),
        (KEEPER_ONLY, Access.INFERENCE, None, None),
        (KEEPER_ONLY, Access.INFERENCE, b"Bearer wrong", None),
        (KEEPER_ONLY, Access.ADMIN, None, Unauthorized),
        (KEEPER_ONLY, Access.ADMIN, KEEPER, None),
        (BOTH, Access.OPEN, b"Bearer wrong", None),
        (BOTH, Access.INFERENCE, READER, None),
        (BOTH, Access.INFERENCE, KEEPER, None),
        (BOTH, Access.ADMIN, KEEPER, None),
        (BOTH, Access.ADMIN, READER, Forbidden),
        (BOTH, Access.INFERENCE, b"bEaReR   reader ", None),
        (BOTH, Access.INFERENCE, b"reader", Unauthorized),
        (BOTH, Access.INFERENCE, b"Basic reader", Unauthorized),
        (BOTH, Access.INFERENCE, b"Bearer", Unauthorized),
        (BOTH, Access.INFERENCE, b"Bearer ", Unauthorized),
        (BOTH, Access.INFERENCE, b"Bearer readerx", Unauthorized),
        (BOTH, Access.INFERENCE, b"Bearer \xff\x00", Unauthorized),
    ],
)
def test_refusal(keys: ApiKeys, access: Access, authorization: bytes | None, refused_with: type | None) -> None:
    refusal = keys.refusal(access, authorization)
    assert (None if refusal is None else type(refusal)) is refused_with


@given(token=st.binary(max_size=12), keys=st.sampled_from([READER_ONLY, BOTH]))
def test_no_other_token_opens(token: bytes, keys: ApiKeys) -> None:
    if token.strip() not in (b"reader", b"keeper"):
        assert keys.refusal(Access.INFERENCE, b"Bearer " + token) is not None
        assert keys.refusal(Access.ADMIN, b"Bearer " + token) is not None


@pytest.mark.parametrize("key", ["", " ", "key ", "\nkey", "key\n"])
def test_key_that_no_header_carries_is_refused_at_start(key: str) -> None:
    with pytest.raises(SettingsInvalid, match="INFERLANE_ADMIN_API_KEY is empty or begins or ends with white space"):
        ApiKeys.from_secrets(None, SecretStr(key))


def test_keys_are_encoded_as_utf8() -> None:
    keys = ApiKeys.from_secrets(SecretStr("schlüssel"), None)
    assert keys == ApiKeys("schlüssel".encode(), None)
    assert keys.is_enabled
    assert not ApiKeys.from_secrets(None, None).is_enabled


async def test_every_route_without_a_key() -> None:
    plane = ControlPlane(with_keys())
    routes = every_route()
    assert len(routes) > 40
    for method, template in routes:
        path = concrete(template)
        response = await plane.request(method, path)
        if path in OPEN_PATHS:
            assert response.status_code == 200, (method, path)
            continue
        assert response.status_code == 401, (method, path)
        assert response.headers["www-authenticate"] == "Bearer"
        if method != "HEAD":
            assert "no API key" in response.json()["error"]
    assert set(plane.refusals) == {"unauthorized"}


async def test_every_route_of_the_server_itself(tmp_path: Path) -> None:
    settings = Settings(repository=tmp_path, api_key=SecretStr("reader"), admin_api_key=SecretStr("keeper"))
    app = create_app(settings, on_progress=lambda progress: None, on_started=lambda failures: None)
    routes = [(method.upper(), path) for path, operations in app.openapi()["paths"].items() for method in operations]
    assert ("POST", "/v2/models/{model}/infer") in routes
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as client:
        for method, template in routes:
            path = concrete(template)
            refused = path not in OPEN_PATHS
            assert ((await client.request(method, path)).status_code == 401) is refused, (method, path)
            as_reader = await client.request(method, path, headers={"Authorization": "Bearer reader"})
            assert (as_reader.status_code == 403) is (required_access(method, path) is Access.ADMIN), (method, path)


async def test_every_route_with_the_inference_key() -> None:
    plane = ControlPlane(with_keys())
    for method, template in every_route():
        path = concrete(template)
        response = await plane.request(method, path, key="reader")
        is_admin = required_access(method, path) is Access.ADMIN
        assert (response.status_code == 403) is is_admin, (method, path, response.status_code)
        assert response.status_code != 401
    assert set(plane.refusals) == {"forbidden"}


async def test_every_route_with_the_admin_key() -> None:
    plane = ControlPlane(with_keys())
    for method, template in every_route():
        response = await plane.request(method, concrete(template), key="keeper")
        assert response.status_code not in (401, 403), (method, template)
    assert plane.refusals == []


async def test_admin_routes_need_the_inference_key_where_it_is_the_only_one() -> None:
    plane = ControlPlane(Options(api_key="reader"))
    load = "/v2/repository/models/resnet/load"
    assert (await plane.request("POST", load)).status_code == 401
    assert (await plane.request("POST", load, key="reader")).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/v2/repository/models/resnet/load?x=/v2/health/live",
        "/v2/repository/models/resnet/load%3F/v2/health/live",
        "/v2/repository/models/resnet%2Fload",
        "/v2/%72epository/models/resnet/load",
        "/v2/health/live/../../repository/models/resnet/load",
        "/v2//repository/models/resnet/load",
        "/V2/repository/models/resnet/load",
    ],
)
async def test_disguised_paths_stay_guarded(path: str) -> None:
    plane = ControlPlane(with_keys())
    assert (await plane.request("POST", path)).status_code == 401
    assert (await plane.request("POST", path, key="reader")).status_code == 403


def scope(kind: str, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    return {"type": kind, "method": "GET", "path": "/metrics", "headers": headers}


async def pass_through_gate(connection: dict[str, Any]) -> tuple[list[str], list[Message]]:
    reached: list[str] = []
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        reached.append(scope["type"])

    async def receive() -> Message:
        raise AssertionError("the gate reads no body")

    async def send(message: Message) -> None:
        sent.append(message)

    await ApiKeyGate(app, BOTH, lambda reason: None)(connection, receive, send)
    return reached, sent


async def test_two_authorization_headers_are_none() -> None:
    reached, sent = await pass_through_gate(scope("http", [(b"authorization", READER), (b"authorization", KEEPER)]))
    assert reached == []
    assert sent[0]["status"] == 401


async def test_lifespan_passes() -> None:
    assert await pass_through_gate({"type": "lifespan"}) == (["lifespan"], [])


READER_KEY = READER.decode().split()[1]


@pytest.mark.parametrize(
    ("headers", "subprotocols", "passes"),
    [
        ([], [], False),
        ([(b"authorization", READER)], [], True),
        ([], ["bearer", READER_KEY], True),
        ([], ["bearer", READER_KEY + "x"], False),
        ([], ["bearer"], False),
        ([], [READER_KEY], False),
        ([], ["other", READER_KEY], False),
        ([], ["bearer", READER_KEY, "other"], False),
        ([(b"authorization", b"Bearer wrong")], ["bearer", READER_KEY], False),
    ],
)
async def test_a_websocket_needs_a_key(
    headers: list[tuple[bytes, bytes]], subprotocols: list[str], passes: bool
) -> None:
    """A browser has the subprotocols alone to say it in."""
    connection = {"type": "websocket", "path": "/live", "headers": headers, "subprotocols": subprotocols}
    reached, sent = await pass_through_gate(connection)
    assert (reached == ["websocket"]) is passes
    assert [message["type"] for message in sent] == (
        [] if passes else ["websocket.http.response.start", "websocket.http.response.body"]
    )
    assert passes or sent[0]["status"] == 401
