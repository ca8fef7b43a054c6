"""What a served model lacks is said where people look: in the repository index."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from service.errors import ExecutionFailed, NotReady
from service.repository.loader import ModelLoader
from service.repository.registry import Registry
from service.repository.served import MAX_LACKS_SHOWN
from tests.doubles.held_backend import HeldBackend
from tests.doubles.held_repository import FAR_NS, KeepingServerRecorder
from tests.doubles.requests import make_request, make_spec


class Lacking:
    """A registry of one model `m`, whose batches of some sizes fail."""

    def __init__(self, repository: Path, *, sizes: set[int], max_batch_size: int) -> None:
        (repository / "m" / "1").mkdir(parents=True)
        (repository / "m" / "1" / "model.onnx").touch()
        backend = HeldBackend(make_spec(max_batch_size=max_batch_size), clock=lambda: 0, held=False)
        backend.fails_on = lambda request: ExecutionFailed("no kernel") if request.rows in sizes else None
        recorder = KeepingServerRecorder()
        loader = ModelLoader(
            open_backend=lambda card, version, _: backend, make_task=lambda spec: None, recorder=recorder
        )
        self.registry = Registry(repository, loader, recorder, drain_timeout_s=5, on_progress=lambda progress: None)


async def test_the_index_tells_which_buckets_are_missing_and_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lacking = Lacking(tmp_path, sizes={4, 8}, max_batch_size=8)
    with caplog.at_level(logging.INFO):
        await lacking.registry.start(None)
    (entry,) = lacking.registry.index()
    assert entry.state.value == "READY"
    assert entry.reason == "2 of 4 buckets are not served: 4: no kernel; 8: no kernel"
    assert "version 1 ready in " in caplog.text
    phases = r"s: open \d+\.\d, warm up \d+\.\d, checks \d+\.\d, lanes \d+\.\d; 2 buckets, 1 lane\b"
    assert re.search(phases, caplog.text)
    served = lacking.registry.get("m")
    with pytest.raises(NotReady, match=r"does not serve bucket 8.* no kernel"):
        served.batcher.submit(make_request(rows=5, deadline_ns=FAR_NS))
    await served.batcher.submit(make_request(rows=2, deadline_ns=FAR_NS)).future
    await lacking.registry.stop()


async def test_a_long_list_is_cut_short(tmp_path: Path) -> None:
    lacking = Lacking(tmp_path, sizes=set(range(2, 65)), max_batch_size=64)
    await lacking.registry.start(None)
    (entry,) = lacking.registry.index()
    assert entry.reason.startswith("6 of 7 buckets are not served: 2: no kernel; ")
    assert entry.reason.count("no kernel") == MAX_LACKS_SHOWN
    assert entry.reason.endswith("; and 3 more")
    await lacking.registry.stop()
