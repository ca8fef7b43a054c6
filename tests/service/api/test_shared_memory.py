from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from service.shared_regions.registered import RegionLimits, RegisteredRegions
from tests.doubles.control_plane import ControlPlane, Options

ROOT = "/v2/systemsharedmemory"
REGION = {"key": "/frames", "offset": 8, "byte_size": 56}


@pytest.fixture
def regions(tmp_path: Path) -> RegisteredRegions:
    (tmp_path / "frames").write_bytes(bytes(64))
    return RegisteredRegions(RegionLimits(max_regions=2, max_bytes=1000), tmp_path)


@pytest.fixture
def plane(regions: RegisteredRegions) -> ControlPlane:
    return ControlPlane(Options(regions=regions))


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


@pytest.mark.parametrize(
    ("kind", "told"),
    [("systemsharedmemory", "INFERLANE_SYSTEM_SHARED_MEMORY_ENABLED=true"), ("cudasharedmemory", "memory of CUDA")],
)
async def test_registering_is_not_offered(kind: str, told: str) -> None:
    response = await ControlPlane().request("POST", f"/v2/{kind}/region/r/register", json=REGION)
    assert response.status_code == 501
    assert "binary tensor data" in response.json()["error"]
    assert told in response.json()["error"]


async def test_regions_are_registered_listed_and_unregistered(plane: ControlPlane) -> None:
    for name in ("r%20s", "t"):
        response = await plane.request("POST", f"{ROOT}/region/{name}/register", json=REGION)
        assert (response.status_code, response.content) == (200, b"")
    listed = (await plane.request("GET", f"{ROOT}/status")).json()
    assert listed == [{"name": "r s", **REGION}, {"name": "t", **REGION}]
    assert (await plane.request("GET", f"{ROOT}/region/r%20s/status")).json() == listed[:1]
    for path in ("region/r%20s/unregister", "region/r%20s/unregister", "unregister"):
        assert (await plane.request("POST", f"{ROOT}/{path}")).status_code == 200
    assert (await plane.request("GET", f"{ROOT}/status")).json() == []
    missing = await plane.request("GET", f"{ROOT}/region/t/status")
    assert (missing.status_code, "'t' is not registered" in missing.json()["error"]) == (400, True)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "'key' must be the name"),
        ({"key": 1, "byte_size": 8}, "'key' must be the name of a POSIX shared memory object, got 1"),
        ({"key": "/frames"}, "'byte_size' must be a positive integer of bytes, got null"),
        ({"key": "/frames", "byte_size": 0}, "'byte_size' must be a positive integer of bytes, got 0"),
        ({"key": "/frames", "byte_size": 8, "offset": -1}, "'offset' must be a non-negative integer of bytes, got -1"),
        (
            {"key": "/frames", "byte_size": 8, "offset": None},
            "'offset' must be a non-negative integer of bytes, got null",
        ),
        ({"key": "/../frames", "byte_size": 8}, "no slash but the first"),
        ({"key": "/frames", "byte_size": 65}, "has 64 bytes"),
    ],
)
async def test_what_is_no_region_is_refused(plane: ControlPlane, body: dict[str, Any], told: str) -> None:
    response = await plane.request("POST", f"{ROOT}/region/r/register", json=body)
    assert response.status_code == 400
    assert told in response.json()["error"]
    assert (await plane.request("GET", f"{ROOT}/status")).json() == []


async def test_cuda_is_not_offered_beside_it(plane: ControlPlane) -> None:
    response = await plane.request("POST", "/v2/cudasharedmemory/region/r/register", json={})
    assert response.status_code == 501
