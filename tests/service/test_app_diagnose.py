"""`/diagnose` in the whole application: there by default, gone with its setting, guarded like the metrics."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.doubles import onnx_models
from tests.doubles.running_app import running
from tests.doubles.running_server import add_model

INPUT = {"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [1.0] * 16}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    add_model(tmp_path, "m", onnx_models.make_identity, "[batching]\nmax_batch_size = 4\n")
    return tmp_path


async def test_a_served_model_is_diagnosed(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.telemetry.history.INTERVAL_S", 0.01)
    async with running(repository) as app:
        await asyncio.sleep(0.05)
        for _ in range(3):
            answer = await app.request("POST", "/v2/models/m/infer", json={"inputs": [INPUT]})
            assert answer.status_code == 200
        document = (await app.request("GET", "/diagnose")).json()
        assert document["model"]["name"] == "m"
        assert document["window"]["requests"] == 3
        assert [bucket["bucket"] for bucket in document["buckets"]] == ["1"]
        assert (await app.request("GET", "/")).json()["links"]["Diagnosis"] == "/diagnose"


@pytest.mark.parametrize("setting", ["diagnosis_enabled", "metrics_enabled"])
async def test_without_it_or_without_figures_there_is_no_such_route(repository: Path, setting: str) -> None:
    async with running(repository, **{setting: False}) as app:
        assert (await app.request("GET", "/diagnose")).status_code == 404
        assert "Diagnosis" not in (await app.request("GET", "/")).json()["links"]


async def test_it_needs_the_inference_key_as_metrics_do(repository: Path) -> None:
    async with running(repository, api_key="k") as app:
        assert (await app.request("GET", "/diagnose")).status_code == 401
        key = {"Authorization": "Bearer k"}
        assert (await app.request("GET", "/diagnose", headers=key)).status_code in (200, 503)
