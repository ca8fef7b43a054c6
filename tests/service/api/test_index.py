from __future__ import annotations

from service.api.schemas import ServerIndex
from service.repository.served import ModelState
from tests.doubles.control_plane import ControlPlane


async def test_json_index() -> None:
    plane = ControlPlane()
    plane.registry.states["resnet"] = ModelState.LOADING
    response = await plane.request("GET", "/")
    body = response.json()
    assert ServerIndex.model_validate(body).model_dump(exclude_unset=True) == body
    assert [(model["name"], model["state"]) for model in body["models"]] == [
        ("resnet", "LOADING"),
        ("two words", "READY"),
    ]
    assert response.headers["vary"] == "Accept"
    assert body["links"] == {"API": "/docs", "Metrics": "/metrics"}
