from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engines.events import Event, LogLine
from engines.timing_cache import attach, cache_path, is_to_blame, start_anew, store
from service.runtime.trt.manifest import Machine
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_tensorrt import fake_tensorrt
from tests.doubles.fake_tensorrt_builder import ILogger

H200 = Machine("NVIDIA H200", (9, 0), (12, 6))


def config() -> Any:
    return fake_tensorrt(FakeCuda(), "10").Builder(ILogger()).create_builder_config()


def warnings(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, LogLine) and event.severity == "warning"]


@pytest.mark.parametrize(
    ("machine", "version", "name"),
    [
        (H200, "8.6.1", "nvidia-h200-sm9.0-tensorrt8.6.1-cuda12.6.timing-cache"),
        (H200, "10.13.3", "nvidia-h200-sm9.0-tensorrt10.13.3-cuda12.6.timing-cache"),
        (Machine("A/B: (C)", (8, 9), (13, 0)), "11.4.0", "a-b-c-sm8.9-tensorrt11.4.0-cuda13.0.timing-cache"),
    ],
)
def test_a_file_for_each_gpu_tensorrt_and_cuda(machine: Machine, version: str, name: str) -> None:
    assert cache_path(Path("/cache"), machine, version) == Path("/cache") / name


def test_the_first_build_begins_with_nothing_and_says_nothing(tmp_path: Path) -> None:
    events: list[Event] = []
    for path in (None, tmp_path / "none"):
        cache = attach(config(), path, events.append)
        assert (cache.native.content, cache.is_loaded) == (b"", False)
    assert events == []


def test_what_one_build_stores_the_next_loads(tmp_path: Path) -> None:
    path, events = tmp_path / "new" / "cache", list[Event]()
    cache = start_anew(config())
    cache.native.content = b"cache of 10"
    store(cache, path, events.append)
    loaded = attach(config(), path, events.append)
    assert (loaded.native.content, loaded.is_loaded) == (b"cache of 10", True)
    assert events == []
    assert [file.name for file in path.parent.iterdir()] == ["cache"]


@pytest.mark.parametrize("content", [b"cache of 8.6", b"rubbish"])
def test_a_cache_of_another_or_of_nothing_is_left_out_with_a_warning(tmp_path: Path, content: bytes) -> None:
    path, events = tmp_path / "cache", list[Event]()
    path.write_bytes(content)
    own = config()
    cache = attach(own, path, events.append)
    assert not cache.is_loaded
    assert own.get_timing_cache() is cache.native
    assert warnings(events) == [f"the timing cache {path} does not fit this machine; the build goes on without"]


def test_a_cache_that_makes_tensorrt_raise_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, events = tmp_path / "cache", list[Event]()
    path.write_bytes(b"cache of 10")
    own = config()
    real = type(own).create_timing_cache

    def create(self: Any, content: bytes) -> Any:
        if content:
            raise RuntimeError("deserialisation failed")
        return real(self, content)

    monkeypatch.setattr(type(own), "create_timing_cache", create)
    assert not attach(own, path, events.append).is_loaded
    assert len(warnings(events)) == 1


def test_a_cache_that_cannot_be_read_or_written_hinders_no_build(tmp_path: Path) -> None:
    events: list[Event] = []
    cache = attach(config(), tmp_path, events.append)
    store(cache, tmp_path, events.append)
    (tmp_path / "file").touch()
    store(cache, tmp_path / "file" / "cache", events.append)
    said = warnings(events)
    assert [line.split(" cannot be ")[1].split(":")[0] for line in said] == ["read", "written", "written"]
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("Error Code 10: Internal Error (Myelin error from unknown graph)", True),
        ("Timing cache verification failed", True),
        ("out of memory", False),
    ],
)
def test_which_errors_are_the_caches(words: str, expected: bool) -> None:
    assert is_to_blame(words) is expected
