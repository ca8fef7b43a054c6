from __future__ import annotations

import pytest
from pydantic import BaseModel

import service
from service.api.schemas import ModelConfiguration, ModelMetadata, ModelStatisticsList, ServerMetadata
from service.repository.served import ModelState
from tests.doubles.control_plane import ControlPlane

MODEL_QUESTIONS = ("", "/ready", "/config", "/stats")


async def test_server_metadata() -> None:
    body = (await ControlPlane().request("GET", "/v2")).json()
    assert (body["name"], body["version"]) == ("inferlane", service.__version__)
    assert {"binary_tensor_data", "statistics", "schedule_policy"} <= set(body["extensions"])
    assert not {"trace", "sequence", "system_shared_memory", "cuda_shared_memory"} & set(body["extensions"])


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready", "/v2/models/resnet/ready"])
async def test_health_is_an_empty_200(path: str) -> None:
    response = await ControlPlane().request("GET", path)
    assert (response.status_code, response.headers["content-length"], response.content) == (200, "0", b"")


async def test_server_that_is_not_ready_is_still_live() -> None:
    plane = ControlPlane()
    plane.registry.unready_reason = "its models are still loading"
    assert (await plane.request("GET", "/v2/health/live")).status_code == 200
    response = await plane.request("GET", "/v2/health/ready")
    assert response.status_code == 503
    assert "still loading" in response.json()["error"]


async def test_model_metadata() -> None:
    body = (await ControlPlane().request("GET", "/v2/models/resnet/versions/3")).json()
    assert body == {
        "name": "resnet",
        "versions": ["3"],
        "platform": "onnxruntime_onnx",
        "inputs": [{"name": "images", "datatype": "FP32", "shape": [-1, 3, -1, -1]}],
        "outputs": [{"name": "scores", "datatype": "FP32", "shape": [-1, 1000]}],
    }


@pytest.mark.parametrize("suffix", MODEL_QUESTIONS)
async def test_percent_encoded_name(suffix: str) -> None:
    plane = ControlPlane()
    response = await plane.request("GET", f"/v2/models/two%20words{suffix}")
    assert response.status_code == 200
    if suffix:
        assert (await plane.request("GET", f"/v2/models/two%20words/versions/1{suffix}")).content == response.content


async def test_config_tells_the_lanes_that_run() -> None:
    body = (await ControlPlane().request("GET", "/v2/models/resnet/config")).json()
    assert body["instance_group"][0]["count"] == 2
    assert {tensor["name"] for tensor in body["input"]} == {"images"}


async def test_statistics_of_all_models_and_of_one() -> None:
    plane = ControlPlane()
    every = (await plane.request("GET", "/v2/models/stats")).json()["model_stats"]
    assert [(stats["name"], stats["version"]) for stats in every] == [("resnet", "3"), ("two words", "1")]
    one = (await plane.request("GET", "/v2/models/resnet/stats")).json()["model_stats"]
    assert one == every[:1]
    assert one[0]["inference_stats"]["queue"] == {"count": 0, "ns": 0}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2", ServerMetadata),
        ("/v2/models/resnet", ModelMetadata),
        ("/v2/models/resnet/config", ModelConfiguration),
        ("/v2/models/two%20words/config", ModelConfiguration),
        ("/v2/models/stats", ModelStatisticsList),
    ],
)
async def test_answers_agree_with_their_documentation(path: str, body: type[BaseModel]) -> None:
    answer = (await ControlPlane().request("GET", path)).json()
    assert body.model_validate(answer).model_dump(exclude_unset=True) == answer


@pytest.mark.parametrize("suffix", MODEL_QUESTIONS)
@pytest.mark.parametrize(
    ("model", "status"),
    [
        ("nope", 404),
        ("nope/versions/1", 404),
        ("resnet/versions/9", 404),
        ("resnet/versions/03", 404),
        ("resnet/versions/latest", 404),
        ("resnet/versions/-3", 404),
        ("resnet/versions/%D9%A3", 404),
        ("resnet/versions/" + "9" * 5000, 404),
        ("two%2Fwords", 404),
        ("two%20words", 503),
        ("two%20words/versions/1", 503),
    ],
)
async def test_model_that_is_not_there(model: str, status: int, suffix: str) -> None:
    plane = ControlPlane()
    plane.registry.states["two words"] = ModelState.LOADING
    response = await plane.request("GET", f"/v2/models/{model}{suffix}")
    assert response.status_code == status
    assert response.headers.get("retry-after") == ("2" if status == 503 else None)
    assert response.json()["error"]
