"""Regions on real files, which is what shared memory objects are."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from service.errors import InvalidInput, Overloaded
from service.shared_regions.region import Identity, RegionSpec, SharedRegion, open_region, reopen_region
from tests.doubles.open_files import open_files

CONTENT = bytes(range(64))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    (folder / "frames").write_bytes(CONTENT)
    return folder


def frames(folder: Path, offset: int = 0, nbytes: int = 64) -> SharedRegion:
    return open_region(RegionSpec("r", "/frames", offset, nbytes), folder)


@pytest.mark.parametrize("key", ["/frames", "frames"])
def test_a_region_is_read_and_written(folder: Path, key: str) -> None:
    region = open_region(RegionSpec("r", key, 8, 16), folder)
    host_buffer = bytearray(4)
    region.read_into(memoryview(host_buffer), 2)
    assert host_buffer == CONTENT[10:14]
    region.write(memoryview(b"abcd"), 12)
    assert (folder / "frames").read_bytes() == CONTENT[:20] + b"abcd" + CONTENT[24:]
    region.release()


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        ".",
        "..",
        "/..",
        "/../frames",
        "a/b",
        "//frames",
        "/sub/frames",
        "/nul\0",
        "/" + "x" * 256,
        "/" + "ß" * 128,
    ],
)
def test_a_key_names_an_object_and_no_way(folder: Path, key: str) -> None:
    with pytest.raises(InvalidInput, match=r"'key' is .* expected the name of a POSIX shared memory object"):
        open_region(RegionSpec("r", key, 0, 1), folder)


def link(path: Path) -> None:
    path.symlink_to(path.parent / "frames")


def private(path: Path) -> None:
    path.write_bytes(CONTENT)
    path.chmod(stat.S_IRUSR)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "object '/odd' of region 'r' is not in .*shm; create it before"),
        (link, "cannot be opened as a shared memory object: .*symbolic links"),
        (Path.mkdir, "cannot be opened as a shared memory object: .*[Dd]irectory"),
        (os.mkfifo, "is no shared memory object; make it by shm_open"),
        pytest.param(
            private,
            "may not be read and written by the server's user",
            marks=pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything"),
        ),
    ],
)
def test_what_is_no_object_of_the_client_is_refused(folder: Path, make: Callable[[Path], None], message: str) -> None:
    make(folder / "odd")
    with pytest.raises(InvalidInput, match=message):
        open_region(RegionSpec("r", "/odd", 0, 1), folder)
    assert open_files(folder) == []


@pytest.mark.parametrize(("offset", "nbytes"), [(0, 65), (64, 1), (1, 64), (1 << 80, 1), (0, 1 << 80)])
def test_a_region_lies_in_its_object(folder: Path, offset: int, nbytes: int) -> None:
    with pytest.raises(InvalidInput, match=f"has 64 bytes; {nbytes} bytes at offset {offset} do not lie in it"):
        frames(folder, offset, nbytes)


@pytest.mark.parametrize(
    ("offset", "nbytes", "fits"), [(0, 16, True), (16, 0, True), (12, 4, True), (12, 5, False), (17, 0, False)]
)
def test_a_place_lies_in_its_region(folder: Path, offset: int, nbytes: int, fits: bool) -> None:
    region = frames(folder, 8, 16)
    if fits:
        region.check(offset, nbytes, "input 'x'")
    else:
        message = f"input 'x' takes {nbytes} bytes at offset {offset} of shared memory region 'r', which has 16 bytes"
        with pytest.raises(InvalidInput, match=message):
            region.check(offset, nbytes, "input 'x'")
    region.release()


@pytest.mark.parametrize("left_bytes", [0, 8, 40])
def test_an_object_that_shrinks_costs_its_requests_alone(folder: Path, left_bytes: int) -> None:
    region = frames(folder, 8, 56)
    os.truncate(folder / "frames", left_bytes)
    message = rf"registered as 56 bytes at offset 8 of '/frames', which has {left_bytes} bytes by now"
    with pytest.raises(InvalidInput, match=message):
        region.read_into(memoryview(bytearray(56)), 0)
    with pytest.raises(InvalidInput, match=message):
        region.write(memoryview(bytes(56)), 0)
    assert (folder / "frames").stat().st_size == left_bytes
    region.release()


def test_memory_that_the_system_has_not_is_told(folder: Path) -> None:
    readable = os.open(folder / "frames", os.O_RDONLY)
    region = SharedRegion(RegionSpec("r", "/frames", 0, 64), readable)
    with pytest.raises(Overloaded, match=r"region 'r' cannot be written .*make room"):
        region.write(memoryview(b"abcd"), 0)
    region.release()


def test_an_object_stays_until_nobody_holds_it(folder: Path) -> None:
    region = frames(folder)
    (folder / "frames").unlink()
    region.retain()
    region.release()
    host_buffer = bytearray(64)
    region.read_into(memoryview(host_buffer), 0)
    assert host_buffer == CONTENT
    region.release()
    assert open_files(folder) == []


def test_another_process_opens_the_same_object_whatever_its_key_means_by_now(folder: Path) -> None:
    region = frames(folder, 8, 16)
    (folder / "frames").unlink()
    (folder / "frames").write_bytes(bytes(64))
    again = reopen_region(region.spec, Path(f"/proc/self/fd/{region.fd}"), region.identity)
    again.write(memoryview(b"abcd"), 0)
    host_buffer = bytearray(8)
    region.read_into(memoryview(host_buffer), 0)
    assert host_buffer == b"abcd" + CONTENT[12:16]
    again.release()
    region.release()


def test_another_object_is_not_taken_for_it(folder: Path) -> None:
    region = frames(folder)
    with pytest.raises(FileNotFoundError, match="another object"):
        reopen_region(region.spec, folder / "frames", Identity(0, 0))
    assert open_files(folder) == ["frames"]
    region.release()
