"""Requests of front ends through shared memory and real sockets into real queues, and their answers back."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from service.cards import BatchingCard
from service.errors import ClientGone, DeadlineExceeded, ExecutionFailed, ModelNotFound, NotReady, Overloaded
from service.tensors import DType, TensorSpec
from tests.doubles.held_repository import HeldRepository, begun, until
from tests.doubles.requests import make_media_request, make_media_spec, make_spec
from tests.doubles.transport_bench import FAR_NS, REGION_BYTES, TransportBench, request_of, row


async def test_a_request_is_answered_and_leaves_no_memory_behind(bench):
    front_end = await bench.front_end().serves("m")
    request = request_of(row(3.0, rows=2))
    (answer,) = await front_end.submit(request)
    assert answer.tolist() == [[6.0] * 4] * 2
    assert front_end.room.held_bytes == 0
    stamps = request.stamps
    moments = [getattr(stamps, name) for name in ("prepared", "dispatched", "started", "copied_in", "computed")]
    moments += [stamps.copied_out, stamps.completed]
    assert moments == sorted(moments)
    assert all(moments)


async def test_front_ends_share_batches(repository, bench):
    first, second = await bench.front_end(0).serves("m"), await bench.front_end(1).serves("m")
    backend = repository.backends[0]
    repository.hold(backend)
    running = first.submit(request_of(row(1.0)))
    await begun(backend)
    waiting = [first.submit(request_of(row(2.0))), second.submit(request_of(row(3.0)))]
    batcher = repository.batcher("m")
    await until(lambda: batcher.queued_requests == 2)
    backend.let(2)
    await asyncio.wait_for(asyncio.gather(running, *waiting), 10)
    assert [future.result()[0][0, 0] for future in waiting] == [4.0, 6.0]
    assert backend.batches[-1].size == 2


async def test_a_request_that_waits_is_dropped_and_its_memory_is_free(repository, bench):
    front_end = await bench.front_end().serves("m")
    backend = repository.backends[0]
    repository.hold(backend)
    running = front_end.submit(request_of(row()))
    await begun(backend)
    batcher = front_end.mirror.get("m").batcher
    item = batcher.submit(request_of(row()))
    await until(lambda: repository.batcher("m").queued_requests == 1)
    batches = len(backend.batches)
    assert batcher.cancel(item)
    with pytest.raises(ClientGone):
        await asyncio.wait_for(item.future, 10)
    assert not batcher.cancel(item)
    backend.let()
    await asyncio.wait_for(running, 10)
    assert front_end.room.held_bytes == 0
    assert len(backend.batches) == batches


async def test_a_request_that_runs_holds_its_memory_until_its_batch_is_done(repository, bench):
    front_end = await bench.front_end().serves("m")
    backend = repository.backends[0]
    repository.hold(backend)
    batcher = front_end.mirror.get("m").batcher
    item = batcher.submit(request_of(row()))
    await begun(backend)
    batcher.cancel(item)
    item.future.cancel()
    other = batcher.submit(request_of(row()))
    await until(lambda: repository.batcher("m").queued_requests == 1)  # so the engine has seen both messages
    assert len(front_end.requests) == 2
    assert front_end.room.held_bytes
    backend.let(2)
    await asyncio.wait_for(other.future, 10)
    await until(lambda: not front_end.room.held_bytes)


async def test_a_deadline_that_passes_in_the_queue_is_told(repository, bench):
    front_end = await bench.front_end().serves("m")
    backend = repository.backends[0]
    repository.hold(backend)
    running = front_end.submit(request_of(row()))
    await begun(backend)
    now = request_of(row()).stamps.received
    late = front_end.submit(request_of(row(), deadline_ns=now + 50_000_000))
    with pytest.raises((DeadlineExceeded, Overloaded)):
        await asyncio.wait_for(late, 10)
    backend.let()
    await asyncio.wait_for(running, 10)
    assert front_end.room.held_bytes == 0


async def test_what_a_lane_raises_arrives_as_the_same_class(repository, bench):
    front_end = await bench.front_end().serves("m")
    repository.backends[0].fails_on = lambda request: ExecutionFailed("the model burst")
    with pytest.raises(ExecutionFailed, match="the model burst"):
        await front_end.submit(request_of(row()))
    assert front_end.room.held_bytes == 0


async def test_a_full_region_refuses_and_takes_again(bench):
    front_end = await bench.front_end().serves("m")
    lease = front_end.room.take(REGION_BYTES)
    with pytest.raises(Overloaded) as refused:
        front_end.submit(request_of(row()))
    assert refused.value.retry_after_s
    lease.release()
    await front_end.submit(request_of(row()))


async def test_a_full_queue_refuses_with_its_delay(tmp_path):
    async with HeldRepository(tmp_path, batching=BatchingCard(max_batch_size=1, max_queued_requests=1)) as repository:
        repository.add("m")
        await repository.registry.start(None)
        async with TransportBench(repository.registry) as bench:
            front_end = await bench.front_end().serves("m")
            backend = repository.backends[0]
            repository.hold(backend)
            running = front_end.submit(request_of(row()))
            await begun(backend)
            waiting = front_end.submit(request_of(row()))
            with pytest.raises(Overloaded) as refused:
                await front_end.submit(request_of(row()))
            assert refused.value.retry_after_s is not None
            backend.let(2)
            await asyncio.gather(running, waiting)


async def test_a_body_in_the_region_is_read_where_it_lies_and_lives_until_the_answer(repository, bench):
    repository.make_spec = lambda **spec: make_spec(dims={"width": (1 << 16,)}, **spec)
    repository.add("wide")
    await repository.registry.load("wide")
    front_end = await bench.front_end().serves("wide")
    buffer = front_end.room.take_buffer(4 << 16)
    host_x = buffer.host_buffer.view(np.float32).reshape(1, -1)
    host_x[:] = 2.0
    backend = repository.backends[-1]
    repository.hold(backend)
    future = front_end.submit(request_of(host_x, dims=(1 << 16,), outputs=(0,)), "wide")
    await begun(backend)
    (host_input,) = backend.batches[-1].requests[0].inputs
    host_x[0, 0] = 5.0
    assert host_input[0, 0] == 5.0
    assert not host_input.flags.writeable
    buffer.release()
    assert front_end.room.held_bytes >= 8 << 16
    backend.let()
    (answer,) = await asyncio.wait_for(future, 10)
    assert answer[0, :2].tolist() == [10.0, 4.0]
    assert front_end.room.held_bytes == 0


async def test_media_travel_in_their_own_form(repository, bench):
    repository.make_spec = make_media_spec
    repository.add("texts")
    await repository.registry.load("texts")
    front_end = await bench.front_end().serves("texts")
    text_sum, count = await front_end.submit(make_media_request(b"abc", deadline_ns=FAR_NS), "texts")
    assert (text_sum.tolist(), count.tolist()) == ([[sum(b"abc")]], [[3]])


async def test_outputs_of_unknown_size_travel_inline(repository, bench):
    def make(**spec):
        made = make_spec(**spec)
        return replace(made, outputs=(TensorSpec("y", DType.FP32, ("batch", "top")),))

    repository.make_spec = make
    repository.add("any")
    await repository.registry.load("any")
    front_end = await bench.front_end().serves("any")
    (answer,) = await front_end.submit(request_of(row(2.0)), "any")
    assert answer.tolist() == [[4.0] * 4]
    assert answer.flags.aligned
    answer[:] = 0  # it is the request's own


async def test_an_unloaded_model_is_unknown_to_front_ends_once_that_is_done(repository, bench):
    front_ends = [await bench.front_end(index).serves("m") for index in (0, 1)]
    await repository.registry.unload("m")
    for front_end in front_ends:
        with pytest.raises(NotReady, match="unloaded"):
            front_end.mirror.get("m")
        with pytest.raises(ModelNotFound):
            front_end.mirror.get("n")


async def test_a_reload_is_known_everywhere_once_it_is_done_and_loses_no_request(repository, bench):
    front_ends = [await bench.front_end(index).serves("m") for index in (0, 1)]
    old = front_ends[0].mirror.get("m")
    backend = repository.backends[0]
    repository.hold(backend)
    before = old.batcher.submit(request_of(row()))
    await begun(backend)
    loading = asyncio.create_task(repository.registry.load("m"))
    await until(lambda: front_ends[0].mirror.get("m") is not old)
    (after,) = await front_ends[0].submit(request_of(row(4.0)))
    assert after[0, 0] == 8.0
    assert len(repository.backends) == 2
    backend.let()
    await asyncio.wait_for(before.future, 10)
    await asyncio.wait_for(loading, 10)
    assert all(front_end.mirror.get("m") is not old for front_end in front_ends)
    assert bench.publisher.find(1) is None
