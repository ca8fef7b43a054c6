"""A tokenizer of a handful of words, and specifications of models that take its tokens."""

from __future__ import annotations

import tokenizers

from service.cards import ModelCard, PoolingCard, TextCard
from service.models import ModelSpec, build_spec
from service.tensors import Dim, DType, TensorSpec

WORDS = ("<pad>", "<s>", "</s>", "<unk>", "red", "green", "blue", "light")
PAD, START, END, UNKNOWN, RED, GREEN, BLUE, LIGHT = range(len(WORDS))


def tokenizer_json(*, pad_id: int | None = None, truncation: int | None = None, has_specials: bool = True) -> bytes:
    """`<s> words </s>` by white space, or the words alone."""
    words = {word: index for index, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    if has_specials:
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", START), ("</s>", END)]
        )
    if pad_id is not None:
        tokenizer.enable_padding(pad_id=pad_id, pad_token="<pad>", length=128)
    if truncation is not None:
        tokenizer.enable_truncation(truncation)
    return tokenizer.to_str().encode()


def text_spec(
    *,
    inputs: tuple[str, ...] = ("input_ids", "attention_mask"),
    dtype: DType = DType.INT64,
    sequence: Dim = "sequence",
    output: TensorSpec | None = None,
    text: TextCard | None = None,
    pooling: PoolingCard | None = None,
    sizes: tuple[int, ...] | None = (4, 8),
    pads: dict[str, float] | None = None,
    more_outputs: tuple[TensorSpec, ...] = (),
) -> ModelSpec:
    """A model of tokens with batches of up to 4 rows; its output has a vector of 2 per token unless told otherwise."""
    bucket_sizes: dict[str, tuple[int, ...]] = {"batch": (1, 2, 4)}
    if sizes is not None and isinstance(sequence, str):
        bucket_sizes[sequence] = sizes
    card = ModelCard(
        name="words",
        task="embed",
        text=TextCard(tokenizer=tokenizer_json()) if text is None else text,
        pooling=pooling or PoolingCard(),
        bucket_sizes=bucket_sizes,
        pad_values=pads or {},
    )
    return build_spec(
        card,
        version="3",
        platform="onnxruntime_onnx",
        inputs=tuple(TensorSpec(name, dtype, ("n", sequence)) for name in inputs),
        outputs=(output or TensorSpec("hidden", DType.FP32, ("n", sequence, 2)), *more_outputs),
    )
