from __future__ import annotations

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cards import Pooling, PoolingCard, TextCard
from service.errors import ExecutionFailed, InvalidInput, ModelLoadFailed
from service.models import ModelSpec
from service.pipeline.embed import create_embed_task, normalized, pooled
from service.pipeline.steps import Call, Outputs
from service.tensors import DType, TensorSpec
from tests.service.pipeline.steps import drive
from tests.service.pipeline.tokenizers_and_models import WORDS, text_spec, tokenizer_json

PER_TEXT = TensorSpec("embedding", DType.FP32, ("n", 2))


def embed(spec: ModelSpec, texts: list[str], run) -> tuple[list[dict], list[Call]]:
    body = orjson.dumps({"text": texts})
    answer, steps = drive(create_embed_task(spec, max_image_pixels=1).steps(body, "application/json", {}), run)
    assert (answer["model_name"], answer["model_version"]) == ("words", "3")
    (calls,) = steps
    return answer["results"], calls


def ids_as_vectors(call: Call) -> Outputs:
    """Per token [its id, 1]; NaN where there is padding, and two positions more than were asked for."""
    ids, mask = (host.astype(np.float32) for host in call.inputs)
    hidden = np.stack([ids, np.ones_like(ids)], axis=2)
    hidden[mask == 0] = np.nan
    return (np.pad(hidden, [(0, 0), (0, 2), (0, 0)], constant_values=np.nan),)


def test_token_vectors_are_averaged_and_get_length_one() -> None:
    (first, second), _ = embed(text_spec(), ["red green", "red"], ids_as_vectors)
    expected = np.array([(1 + 4 + 5 + 2) / 4, 1])
    np.testing.assert_allclose(first["embedding"], expected / np.linalg.norm(expected), rtol=1e-6)
    assert (first["tokens"], first["truncated"]) == (4, False)
    expected = np.array([(1 + 4 + 2) / 3, 1])
    np.testing.assert_allclose(second["embedding"], expected / np.linalg.norm(expected), rtol=1e-6)


@pytest.mark.parametrize(
    ("pooling", "vector"),
    [
        (PoolingCard(is_normalized=False), [7 / 3, 1]),
        (PoolingCard(mode=Pooling.FIRST, is_normalized=False), [1, 1]),
        (PoolingCard(mode=Pooling.FIRST), [2**-0.5, 2**-0.5]),
    ],
)
def test_pooling_of_the_card(pooling: PoolingCard, vector: list[float]) -> None:
    (result,), _ = embed(text_spec(pooling=pooling), ["red"], ids_as_vectors)
    np.testing.assert_allclose(result["embedding"], vector, rtol=1e-6)


@pytest.mark.parametrize(("is_normalized", "vector"), [(None, [3, 4]), (False, [3, 4]), (True, [0.6, 0.8])])
def test_a_vector_per_text_is_taken_as_it_is(is_normalized: bool | None, vector: list[float]) -> None:
    spec = text_spec(output=PER_TEXT, pooling=PoolingCard(is_normalized=is_normalized))
    (result,), _ = embed(spec, ["red"], lambda call: (np.float16([[3, 4]]),))
    np.testing.assert_allclose(result["embedding"], vector, rtol=1e-6)
    assert result["embedding"].dtype == np.float32


def test_rows_of_one_bucket_go_together_and_full_batches_apart() -> None:
    texts = ["red", "red green blue", "red", "red green", *["light"] * 4]
    results, calls = embed(text_spec(), texts, ids_as_vectors)
    assert [(call.rows, call.dims) for call in calls] == [(4, (4,)), (3, (3,)), (1, (5,))]
    assert [result["tokens"] for result in results] == [3, 5, 3, 4, 3, 3, 3, 3]
    assert all(call.outputs == (0,) for call in calls)


def test_rows_of_an_exact_dimension_go_with_their_equals() -> None:
    card = TextCard(tokenizer=tokenizer_json(), max_tokens=8)
    _, calls = embed(text_spec(sizes=None, text=card), ["red", "red green", "blue"], ids_as_vectors)
    assert [(call.rows, call.dims) for call in calls] == [(2, (3,)), (1, (4,))]


def test_a_fixed_sequence_is_filled_up() -> None:
    _, calls = embed(text_spec(sequence=6), ["red", "red green"], ids_as_vectors)
    assert [(call.rows, call.dims, call.inputs[0].shape) for call in calls] == [(2, (), (2, 6))]


@given(st.lists(st.lists(st.sampled_from(WORDS[4:]), max_size=9).map(" ".join), min_size=1, max_size=20))
def test_every_text_gets_its_own_vector_whatever_its_neighbours(texts: list[str]) -> None:
    results, calls = embed(text_spec(), texts, ids_as_vectors)
    assert sum(call.rows for call in calls) == len(texts)
    assert all(call.rows <= 4 for call in calls)
    for text, result in zip(texts, results, strict=True):
        (alone,), _ = embed(text_spec(), [text], ids_as_vectors)
        np.testing.assert_array_equal(result["embedding"], alone["embedding"])


def test_the_answer_can_be_written_as_json() -> None:
    results, _ = embed(text_spec(), ["red"], ids_as_vectors)
    (again,) = orjson.loads(orjson.dumps(results, option=orjson.OPT_SERIALIZE_NUMPY))
    assert again["embedding"] == pytest.approx(results[0]["embedding"].tolist())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_vectors_that_are_not_numbers_are_the_models_fault(bad: float) -> None:
    with pytest.raises(ExecutionFailed, match="not numbers"):
        embed(text_spec(output=PER_TEXT), ["red"], lambda call: (np.float32([[1, bad]]),))


def test_options_are_refused() -> None:
    task = create_embed_task(text_spec(), max_image_pixels=1)
    task.check_options({})
    with pytest.raises(InvalidInput, match="unknown option 'top_k'; task 'embed' takes none"):
        task.check_options({"top_k": "1"})


def test_which_of_several_outputs_is_named_by_the_card() -> None:
    spec = text_spec(pooling=PoolingCard(output="embedding"), more_outputs=(PER_TEXT,))
    (result,), (call,) = embed(spec, ["red"], lambda call: (np.float32([[1, 2]]),))
    assert call.outputs == (1,)
    assert result["embedding"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (text_spec(more_outputs=(PER_TEXT,)), r"outputs \['hidden', 'embedding'\]; say which"),
        (text_spec(pooling=PoolingCard(output="gone")), r"output = 'gone', the model has \['hidden'\]"),
        (text_spec(output=TensorSpec("ids", DType.INT64, ("n", 2))), "has 'ids' INT64"),
        (text_spec(output=TensorSpec("flat", DType.FP32, ("n",))), r"has 'flat' FP32 \[batch\]"),
    ],
)
def test_models_that_give_no_vectors(spec: ModelSpec, says: str) -> None:
    with pytest.raises(ModelLoadFailed, match=says):
        create_embed_task(spec, max_image_pixels=1)


def test_pooling_leaves_padding_out() -> None:
    tokens = np.array([[[1, 2], [3, 4], [np.nan, np.inf]]], np.float32)
    np.testing.assert_array_equal(pooled(tokens, [2], Pooling.MEAN), [[2, 3]])
    np.testing.assert_array_equal(pooled(tokens, [2], Pooling.FIRST), [[1, 2]])


def test_a_vector_of_zeros_stays() -> None:
    np.testing.assert_allclose(normalized(np.float32([[0, 0], [3, 4]])), [[0, 0], [0.6, 0.8]], rtol=1e-6)
