"""The batcher with requests of both forms: apart in every batch, together in everything else."""

from __future__ import annotations

import pytest

from service.buckets import Bucket, Form, Unserved, UnservedReason
from service.errors import ExecutionFailed, NotReady
from service.models import ModelSpec
from tests.doubles.batcher_bench import BatcherBench, turn
from tests.doubles.requests import make_media_spec, make_spec

WRONG = Unserved(UnservedReason.DIFFERS_FROM_REFERENCE, "agrees by 0.7 alone")


async def test_both_forms_under_load_are_answered_with_their_own_rows():
    """HeldLane asserts that no batch mixes them."""
    async with BatcherBench(make_media_spec(media_sizes=(1, 4)), lanes=2, depth=2, held=False) as bench:
        texts = [bytes([1 + value % 7]) * (1 + value % 50) for value in range(200)]
        items = []
        for value, text in enumerate(texts):
            items.append((bench.submit(1 + value % 8, fill=float(value)), bench.submit_text(text)))
            if value % 16 == 15:
                await turn()
        for value, (tensors, media) in enumerate(items):
            assert (await tensors.future)[0].tolist() == [[2.0 * value] * 4] * (1 + value % 8)
            host_sum, host_count = await media.future
            assert (host_sum.tolist(), host_count.tolist()) == ([[sum(texts[value])]], [[len(texts[value])]])
        sizes = {form: {b.bucket.padded_size for b in bench.backend.batches if b.bucket.form is form} for form in Form}
        assert sizes[Form.MEDIA] <= {1, 4}
        assert max(sizes[Form.MEDIA]) == 4, "what waits together runs together"
        assert max(sizes[Form.TENSORS]) == 8
        recorded = {bucket for bucket, _, _ in bench.recorder.batches}
        assert recorded == {batch.bucket for batch in bench.backend.batches}


async def test_the_request_that_breaks_a_batch_of_media_fails_alone():
    async with BatcherBench(make_media_spec()) as bench:
        bench.backend.fails_on = lambda request: ExecutionFailed("no such text") if request.nbytes == 7 else None
        good, bad, also_good = (bench.submit_text(text) for text in (b"ab", b"bad", b"c"))
        await bench.begun()
        bench.backend.let(100)
        with pytest.raises(ExecutionFailed, match="no such text"):
            await bad.future
        assert [(await item.future)[1].item() for item in (good, also_good)] == [2, 1]
        assert {batch.bucket.form for batch in bench.backend.batches} == {Form.MEDIA}


async def test_media_run_in_the_next_bucket_where_theirs_is_missing():
    unserved = {Bucket(1, (), Form.MEDIA): WRONG}
    async with BatcherBench(make_media_spec(max_batch_size=4), held=False, unserved=unserved) as bench:
        await bench.submit_text(b"ab").future
        await bench.submit().future
        assert [batch.bucket for batch in bench.backend.batches] == [Bucket(2, (), Form.MEDIA), Bucket(1)]


async def test_media_that_no_bucket_serves_are_refused_with_the_reason_and_tensors_are_not():
    media = {Bucket(size, (), Form.MEDIA): WRONG for size in (1, 2)}
    async with BatcherBench(make_media_spec(max_batch_size=2), held=False, unserved=media) as bench:
        with pytest.raises(NotReady, match=r"does not serve bucket 1:media, nor one that.*agrees by 0\.7 alone"):
            bench.submit_text(b"ab")
        await bench.submit().future


@pytest.mark.parametrize(("spec", "sizes"), [(make_spec(), r"\[\]"), (make_media_spec(media_sizes=(1,)), r"\[1\]")])
async def test_media_of_more_rows_than_the_form_takes_are_refused(spec: ModelSpec, sizes: str):
    async with BatcherBench(spec, held=False) as bench:
        with pytest.raises(NotReady, match=rf"takes 2 rows of media in no batch: it serves the sizes {sizes}"):
            bench.submit(rows=2, form=Form.MEDIA)
        await bench.submit(rows=2).future
