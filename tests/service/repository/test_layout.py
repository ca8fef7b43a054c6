"""The layout of a repository: what counts as a model and a version, and what is said about the rest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import ModelLoadFailed, ModelNotFound
from service.repository.layout import find, scan


def lay_out(repository: Path, *files: str) -> Path:
    """Makes empty files; a name that ends in a slash makes a folder."""
    repository.mkdir(exist_ok=True)
    for file in files:
        path = repository / file
        if file.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    return repository


def problem(repository: Path, name: str) -> str:
    folder = scan(repository)[name]
    assert folder.versions == ()
    with pytest.raises(ModelLoadFailed) as caught:
        folder.version()
    assert folder.problem is not None
    assert folder.problem in str(caught.value)
    return folder.problem


def test_versions_are_sorted_by_number_and_the_highest_is_the_default(tmp_path: Path) -> None:
    lay_out(tmp_path, "a/10/model.onnx", "a/9/model.onnx", "a/2/model.onnx", "a/model.toml", "a/labels.txt")
    folder = scan(tmp_path)["a"]
    assert [version.version for version in folder.versions] == ["2", "9", "10"]
    assert folder.version().version == "10"
    assert folder.version("9").path == tmp_path / "a" / "9"
    assert folder.version("9").onnx == tmp_path / "a" / "9" / "model.onnx"


def test_a_version_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    lay_out(tmp_path, "a/1/model.onnx", "a/3/model.onnx")
    for wanted in ("2", "01", "../1", "-1"):
        with pytest.raises(ModelNotFound, match="it has 1, 3"):
            scan(tmp_path)["a"].version(wanted)


def test_the_version_folder_may_be_left_out(tmp_path: Path) -> None:
    lay_out(tmp_path, "a/model.onnx", "b/b.plan", "b/model.toml")
    models = scan(tmp_path)
    assert models["a"].version("1").onnx == tmp_path / "a" / "model.onnx"
    assert models["b"].version().version == "1"
    assert models["b"].version().plan == tmp_path / "b" / "b.plan"
    assert models["b"].version().onnx is None


def test_one_version_may_hold_the_onnx_model_and_its_plan(tmp_path: Path) -> None:
    lay_out(tmp_path, "a/1/model.onnx", "a/1/h200.plan", "a/1/.hidden.plan", "a/1/model.onnx.data", "a/1/other.onnx")
    version = scan(tmp_path)["a"].version()
    assert version.onnx == tmp_path / "a" / "1" / "model.onnx"
    assert version.plan == tmp_path / "a" / "1" / "h200.plan"


def test_what_is_no_model_is_passed_over(tmp_path: Path) -> None:
    lay_out(
        tmp_path, "README.md", "docs/guide.md", "empty/", ".git/1/model.onnx", ".hidden/model.toml", "a/1/model.onnx"
    )
    lay_out(tmp_path, "a/.1/model.onnx", "a/assets/sample.png", "b/2024-notes/x", "c/.model.onnx")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert list(scan(tmp_path)) == ["a"]
    assert [version.version for version in scan(tmp_path)["a"].versions] == ["1"]


def test_linked_folders_are_followed(tmp_path: Path) -> None:
    lay_out(tmp_path / "store", "a/1/model.onnx")
    repository = lay_out(tmp_path / "repository")
    (repository / "a").symlink_to(tmp_path / "store" / "a")
    assert scan(repository)["a"].version().version == "1"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["m/1/a.plan", "m/1/b.plan"], ["holds 2 plans, ['a.plan', 'b.plan']", "leave one"]),
        (["m/a.plan", "m/b.plan"], ["holds 2 plans, ['a.plan', 'b.plan']"]),
        (["m/model.onnx", "m/2/model.onnx", "m/1/model.onnx"], ["['model.onnx']", "['1', '2']", "version folder"]),
        (["m/model.toml"], ["neither model.onnx nor a *.plan", "['model.toml']", "put the model there"]),
        (["m/1/"], ["neither model.onnx nor a *.plan", "only []"]),
        (["m/1/model.onnx", "m/2/"], ["/m/2'", "neither model.onnx"]),
        (["m/1/resnet.onnx"], ["rename 'resnet.onnx' to model.onnx"]),
        (["m/resnet.onnx"], ["rename 'resnet.onnx' to model.onnx"]),
        (["m/01/model.onnx"], ["'01' has a leading zero", "call it '1'"]),
        (["m/00/model.onnx"], ["call it '0'"]),
        (["m/1/model.onnx/"], ["neither model.onnx"]),
    ],
)
def test_what_looks_like_a_model_but_is_none_keeps_its_problem(
    tmp_path: Path, files: list[str], words: list[str]
) -> None:
    lay_out(tmp_path, *files, "good/1/model.onnx")
    said = problem(tmp_path, "m")
    for word in words:
        assert word in said
    assert scan(tmp_path)["good"].problem is None


@pytest.mark.parametrize("name", ["has space", "_x", "ünïcode", "n" * 129])
def test_a_folder_whose_name_cannot_be_a_models_says_so(tmp_path: Path, name: str) -> None:
    lay_out(tmp_path, f"{name}/1/model.onnx")
    assert "rename the folder" in problem(tmp_path, name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_model_keeps_its_problem(tmp_path: Path) -> None:
    lay_out(tmp_path, "a/1/model.onnx", "b/1/model.onnx")
    (tmp_path / "a").chmod(0)
    try:
        assert "cannot be read: Permission denied" in problem(tmp_path, "a")
        assert scan(tmp_path)["b"].problem is None
    finally:
        (tmp_path / "a").chmod(0o755)


def test_a_repository_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, words in (("missing", "No such file or directory"), ("file", "Not a directory")):
        with pytest.raises(ModelLoadFailed, match=words):
            scan(tmp_path / path)
        with pytest.raises(ModelLoadFailed, match=words):
            find(tmp_path / path, "a")


def test_find_gives_what_scan_lists(tmp_path: Path) -> None:
    lay_out(tmp_path, "a/1/model.onnx", "broken/model.toml", "docs/x", "README.md")
    for name, folder in scan(tmp_path).items():
        assert find(tmp_path, name) == folder
    for name in ("docs", "README.md", "A"):
        with pytest.raises(ModelNotFound, match=name):
            find(tmp_path, name)


@given(
    st.sampled_from(["", ".", "..", "../outside", "a/", "a/1", "a/../a", "./a", "/etc", "a\x00", ".hidden", "%2e%2e"])
    | st.text(max_size=20).filter(lambda name: name != "a")
)
def test_find_never_leaves_the_repository(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    root = tmp_path_factory.getbasetemp() / "find-never-leaves"
    root.mkdir(exist_ok=True)
    repository = lay_out(root / "repository", "a/1/model.onnx", ".hidden/1/model.onnx")
    lay_out(root, "outside/1/model.onnx")
    with pytest.raises(ModelNotFound):
        find(repository, name)


@pytest.mark.parametrize(
    ("files", "is_alone"),
    [
        (["m/model.toml"], True),
        (["m/model.toml", "m/labels.txt", "m/.hidden"], True),
        (["m/model.toml", "m/model.onnx"], False),
        (["m/model.toml", "m/other.onnx"], False),
        (["m/model.toml", "m/1/"], False),
        (["m/model.toml", "m/a.plan", "m/b.plan"], False),
        (["m/resnet.onnx"], False),
    ],
)
def test_a_card_alone_may_be_a_model_of_others(tmp_path: Path, files: list[str], is_alone: bool) -> None:
    lay_out(tmp_path, *files)
    assert scan(tmp_path)["m"].has_card_alone is is_alone


def test_a_card_alone_whose_folder_cannot_be_a_model_is_none(tmp_path: Path) -> None:
    lay_out(tmp_path, "has space/model.toml")
    assert not scan(tmp_path)["has space"].has_card_alone
