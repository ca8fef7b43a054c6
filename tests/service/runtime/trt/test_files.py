"""Whatever a path names, reading it ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.errors import ModelLoadFailed
from service.runtime.trt.files import read_regular
from service.runtime.trt.manifest import manifest_path, read_manifest
from service.runtime.trt.plan import read_plan


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_files_and_links_to_them_are_read(tmp_path: Path) -> None:
    (tmp_path / "plan").write_bytes(b"content")
    (tmp_path / "link").symlink_to("plan")
    assert read_regular(tmp_path / "plan") == read_regular(tmp_path / "link") == b"content"


def test_what_is_no_file_is_refused_and_leaves_nothing_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = open_descriptors()
    for path, words in ((tmp_path / "pipe", "a pipe"), (Path("/dev/zero"), "a device"), (tmp_path, "Is a directory")):
        with pytest.raises(OSError, match=words):
            read_regular(path)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "absent")
    assert open_descriptors() == before


def test_neither_a_plan_nor_a_manifest_may_be_a_pipe(tmp_path: Path) -> None:
    plan = tmp_path / "model.plan"
    os.mkfifo(manifest_path(plan))
    with pytest.raises(ModelLoadFailed, match=r"model\.plan\.json cannot be read: it is a pipe"):
        read_manifest(plan)
    os.mkfifo(plan)
    with pytest.raises(ModelLoadFailed, match=r"model\.plan cannot be read: it is a pipe"):
        read_plan(plan)
