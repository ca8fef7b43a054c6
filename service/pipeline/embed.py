"""Task `embed`: texts in, one vector per text out.

The texts of a request whose rows round up to the same padded length go together, as one call per full batch: among them
nothing is padded beyond their bucket, and a call costs the queue once however many rows it has. Rows of different
lengths go apart, so that the queue joins each with what other clients sent of its length; where running them together
is cheaper all the same, the policy lifts the shorter ones, for it knows what a batch costs and this task does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.buckets import Form
from service.cards import Pooling
from service.errors import ExecutionFailed, ModelLoadFailed
from service.models import ModelSpec
from service.pipeline.needs import SCORE_DTYPES, dtypes_text, tensors_text
from service.pipeline.options import check_names
from service.pipeline.steps import Call, Outputs, Step, Steps
from service.pipeline.text_media import read_texts
from service.pipeline.tokenize import TextTokenizer, TokenInputs, TokenRow, create_tokenizer, token_inputs
from service.tensors import HostArray, TensorSpec

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class VectorOutput:
    """The output that vectors are made of.

    Attributes:
        index: into `ModelSpec.outputs`.
        is_per_token: whether it is [rows, sequence, size] rather than [rows, size].
        pooling: how the vectors of tokens become one.
        is_normalized: whether vectors get length 1.
    """

    index: int
    is_per_token: bool
    pooling: Pooling
    is_normalized: bool

    def vectors(self, host: HostArray, lengths: Sequence[int]) -> Vectors:
        """FP32[rows, size], C-contiguous, of an output of so many rows.

        Args:
            host: FP32, FP16 or FP64, [rows, size] or [rows, at least the longest length, size].
            lengths: tokens of each row; what stands behind them is padding and is not looked at.
        """
        values = host.astype(np.float32)
        if self.is_per_token:
            values = pooled(values, lengths, self.pooling)
        return normalized(values) if self.is_normalized else values


@dataclass(frozen=True, slots=True, eq=False)
class EmbedTask:
    """`/predict` of a model that embeds texts. Immutable, so all threads share it."""

    spec: ModelSpec
    tokenizer: TextTokenizer
    inputs: TokenInputs
    output: VectorOutput

    def check_options(self, options: Mapping[str, str]) -> None:
        """Accepts none.

        Raises:
            InvalidInput: there is one.
        """
        check_names(options, "embed", ())

    def steps(self, body: bytes, content_type: str, options: Mapping[str, str]) -> Steps:
        """Tokens, in calls by their padded length; then the vectors in the order of the texts."""
        rows = self.tokenizer.rows(read_texts(body, content_type))
        groups = list(self._groups(rows))
        calls = tuple(self._call([rows[index] for index in group]) for group in groups)
        outputs = yield Step(calls)
        vectors: list[Vectors | None] = [None] * len(rows)
        for group, call, answered in zip(groups, calls, outputs, strict=True):
            found = self._vectors(call, answered, [rows[index] for index in group])
            for index, vector in zip(group, found, strict=True):
                vectors[index] = vector
        return {
            "model_name": self.spec.name,
            "model_version": self.spec.version,
            "results": [
                {"embedding": vector, "tokens": len(row.ids), "truncated": row.is_truncated}
                for row, vector in zip(rows, vectors, strict=True)
            ],
        }

    def _groups(self, rows: Sequence[TokenRow]) -> Iterator[list[int]]:
        """Indices of rows that go together, at most a batch of them."""
        by_length: dict[int, list[int]] = {}
        for index, row in enumerate(rows):
            by_length.setdefault(self._padded_length(len(row.ids)), []).append(index)
        for indices in by_length.values():
            for first in range(0, len(indices), self.spec.max_batch_size):
                yield indices[first : first + self.spec.max_batch_size]

    def _padded_length(self, length: int) -> int:
        if not self.spec.buckets.dim_names:
            return self.tokenizer.max_tokens
        padded = self.spec.buckets.padded_dims((length,))
        assert padded is not None, "the tokenizer's longest row fits a bucket"
        return padded[0]

    def _call(self, rows: Sequence[TokenRow]) -> Call:
        fixed = self.spec.inputs[0].dims[1]
        length = fixed if isinstance(fixed, int) else max(len(row.ids) for row in rows)
        dims = () if isinstance(fixed, int) else (length,)
        if self.spec.serves_media(len(rows), dims):
            inputs = (*self.inputs.arrays(rows, length), self.inputs.counted(rows, length))
            return Call(inputs, len(rows), dims, form=Form.MEDIA)
        return Call(self.inputs.arrays(rows, length), len(rows), dims, outputs=(self.output.index,))

    def _vectors(self, call: Call, outputs: Outputs, rows: Sequence[TokenRow]) -> Vectors:
        vectors = outputs[0].astype(np.float32)
        if call.form is Form.TENSORS:
            vectors = self.output.vectors(outputs[0], [len(row.ids) for row in rows])
        if not np.isfinite(vectors).all():
            raise ExecutionFailed(
                f"model '{self.spec.name}' answered with vectors that are not numbers (NaN or infinite); "
                "check its precision"
            )
        return vectors


def pooled(tokens: Vectors, lengths: Sequence[int], pooling: Pooling) -> Vectors:
    """One vector per row: the mean of its first `lengths[row]` tokens, or its first token.

    Args:
        tokens: FP32[rows, sequence, size].
        lengths: of each row, from 1 to `sequence`.
        pooling: which.

    Returns:
        vectors: FP32[rows, size].
    """
    if pooling is Pooling.FIRST:
        return np.ascontiguousarray(tokens[:, 0])
    return np.stack([row[:length].mean(axis=0) for row, length in zip(tokens, lengths, strict=True)])


def normalized(vectors: Vectors) -> Vectors:
    """FP32[rows, size], every row scaled to Euclidean length 1; a row of zeros stays."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Vectors = vectors / np.where(norms > 0, norms, np.float32(1))
    return scaled


