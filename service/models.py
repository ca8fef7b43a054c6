"""What a model version is to the server: its tensors, buckets and limits, derived from card and model."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from service.buckets import Bucket, BucketTable, DimSizes, Form, powers_of_two
from service.cards import ModelCard, ShapeRange
from service.errors import CardError
from service.tensors import BATCH_DIM, HostArray, TensorSpec, element_count

ONNX_PLATFORM = "onnxruntime_onnx"
TENSORRT_PLATFORM = "tensorrt_plan"
"""Triton's words for what runs a model."""

DEFAULT_MAX_BATCH_SIZE = 32
MAX_BUCKETS = 1024
MAX_BUCKET_BYTES = 4 << 30


MediaExample: TypeAlias = Callable[[int, DimSizes], tuple[tuple[HostArray, ...], ...]]
"""Makes the inputs of as many requests as are needed, together so many rows, for a bucket of such dims."""


@dataclass(frozen=True, slots=True)
class MediaForm:
    """The form `Form.MEDIA` of a model whose task has kernels on its device.

    Attributes:
        inputs: what a request brings. At least one has the leading dimension `BATCH_DIM`, which counts its rows; where
            some have it not, such as the pixels of an image, every request is one row.
        outputs: what it gets, all with rows.
        batch_sizes: the padded batch sizes that it is served in, some of the model's own; ascending, not empty.
        max_row_bytes: most bytes of one row's inputs. What is larger goes the way of tensors.
        example: makes valid inputs for runs before the first request: as large as they usually are, each row different
            from the others, and the same every time. Any thread.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batch_sizes: tuple[int, ...]
    max_row_bytes: int
    example: MediaExample

    @property
    def max_batch_bytes(self) -> int:
        """Most bytes of the inputs of its largest batch."""
        return self.batch_sizes[-1] * self.max_row_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model version as the server serves it: its tensors, buckets and limits. Shared by all threads.

    Attributes:
        name: the model's name.
        version: the version's number, as text.
        platform: `ONNX_PLATFORM`, `TENSORRT_PLATFORM`, or the repository's word for a composed model.
        inputs: in the model's order; the leading dimension is `BATCH_DIM` where `has_batch_dim`.
        outputs: likewise.
        has_batch_dim: whether the leading dimension counts rows that may be joined.
        buckets: the padded sizes.
        card: the card it came from.
        media: how its task's kernels take and give; None where the task runs on the host, or there is none.
    """

    name: str
    version: str
    platform: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    has_batch_dim: bool
    buckets: BucketTable
    card: ModelCard
    media: MediaForm | None = None

    @property
    def max_batch_size(self) -> int:
        """Rows of the largest batch, 0 without a batch dimension (Triton's convention)."""
        return self.buckets.max_size if self.has_batch_dim else 0

    def serves_media(self, rows: int, dims: DimSizes) -> bool:
        """Whether a request of `rows` rows of `dims`, which fits its buckets, may come in the form of media."""
        return self.media is not None and self.buckets.home(rows, dims, Form.MEDIA) is not None

    def with_media(self, media: MediaForm) -> ModelSpec:
        """The same model with the form of media too; it has no dimension that is served at its exact size."""
        assert not self.buckets.is_exact, "every bucket of media is warmed and captured before ready"
        assert set(media.batch_sizes) <= set(self.buckets.batch_sizes), "media run where tensors run"
        return replace(self, media=media, buckets=replace(self.buckets, media_sizes=media.batch_sizes))

    def without(self, unserved: Collection[Bucket]) -> ModelSpec:
        """The same model, less these buckets; without the form of media where none of its buckets is left."""
        if not unserved:
            return self
        buckets = self.buckets.without(unserved)
        has_media = any(bucket.form is Form.MEDIA for bucket in buckets.known())
        return replace(self, buckets=buckets, media=self.media if has_media else None)

    def dim_sizes(self, dims: DimSizes, rows: int) -> dict[str, int]:
        """Named sizes of the batch and of every dynamic dimension, for `TensorSpec.resolve`."""
        return {BATCH_DIM: rows, **dict(zip(self.buckets.dim_names, dims, strict=True))}


