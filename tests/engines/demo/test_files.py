"""Atomic writes: whole or absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.demo.files import sha256_of, write_atomically


def test_a_file_is_written_with_its_folders_and_readable_by_all(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    write_atomically(path, b"new")
    write_atomically(path, b"newer")
    assert path.read_bytes() == b"newer"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path / "file", b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_the_hash_is_none_where_no_file_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert sha256_of(tmp_path / "file") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_of(tmp_path / "gone") is None
    assert sha256_of(tmp_path / "file" / "below") is None
