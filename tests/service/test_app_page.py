"""The page before the whole application: open without a key, which its figures need."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from tests.doubles.running_app import running
from tests.doubles.running_server import make_repository

BROWSER = {"Accept": "text/html,*/*;q=0.8"}
KEY = {"Authorization": "Bearer secret"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repository")


async def test_the_page_is_open_and_its_figures_are_not(repository: Path) -> None:
    async with running(repository, wait=False, api_key=SecretStr("secret")) as app:
        for path in ("/", "/diagnose"):
            page = await app.request("GET", path, headers=BROWSER)
            assert page.status_code == 200
            assert "simple" not in page.text
            for refused in (
                await app.request("GET", path),
                await app.request("GET", f"{path}?format=json", headers=BROWSER),
                await app.request("GET", f"{path}?format=text", headers=BROWSER),
            ):
                assert refused.status_code == 401
        assert (await app.request("GET", "/?format=json", headers=BROWSER | KEY)).json()["name"] == "inferlane"


async def test_a_server_without_diagnosis_has_no_page_of_it(repository: Path) -> None:
    async with running(repository, wait=False, diagnosis_enabled=False) as app:
        assert (await app.request("GET", "/", headers=BROWSER)).headers["content-type"].startswith("text/html")
        assert (await app.request("GET", "/diagnose", headers=BROWSER)).status_code == 404


@pytest.mark.parametrize("is_enabled", [True, False])
async def test_the_page_learns_whether_probes_may_be_run(repository: Path, is_enabled: bool) -> None:
    async with running(repository, wait=False, probes_enabled=is_enabled) as app:
        links = (await app.request("GET", "/")).json()["links"]
    assert ("/diagnose/probes" in links.values()) is is_enabled
