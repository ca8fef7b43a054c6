from __future__ import annotations

import pytest

from tests.doubles.control_plane import ControlPlane


@pytest.mark.parametrize("kind", ["systemsharedmemory", "cudasharedmemory"])
@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("GET", "status", 200, b"[]"),
        ("GET", "region/r%20s/status", 200, b"[]"),
        ("POST", "unregister", 200, b""),
        ("POST", "region/r%20s/unregister", 200, b""),
    ],
)
async def test_there_are_no_regions(kind: str, method: str, path: str, status: int, body: bytes) -> None:
    response = await ControlPlane().request(method, f"/v2/{kind}/{path}")
    assert (response.status_code, response.content) == (status, body)


@pytest.mark.parametrize("kind", ["systemsharedmemory", "cudasharedmemory"])
async def test_registering_is_not_offered(kind: str) -> None:
    body = {"key": "/region", "offset": 0, "byte_size": 64}
    response = await ControlPlane().request("POST", f"/v2/{kind}/region/r/register", json=body)
    assert response.status_code == 501
    assert "binary tensor data" in response.json()["error"]
