from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from service.api.page import assets
from service.api.page.assets import Assets, compressed_charts, load_assets
from service.diagnosis.finding import BottleneckClass
from service.telemetry.snapshot_load import Stage, Station

STATIC = Path(assets.__file__).parent / "static"
SCRIPTS = sorted(STATIC.glob("*.js"))
MAX_LINES = 400
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|\beval\b"
)
ELSEWHERE = re.compile(r"https?://|\bimport\(|url\(|@import")


@pytest.fixture(scope="module")
def loaded() -> Assets:
    return load_assets()


def test_every_file_is_served_as_what_it_is(loaded: Assets) -> None:
    assert set(loaded.files) == {path.name for path in STATIC.iterdir()}
    kinds = {name: loaded.files[name].content_type for name in ("style.css", "dom.js", "icon.svg", "shell.html")}
    assert kinds == {
        "style.css": "text/css; charset=utf-8",
        "dom.js": "text/javascript; charset=utf-8",
        "icon.svg": "image/svg+xml",
        "shell.html": "text/html; charset=utf-8",
    }
    assert len({asset.etag for asset in loaded.files.values()}) == len(loaded.files)


def test_the_digest_follows_the_content_and_the_charts(loaded: Assets, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_assets().digest == loaded.digest
    monkeypatch.setattr(assets, "_charts", lambda: (None, "another version"))
    assert load_assets().digest != loaded.digest


def test_without_plotly_there_are_no_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "CHARTS_PACKAGE", "a_package_that_is_not_there")
    assert load_assets().charts_path is None


def test_charts_are_compressed_and_find_the_styles_that_they_would_write(tmp_path: Path) -> None:
    script = tmp_path / "plotly.min.js"
    style_id = "ab" * 32
    script.write_text(f'if(!document.getElementById("{style_id}")){{}}')
    charts = compressed_charts(script)
    assert (charts.encoding, charts.content_type) == ("gzip", "text/javascript; charset=utf-8")
    first, own = gzip.decompress(charts.content).decode().split("\n")
    assert json.dumps([style_id]) in first
    assert own == script.read_text()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_make_no_markup_of_texts_and_ask_nobody_else(path: Path) -> None:
    text = path.read_text().replace("http://www.w3.org/2000/svg", "")
    assert not MARKUP.findall(text)
    assert not ELSEWHERE.findall(text)
    assert len(text.splitlines()) <= MAX_LINES


@pytest.mark.parametrize("path", sorted(STATIC.glob("*.css")), ids=lambda path: path.name)
def test_styles_ask_nobody_else(path: Path) -> None:
    assert not ELSEWHERE.findall(path.read_text())


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed: the browser's tests tell as well")
def test_titles_name_every_class_stage_and_station(tmp_path: Path) -> None:
    script = "import(process.argv[1]).then((titles) => console.log(JSON.stringify(titles)))"
    module = shutil.copy(STATIC / "titles.js", tmp_path / "titles.mjs")
    command = ["node", "-e", script, module.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    titles = json.loads(done.stdout)
    assert list(titles["CLASSES"]) == [kind.value for kind in BottleneckClass]
    assert list(titles["STAGES"]) == [stage.value for stage in Stage]
    assert list(titles["STATIONS"]) == [station.value for station in Station]
    assert {group for _, group, _ in titles["STAGES"].values()} == set(titles["GROUPS"])
