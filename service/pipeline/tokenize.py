"""Texts to tokens, and tokens to the rows of a model's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from service.errors import InvalidInput, ModelLoadFailed
from service.models import ModelSpec
from service.pipeline.needs import tensors_text
from service.tensors import DType, HostArray

INPUT_IDS = "input_ids"
ATTENTION_MASK = "attention_mask"
TOKEN_TYPE_IDS = "token_type_ids"

COUNTED = "counted"
"""Of the form of media, beside the model's own inputs: which tokens the text has, INT32."""

_NAMES = (INPUT_IDS, ATTENTION_MASK, TOKEN_TYPE_IDS)
_DTYPES = (DType.INT64, DType.INT32)


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One text as tokens.

    Attributes:
        ids: of the tokens, special ones included; at least one.
        type_ids: segment of each token.
        is_truncated: whether the text went on.
    """

    ids: Sequence[int]
    type_ids: Sequence[int]
    is_truncated: bool


@dataclass(frozen=True, slots=True, eq=False)
class TextTokenizer:
    """A model's tokenizer. Its library's object is set up once and only read afterwards, so all threads share it.

    Attributes:
        native: `tokenizers.Tokenizer`, truncating as the card says, not padding.
        max_tokens: tokens of the longest row.
        is_truncating: whether longer texts are cut, rather than refused.
    """

    native: Any
    max_tokens: int
    is_truncating: bool

    def rows(self, texts: Sequence[str]) -> list[TokenRow]:
        """Tokens of every text; releases the interpreter lock for most of the time.

        Raises:
            InvalidInput: a text has no token, or too many where nothing is cut.
        """
        rows = []
        for index, encoding in enumerate(self.native.encode_batch(list(texts))):
            if not encoding.ids:
                raise InvalidInput(f"text {index} has no token: the tokenizer knows nothing of {texts[index][:40]!r}")
            if len(encoding.ids) > self.max_tokens:
                raise InvalidInput(
                    f"text {index} has {len(encoding.ids)} tokens, at most {self.max_tokens} are allowed; shorten it, "
                    "or let the model's owner set [text] truncation = true"
                )
            rows.append(TokenRow(encoding.ids, encoding.type_ids, bool(encoding.overflowing)))
        return rows


@dataclass(frozen=True, slots=True)
class TokenInputs:
    """A model's inputs of tokens.

    Attributes:
        names: in the model's order.
        dtypes: of each, INT64 or INT32.
        pads: value of padding, of each.
    """

    names: tuple[str, ...]
    dtypes: tuple[DType, ...]
    pads: tuple[int, ...]

    def arrays(self, rows: Sequence[TokenRow], length: int) -> tuple[HostArray, ...]:
        """The rows as the model takes them: integers[rows, length] per input, filled up at the end."""
        arrays = []
        for name, dtype, pad in zip(self.names, self.dtypes, self.pads, strict=True):
            host = np.full((len(rows), length), pad, dtype.numpy)
            for target, row in zip(host, rows, strict=True):
                target[: len(row.ids)] = _values(name, row)
            host.flags.writeable = False
            arrays.append(host)
        return tuple(arrays)

    def counted(self, rows: Sequence[TokenRow], length: int) -> HostArray:
        """INT32[rows, length]: 1 for every token of a row, then 0."""
        lengths = np.array([[len(row.ids)] for row in rows])
        host = (np.arange(length) < lengths).astype(np.int32)
        host.flags.writeable = False
        return host


def _values(name: str, row: TokenRow) -> npt.ArrayLike:
    if name == ATTENTION_MASK:
        return 1
    return row.ids if name == INPUT_IDS else row.type_ids


def token_inputs(spec: ModelSpec) -> TokenInputs:
    """The inputs of a model that takes tokens: `input_ids`, and those of the other two that it has.

    Raises:
        ModelLoadFailed: it has others, or of other types or shapes.
    """
    fits = [
        tensor.name in _NAMES
        and tensor.dtype in _DTYPES
        and len(tensor.dims) == 2
        and tensor.dims[1:] == spec.inputs[0].dims[1:]
        for tensor in spec.inputs
    ]
    names = tuple(tensor.name for tensor in spec.inputs)
    if not all(fits) or INPUT_IDS not in names or not spec.has_batch_dim:
        found = tensors_text(spec.inputs)
        raise ModelLoadFailed(
            f"model '{spec.name}': task '{spec.card.task}' needs the input '{INPUT_IDS}', and allows "
            f"'{ATTENTION_MASK}' and '{TOKEN_TYPE_IDS}', of INT64 or INT32 and one shape [batch, sequence]; the model "
            f"has {found}. [dims] can give its dimensions one name"
        )
    pads = tuple(int(spec.card.pad_values.get(name, 0)) for name in names)
    if ATTENTION_MASK in names and pads[names.index(ATTENTION_MASK)] != 0:
        raise ModelLoadFailed(
            f"model '{spec.name}': [padding] {ATTENTION_MASK} must be 0: padding is nothing to attend"
        )
    return TokenInputs(names, tuple(tensor.dtype for tensor in spec.inputs), pads)


def create_tokenizer(spec: ModelSpec, inputs: TokenInputs, longest: int | None) -> TextTokenizer:
    """The tokenizer that a model's card names.

    Args:
        spec: the model.
        inputs: its inputs.
        longest: tokens of the longest row that the model takes, None if its card names no sizes.

    Raises:
        ModelLoadFailed: `tokenizers` is not installed, or the file, the card and the model do not fit.
    """
    card = spec.card.text
    if not card.tokenizer:
        raise ModelLoadFailed(
            f"model '{spec.name}': task '{spec.card.task}' needs a tokenizer; put its tokenizer.json into the model's "
            'folder and write [text] tokenizer = "tokenizer.json"'
        )
    try:
        import tokenizers  # noqa: PLC0415 - only models of texts need it
    except ImportError as error:
        raise ModelLoadFailed(
            f"model '{spec.name}' needs the library tokenizers: pip install 'inferlane[text]' ({error})"
        ) from error
    try:
        native = tokenizers.Tokenizer.from_buffer(card.tokenizer)
    except Exception as error:  # the library raises nothing more special
        raise ModelLoadFailed(f"model '{spec.name}': its tokenizer file cannot be read: {error}") from error
    max_tokens = _max_tokens(spec, native, longest)
    _check_room(spec, native, max_tokens)
    _check_padding(spec, native, inputs)
    native.no_padding()
    native.no_truncation()
    if card.is_truncated:
        native.enable_truncation(max_tokens)
    return TextTokenizer(native, max_tokens, card.is_truncated)


def _max_tokens(spec: ModelSpec, native: Any, longest: int | None) -> int:
    wanted = spec.card.text.max_tokens
    if wanted is not None and longest is not None and wanted > longest:
        raise ModelLoadFailed(
            f"model '{spec.name}': [text] max_tokens = {wanted}, but its longest row has {longest}; lower it, or name "
            "a larger size in [buckets]"
        )
    if wanted is not None:
        return wanted
    if longest is not None:
        return longest
    if native.truncation is not None:
        return int(native.truncation["max_length"])
    raise ModelLoadFailed(
        f"model '{spec.name}': nothing says how long a row may be; write [text] max_tokens = 128, or name the sizes of "
        "its sequence in [buckets]"
    )


def _check_room(spec: ModelSpec, native: Any, max_tokens: int) -> None:
    """The library would cut nothing at all where its special tokens alone fill a row."""
    specials = native.num_special_tokens_to_add(is_pair=False)
    if specials >= max_tokens:
        raise ModelLoadFailed(
            f"model '{spec.name}': a row has at most {max_tokens} tokens, of which {specials} are special ones, so "
            "there is no room for text; raise [text] max_tokens, or name a larger size in [buckets]"
        )


def _check_padding(spec: ModelSpec, native: Any, inputs: TokenInputs) -> None:
    """What the tokenizer pads with and what the card pads with must be one, for lanes pad by the card."""
    if native.padding is None:
        return
    own = {INPUT_IDS: int(native.padding["pad_id"]), TOKEN_TYPE_IDS: int(native.padding["pad_type_id"])}
    for name, pad in zip(inputs.names, inputs.pads, strict=True):
        if own.get(name, pad) != pad:
            raise ModelLoadFailed(
                f"model '{spec.name}': its tokenizer pads '{name}' with {own[name]}, its card with {pad}; write "
                f"[padding] {name} = {own[name]}"
            )
