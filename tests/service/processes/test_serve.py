from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from service.processes.serve import serve
from service.server import listen
from service.settings import Settings
from tests.doubles.this_process import this_process

__all__ = ["this_process"]

pytestmark = pytest.mark.usefixtures("this_process")


@pytest.mark.parametrize("frontends", [0, 1])
def test_a_port_that_is_taken_is_one_message_in_one_process_and_in_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], frontends: int
) -> None:
    with listen("127.0.0.1", 0) as other:
        port = other.getsockname()[1]
        assert serve(Settings(repository=tmp_path, port=port, frontends=frontends), make_builder=None) == 1
    assert capsys.readouterr().err.startswith(f"cannot listen on 127.0.0.1:{port}: ")


@pytest.mark.parametrize(
    "settings", [{"frontends": 4, "arena_bytes": 1 << 20}, {"frontends": 1, "arena_bytes": 1 << 62}]
)
def test_shared_memory_that_there_cannot_be_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: dict[str, Any]
) -> None:
    """Too little for the largest body, more than any system gives."""
    assert serve(Settings(repository=tmp_path, port=0, **settings), make_builder=None) == 2
    assert capsys.readouterr().err.startswith(f"INFERLANE_ARENA_BYTES is {settings['arena_bytes']}, ")
