from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from service.api.docs_page import FILES, docs_page, docs_router, swagger_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).write_text(f"content of {name}")
    return tmp_path


def client(folder: Path | None) -> TestClient:
    app = FastAPI(docs_url=None)
    app.include_router(docs_router("Inferlane", folder))
    return TestClient(app)


def test_the_page_and_its_files_are_the_servers_own(folder: Path) -> None:
    asked = client(folder)
    page = asked.get("/docs").text
    assert "://" not in page
    for name, content_type in FILES.items():
        assert f'"docs/{name}"' in page
        response = asked.get(f"/docs/{name}")
        assert response.text == f"content of {name}"
        assert response.headers["content-type"].startswith(content_type)
    assert asked.get("/docs/other.js").status_code == 404


def test_without_them_the_page_says_what_it_needs() -> None:
    asked = client(None)
    page = asked.get("/docs").text
    assert "inferlane[dashboard]" in page
    assert page.index('id="swagger-ui"') < page.index("inferlane[dashboard]") < page.index("</div>")
    assert asked.get("/docs/swagger-ui.css").status_code == 404


def test_the_note_is_left_out_where_it_is_not_needed() -> None:
    assert "inferlane[dashboard]" not in docs_page("Inferlane", is_local=True)


def test_the_installed_package_has_what_is_served() -> None:
    folder = swagger_folder()
    assert folder is not None, "fastapi-offline is of the extra `test`"
    assert "SwaggerUIBundle" in (folder / "swagger-ui-bundle.js").read_text(encoding="utf-8")
