from __future__ import annotations

import sys

import numpy as np
import pytest

from service.cards import TextCard
from service.errors import InvalidInput, ModelLoadFailed
from service.models import ModelSpec
from service.pipeline.tokenize import TextTokenizer, TokenRow, create_tokenizer, token_inputs
from service.tensors import DType
from tests.service.pipeline.tokenizers_and_models import END, GREEN, RED, START, UNKNOWN, text_spec, tokenizer_json


def tokenizer(spec: ModelSpec, longest: int | None = 8) -> TextTokenizer:
    return create_tokenizer(spec, token_inputs(spec), longest)


def test_tokens_of_texts() -> None:
    rows = tokenizer(text_spec()).rows(["red green", "", "red purple"])
    assert [list(row.ids) for row in rows] == [[START, RED, GREEN, END], [START, END], [START, RED, UNKNOWN, END]]
    assert [row.is_truncated for row in rows] == [False] * 3


def test_a_long_text_is_cut_and_said_to_be() -> None:
    (row,) = tokenizer(text_spec(), longest=4).rows(["red green red"])
    assert (list(row.ids), row.is_truncated) == ([START, RED, GREEN, END], True)


def test_where_nothing_is_cut_a_long_text_is_refused() -> None:
    exact = tokenizer(text_spec(text=TextCard(tokenizer=tokenizer_json(), is_truncated=False)), longest=4)
    assert len(exact.rows(["red green"])[0].ids) == 4
    with pytest.raises(InvalidInput, match="text 1 has 5 tokens, at most 4 are allowed"):
        exact.rows(["red", "red green red"])


def test_a_text_without_tokens_is_refused() -> None:
    bare = tokenizer(text_spec(text=TextCard(tokenizer=tokenizer_json(has_specials=False))))
    with pytest.raises(InvalidInput, match="text 1 has no token"):
        bare.rows(["red", "  "])


@pytest.mark.parametrize(
    ("max_tokens", "longest", "truncation", "got"),
    [(None, 8, 128, 8), (6, 8, 128, 6), (6, None, None, 6), (None, None, 16, 16)],
)
def test_how_long_a_row_may_be(max_tokens: int | None, longest: int | None, truncation: int | None, got: int) -> None:
    card = TextCard(tokenizer=tokenizer_json(truncation=truncation), max_tokens=max_tokens)
    assert tokenizer(text_spec(text=card), longest).max_tokens == got


@pytest.mark.parametrize(
    ("card", "longest", "says"),
    [
        (TextCard(), 8, r"needs a tokenizer; put its tokenizer\.json"),
        (TextCard(tokenizer=b"{}"), 8, "tokenizer file cannot be read"),
        (TextCard(tokenizer=tokenizer_json(), max_tokens=9), 8, r"max_tokens = 9, but its longest row has 8"),
        (TextCard(tokenizer=tokenizer_json(), max_tokens=2), 8, "at most 2 tokens, of which 2 are special ones"),
        (TextCard(tokenizer=tokenizer_json(), is_truncated=False), 1, "at most 1 tokens, of which 2 are special ones"),
        (TextCard(tokenizer=tokenizer_json()), None, "nothing says how long a row may be"),
        (
            TextCard(tokenizer=tokenizer_json(pad_id=3)),
            8,
            r"pads 'input_ids' with 3, its card with 0; write \[padding\]",
        ),
    ],
)
def test_cards_that_do_not_fit(card: TextCard, longest: int | None, says: str) -> None:
    with pytest.raises(ModelLoadFailed, match=says):
        tokenizer(text_spec(text=card), longest)


def test_a_tokenizer_pads_as_the_card_says() -> None:
    card = TextCard(tokenizer=tokenizer_json(pad_id=3))
    assert tokenizer(text_spec(text=card, pads={"input_ids": 3})).rows(["red"])[0].ids == [START, RED, END]


def test_without_the_library_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ModelLoadFailed, match=r"pip install 'inferlane\[text\]'"):
        tokenizer(text_spec())


@pytest.mark.parametrize("dtype", [DType.INT64, DType.INT32])
def test_rows_become_the_inputs_that_the_model_has(dtype: DType) -> None:
    names = ("attention_mask", "token_type_ids", "input_ids")
    inputs = token_inputs(text_spec(inputs=names, dtype=dtype, pads={"input_ids": 9, "token_type_ids": 5}))
    rows = [TokenRow([1, 4, 2], [0, 0, 1], False), TokenRow([1, 2], [0, 0], False)]
    mask, types, ids = inputs.arrays(rows, 4)
    assert {array.dtype for array in (mask, types, ids)} == {dtype.numpy}
    np.testing.assert_array_equal(mask, [[1, 1, 1, 0], [1, 1, 0, 0]])
    np.testing.assert_array_equal(types, [[0, 0, 1, 5], [0, 0, 5, 5]])
    np.testing.assert_array_equal(ids, [[1, 4, 2, 9], [1, 2, 9, 9]])
    assert not ids.flags.writeable


@pytest.mark.parametrize(
    "properties",
    [
        {"inputs": ("attention_mask",)},
        {"inputs": ("input_ids", "pixel_values")},
        {"dtype": DType.FP32},
        {"inputs": ("input_ids", "attention_mask"), "pads": {"attention_mask": 1}},
    ],
)
def test_models_that_take_no_tokens(properties: dict[str, object]) -> None:
    with pytest.raises(ModelLoadFailed, match=r"needs the input 'input_ids'|must be 0"):
        token_inputs(text_spec(**properties))  # type: ignore[arg-type]
