"""Requests that no front end of ours would send end the session; those that come too late are told so."""

import pytest

from service.errors import ExecutionFailed, ShuttingDown
from service.transport.descriptors import Placed, Submit, pack_submit
from tests.doubles.held_repository import begun, until
from tests.doubles.transport_bench import FAR_NS, REGION_BYTES, request_of, row

GOOD = Submit(
    number=1000,
    model=1,
    form=0,
    priority=1,
    rows=1,
    deadline_ns=FAR_NS,
    nbytes=16,
    received=1,
    read=1,
    parsed=1,
    prepared=1,
    result_offset=0,
    result_bytes=0,
    dims=(),
    outputs=(0,),
    inputs=(Placed(0, 16, (1, 4)),),
)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"form": 9}, id="no form"),
        pytest.param({"form": 1}, id="media of a model that has none"),
        pytest.param({"rows": 0}, id="no rows"),
        pytest.param({"dims": (3,)}, id="dims of a model that has none"),
        pytest.param({"outputs": (1,)}, id="an output that is not there"),
        pytest.param({"outputs": (-1,)}, id="an output before the first"),
        pytest.param({"inputs": ()}, id="no inputs"),
        pytest.param({"inputs": (Placed(REGION_BYTES, 16, (1, 4)),)}, id="an input in another region"),
        pytest.param({"result_offset": REGION_BYTES - 8, "result_bytes": 16}, id="results in another region"),
        pytest.param({"result_offset": -64, "result_bytes": 16}, id="results before the region"),
        pytest.param({"result_bytes": -1}, id="less than no room"),
    ],
)
async def test_a_request_that_is_none_of_ours_ends_the_session(repository, bench, change):
    front_end, other = await bench.front_end(0).serves("m"), await bench.front_end(1).serves("m")
    batches = len(repository.backends[0].batches)
    front_end.link._channel.send(pack_submit(GOOD._replace(**change), ()))
    await until(lambda: not front_end.link.is_up)
    assert len(repository.backends[0].batches) == batches
    await other.submit(request_of(row()))


async def test_a_number_that_is_in_use_ends_the_session(repository, bench):
    front_end = await bench.front_end().serves("m")
    backend = repository.backends[0]
    repository.hold(backend)
    future = front_end.submit(request_of(row()))
    await begun(backend)
    front_end.link._channel.send(pack_submit(GOOD._replace(number=1), ()))
    await until(lambda: not front_end.link.is_up)
    assert future.exception() is not None
    backend.let()


async def test_a_model_that_is_there_no_more_asks_for_another_attempt(bench):
    front_end = await bench.front_end().serves("m")
    model = front_end.mirror.get("m")
    model.batcher._number = 77
    with pytest.raises(ShuttingDown, match="send the request again"):
        await model.batcher.submit(request_of(row())).future
    assert front_end.room.held_bytes == 0


async def test_outputs_that_cannot_cross_fail_their_request_alone(bench, monkeypatch):
    front_end = await bench.front_end().serves("m")

    def refuse(done, inline):
        raise ValueError("too many bytes")

    with monkeypatch.context() as patched:
        patched.setattr("service.transport.session.pack_done", refuse)
        with pytest.raises(ExecutionFailed, match="too large"):
            await front_end.submit(request_of(row()))
    await front_end.submit(request_of(row()))
