from __future__ import annotations

from service.api.index import render_page
from service.api.schemas import ServerIndex
from service.repository.served import ModelState
from tests.doubles.control_plane import ControlPlane


async def test_json_index() -> None:
    plane = ControlPlane()
    plane.registry.states["resnet"] = ModelState.LOADING
    body = (await plane.request("GET", "/")).json()
    assert ServerIndex.model_validate(body).model_dump(exclude_unset=True) == body
    assert [(model["name"], model["state"]) for model in body["models"]] == [
        ("resnet", "LOADING"),
        ("two words", "READY"),
    ]
    assert body["links"] == {"API": "/docs", "Metrics": "/metrics"}


async def test_page_for_browsers() -> None:
    response = await ControlPlane().request("GET", "/", headers={"Accept": "text/html,*/*;q=0.8"})
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["vary"] == "Accept"
    assert "<td>resnet</td><td>3</td><td>READY</td><td></td>" in response.text
    assert '<a href="/docs">API</a>' in response.text


def test_page_escapes_what_models_say() -> None:
    model = {"name": "<b>", "version": "1", "state": "UNAVAILABLE", "reason": "</td><script>x</script>{0}"}
    page = render_page(
        {"name": "inferlane", "version": "1", "is_ready": False, "models": [model], "links": {'"': '"x'}}
    )
    assert "<script>" not in page
    assert "<b>" not in page
    assert '"x' not in page.partition("<p><a")[2]
    assert "Not ready." in page
    assert "{0}" in page
