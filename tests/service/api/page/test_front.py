from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from service.api.page.assets import Assets, load_assets
from service.api.page.front import PageFront

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


async def inner(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers whatever reaches it with what it was asked."""
    request = Request(scope)
    asked = {"method": request.method, "path": request.url.path, "accept": request.headers.get("accept", "")}
    await JSONResponse(asked)(scope, receive, send)


@pytest.fixture
def charts(tmp_path: Path) -> Path:
    path = tmp_path / "plotly.min.js"
    path.write_text("var Plotly = {};")
    return path


@pytest.fixture
def loaded(charts: Path) -> Assets:
    own = load_assets()
    return Assets(own.files, charts, own.digest)


async def ask(assets: Assets, path: str, method: str = "GET", has_report: bool = True, **rest: Any) -> httpx.Response:
    front = PageFront(inner, assets, has_report=has_report)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url="http://server") as client:
        return await client.request(method, path, **rest)


@pytest.mark.parametrize(("path", "script"), [("/", "dashboard.js"), ("/diagnose?model=a", "diagnosis.js")])
async def test_browsers_get_the_page(loaded: Assets, path: str, script: str) -> None:
    answer = await ask(loaded, path, headers=BROWSER)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["vary"] == "Accept"
    assert answer.headers["cache-control"] == "no-cache"
    assert f"page/{loaded.digest}/{script}" in answer.text


async def test_the_policy_allows_nothing_but_the_servers_own(loaded: Assets) -> None:
    answer = await ask(loaded, "/", headers=BROWSER)
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/plain", "application/json, text/html;q=0.5"])
@pytest.mark.parametrize("path", ["/", "/diagnose"])
async def test_programs_get_what_they_got_before(loaded: Assets, path: str, accept: str) -> None:
    answer = await ask(loaded, path, headers={"Accept": accept})
    assert answer.json() == {"method": "GET", "path": path, "accept": accept}


@pytest.mark.parametrize(("name", "accept"), [("json", "application/json"), ("text", "text/plain")])
async def test_links_choose_a_format_by_name(loaded: Assets, name: str, accept: str) -> None:
    answer = await ask(loaded, f"/diagnose?format={name}", headers=BROWSER)
    assert answer.json()["accept"] == accept


async def test_an_unknown_format_changes_nothing(loaded: Assets) -> None:
    answer = await ask(loaded, "/diagnose?format=pdf", headers=BROWSER)
    assert answer.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/"), ("POST", "/page/x/dom.js"), ("GET", "/v2"), ("GET", "/diagnose/probes/1")]
)
async def test_everything_else_is_passed_on(loaded: Assets, method: str, path: str) -> None:
    assert (await ask(loaded, path, method, headers=BROWSER)).json()["path"] == path


async def test_without_a_diagnosis_its_page_is_not_there(loaded: Assets) -> None:
    assert (await ask(loaded, "/diagnose", has_report=False, headers=BROWSER)).json()["path"] == "/diagnose"
    assert "diagnose?" not in (await ask(loaded, "/", has_report=False, headers=BROWSER)).text


async def test_files_are_kept_by_browsers_until_they_change(loaded: Assets) -> None:
    new = await ask(loaded, f"/page/{loaded.digest}/dom.js")
    old = await ask(loaded, "/page/0123456789abcdef/dom.js")
    assert new.content == old.content == loaded.files["dom.js"].content
    assert new.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert old.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("path", ["/", "/page/x/style.css"])
async def test_what_a_browser_has_is_not_sent_again(loaded: Assets, path: str) -> None:
    first = await ask(loaded, path, headers=BROWSER)
    again = await ask(loaded, path, headers=BROWSER | {"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = await ask(loaded, path, headers=BROWSER | {"If-None-Match": '"another"'})
    assert other.content == first.content


async def test_head_tells_the_length_alone(loaded: Assets) -> None:
    page = await ask(loaded, "/", headers=BROWSER)
    head = await ask(loaded, "/", "HEAD", headers=BROWSER)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(page.content))


@pytest.mark.parametrize(
    "name", ["shell.html", "none.js", "", "../assets.py", "..%2fassets.py", "static/dom.js", "dom.js/", "%00"]
)
async def test_nothing_else_of_the_disk_can_be_had(loaded: Assets, name: str) -> None:
    answer = await ask(loaded, f"/page/x/{name}")
    assert answer.status_code == 404 or answer.json()["path"]
    assert b"import" not in answer.content


async def test_charts_come_compressed_and_only_once_from_the_disk(loaded: Assets, charts: Path) -> None:
    front = PageFront(inner, loaded, has_report=True)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(front), base_url="http://server") as client:
        first = await client.get(f"/page/{loaded.digest}/plotly.min.js")
        os.unlink(charts)
        second = await client.get(f"/page/{loaded.digest}/plotly.min.js")
    assert first.headers["content-encoding"] == "gzip"
    assert first.text.endswith("var Plotly = {};")
    assert second.text == first.text


async def test_charts_that_are_not_there_are_not_found(loaded: Assets, charts: Path) -> None:
    os.unlink(charts)
    assert (await ask(loaded, "/page/x/plotly.min.js")).status_code == 404
    without = Assets(loaded.files, None, loaded.digest)
    assert (await ask(without, "/page/x/plotly.min.js")).status_code == 404