def build_spec(
    card: ModelCard,
    *,
    version: str,
    platform: str,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
) -> ModelSpec:
    """Holds a card against the model's own tensors and derives buckets.

    Args:
        card: the parsed card.
        version: the version's number.
        platform: Triton's word for the backend.
        inputs: as the backend reads them from the model; dynamic dimensions named, the leading one not yet `BATCH_DIM`.
        outputs: likewise.

    Raises:
        CardError: the card names a tensor, dimension or size that the model does not have.
    """
    _check_names(card, inputs, outputs)
    inputs = tuple(_renamed(card, tensor) for tensor in inputs)
    outputs = tuple(_renamed(card, tensor) for tensor in outputs)
    has_batch_dim = _has_batch_dim(card, (*inputs, *outputs))
    if has_batch_dim:
        inputs = tuple(_with_batch_dim(tensor) for tensor in inputs)
        outputs = tuple(_with_batch_dim(tensor) for tensor in outputs)
    return ModelSpec(
        name=card.name,
        version=version,
        platform=platform,
        inputs=inputs,
        outputs=outputs,
        has_batch_dim=has_batch_dim,
        buckets=_bucket_table(card, inputs, has_batch_dim=has_batch_dim),
        card=card,
    )


def _check_names(card: ModelCard, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> None:
    names = {tensor.name for tensor in (*inputs, *outputs)}
    for name in card.dims:
        if name not in names:
            raise CardError(f"model '{card.name}': the card names tensor '{name}', the model has {sorted(names)}")
    input_names = {tensor.name for tensor in inputs}
    for name in (*card.pad_values, *(name for profile in card.profiles for name in profile)):
        if name not in input_names:
            raise CardError(f"model '{card.name}': the card names input '{name}', the model has {sorted(input_names)}")


def _renamed(card: ModelCard, tensor: TensorSpec) -> TensorSpec:
    dims = card.dims.get(tensor.name)
    if dims is None:
        return tensor
    agrees = len(dims) == len(tensor.dims) and all(
        isinstance(own, str) or own == given for own, given in zip(tensor.dims, dims, strict=True)
    )
    if not agrees:
        raise CardError(
            f"model '{card.name}': [dims] {tensor.name} = {list(dims)} contradicts the model, "
            f"which has {list(tensor.dims)}; give the same rank, and the same number where the model has one"
        )
    return TensorSpec(tensor.name, tensor.dtype, dims)


def _has_batch_dim(card: ModelCard, tensors: tuple[TensorSpec, ...]) -> bool:
    if card.batching.max_batch_size == 0:
        return False
    fixed = [t.name for t in tensors if not t.dims or isinstance(t.dims[0], int)]
    if fixed and card.batching.max_batch_size is not None:
        raise CardError(
            f"model '{card.name}': max_batch_size = {card.batching.max_batch_size}, but the leading dimension of "
            f"{fixed} is fixed; set max_batch_size = 0, or export the model with a dynamic batch"
        )
    return not fixed


def _with_batch_dim(tensor: TensorSpec) -> TensorSpec:
    return TensorSpec(tensor.name, tensor.dtype, (BATCH_DIM, *tensor.dims[1:]))


def _bucket_table(card: ModelCard, inputs: tuple[TensorSpec, ...], *, has_batch_dim: bool) -> BucketTable:
    names = tuple(
        dict.fromkeys(
            dim
            for tensor in inputs
            for dim in tensor.dims
            if isinstance(dim, str) and not (has_batch_dim and dim == BATCH_DIM)
        )
    )
    for name in card.bucket_sizes:
        if name not in names and not (name == BATCH_DIM and has_batch_dim):
            raise CardError(
                f"model '{card.name}': [buckets] names dimension '{name}', the model's dynamic dimensions are "
                f"{[*([BATCH_DIM] if has_batch_dim else []), *names]}; [dims] can rename them"
            )
    table = BucketTable(
        batch_sizes=_batch_sizes(card, inputs) if has_batch_dim else (1,),
        dim_names=names,
        dim_sizes=tuple(card.bucket_sizes.get(name) or _profile_sizes(card, inputs, name) for name in names),
    )
    _check_affordable(card, inputs, table)
    return table


def _check_affordable(card: ModelCard, inputs: tuple[TensorSpec, ...], table: BucketTable) -> None:
    """Every bucket is run before the model is ready, in memory of its own size: both must end."""
    count = math.prod(len(sizes) for sizes in (table.batch_sizes, *table.dim_sizes) if sizes is not None)
    if count > MAX_BUCKETS:
        raise CardError(
            f"model '{card.name}': [buckets] make {count} combinations, each of which is warmed at start-up; at most "
            f"{MAX_BUCKETS} are allowed, so name fewer sizes"
        )
    largest = {name: sizes[-1] if sizes else 1 for name, sizes in zip(table.dim_names, table.dim_sizes, strict=True)}
    largest.setdefault(BATCH_DIM, table.max_size)
    for tensor in inputs:
        nbytes = element_count(tensor.resolve(largest)) * max(1, tensor.dtype.itemsize)
        if nbytes > MAX_BUCKET_BYTES:
            raise CardError(
                f"model '{card.name}': input '{tensor.name}' has {nbytes} bytes in the largest bucket, at most "
                f"{MAX_BUCKET_BYTES} are allowed; name smaller sizes in [buckets], or a smaller max_batch_size"
            )


def _batch_sizes(card: ModelCard, inputs: tuple[TensorSpec, ...]) -> tuple[int, ...]:
    limit = card.batching.max_batch_size
    sizes = card.bucket_sizes.get(BATCH_DIM)
    if sizes is None:
        from_profiles = _profile_sizes(card, inputs, BATCH_DIM)
        return powers_of_two(1, limit or (from_profiles[-1] if from_profiles else DEFAULT_MAX_BATCH_SIZE))
    if limit is not None and sizes[-1] != limit:
        raise CardError(
            f"model '{card.name}': [buckets] batch ends at {sizes[-1]}, but max_batch_size = {limit}; make them agree"
        )
    return sizes


def _profile_sizes(card: ModelCard, inputs: tuple[TensorSpec, ...], name: str) -> tuple[int, ...] | None:
    """Sizes of dimension `name` that the profiles allow, or None if no profile speaks of it."""
    ranges = [
        (shapes.min[axis], shapes.opt[axis], shapes.max[axis])
        for tensor, shapes in _profiled(card, inputs)
        for axis, dim in enumerate(tensor.dims)
        if dim == name
    ]
    if not ranges:
        return None
    low = min(least for least, _, _ in ranges)
    sizes = {size for _, best, most in ranges for size in (best, most)}
    return tuple(sorted({*powers_of_two(low, max(sizes)), *sizes}))


def _profiled(card: ModelCard, inputs: tuple[TensorSpec, ...]) -> Iterator[tuple[TensorSpec, ShapeRange]]:
    """Every input with what each profile allows it, where that speaks of it. Raises CardError for other ranks."""
    for profile, tensor in itertools.product(card.profiles, inputs):
        shapes = profile.get(tensor.name)
        if shapes is None:
            continue
        if not len(shapes.min) == len(shapes.opt) == len(shapes.max) == len(tensor.dims):
            raise CardError(
                f"model '{card.name}': a profile gives '{tensor.name}' {len(shapes.opt)} dimensions, "
                f"the model has {len(tensor.dims)}: {tensor.wire_shape}"
            )
        yield tensor, shapes