def create_embed_task(spec: ModelSpec, *, max_image_pixels: int) -> EmbedTask:
    """The task for a model, after checking that it takes tokens and gives vectors.

    Raises:
        ModelLoadFailed: the inputs, outputs or the tokenizer do not fit.
    """
    inputs = token_inputs(spec)
    sequence = spec.inputs[0].dims[1]
    longest: int | None = sequence if isinstance(sequence, int) else None
    if not isinstance(sequence, int):
        sizes = spec.buckets.dim_sizes[0]
        longest = sizes[-1] if sizes else None
    return EmbedTask(spec, create_tokenizer(spec, inputs, longest), inputs, vector_output(spec))


def vector_output(spec: ModelSpec) -> VectorOutput:
    """The output that a model's card means.

    Raises:
        ModelLoadFailed: the model has no such output, or several and the card says nothing, or it holds no vectors.
    """
    card = spec.card.pooling
    names = [tensor.name for tensor in spec.outputs]
    if card.output is not None and card.output not in names:
        raise ModelLoadFailed(f"model '{spec.name}': [pooling] output = '{card.output}', the model has {sorted(names)}")
    if card.output is None and len(names) > 1:
        raise ModelLoadFailed(
            f"model '{spec.name}' has the outputs {names}; say which holds the vectors with [pooling] output"
        )
    index = names.index(card.output) if card.output is not None else 0
    tensor = spec.outputs[index]
    if not _is_vectors(tensor):
        raise ModelLoadFailed(
            f"model '{spec.name}': task 'embed' needs an output of {dtypes_text(SCORE_DTYPES)} and "
            f"shape [batch, size] or [batch, sequence, size]; the model has {tensors_text([tensor])}"
        )
    is_per_token = len(tensor.dims) == 3
    is_normalized = is_per_token if card.is_normalized is None else card.is_normalized
    return VectorOutput(index, is_per_token, card.mode, is_normalized)


def _is_vectors(tensor: TensorSpec) -> bool:
    return tensor.dtype in SCORE_DTYPES and len(tensor.dims) in {2, 3}
