"""Profiles and buckets: which sizes an engine allows, and which of its profiles runs a bucket. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from service.buckets import Bucket, powers_of_two
from service.cards import ModelCard, ShapeRange
from service.errors import ModelLoadFailed
from service.models import ModelSpec
from service.tensors import BATCH_DIM, Dim, TensorSpec

Profile: TypeAlias = Mapping[str, ShapeRange]
"""One optimization profile: the shapes that it allows, by input."""

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BucketShapes:
    """One bucket as an engine runs it.

    Attributes:
        bucket: the bucket.
        profile: index of the profile that runs it.
        inputs: concrete shapes, in the order of `ModelSpec.inputs`.
        outputs: likewise of `ModelSpec.outputs`; an extent below 0 depends on the data.
    """

    bucket: Bucket
    profile: int
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]

    @property
    def buffered_outputs(self) -> tuple[Shape, ...]:
        """The outputs as they lie in a buffer set: those whose sizes depend on the data take no room there."""
        return tuple((0,) if is_data_dependent(shape) else shape for shape in self.outputs)


def is_data_dependent(shape: Shape) -> bool:
    """Whether TensorRT knows a shape only after it has run."""
    return any(extent < 0 for extent in shape)


def unpinned(
    card: ModelCard, tensors: Sequence[TensorSpec], onnx_dims: Mapping[str, tuple[Dim, ...]]
) -> tuple[TensorSpec, ...]:
    """The tensors, with the names of dimensions that the profiles pin to one size.

    TensorRT makes a dimension fixed where every profile has one size for it. To the card it is a dimension like others,
    with a bucket of that size: so it keeps its name where the card has [buckets] or [dims] for it, and a leading one,
    which may count rows, wherever the ONNX model has a name for it.

    Args:
        card: the model's card.
        tensors: the engine's.
        onnx_dims: dimensions by tensor as the ONNX model has them; empty where they are not known.
    """

    def named(tensor: TensorSpec) -> TensorSpec:
        own = card.dims.get(tensor.name, ())
        names = own or onnx_dims.get(tensor.name, ())
        if len(names) != len(tensor.dims):
            return tensor
        dims = (
            name if isinstance(name, str) and (axis == 0 or bool(own) or name in card.bucket_sizes) else dim
            for axis, (dim, name) in enumerate(zip(tensor.dims, names, strict=True))
        )
        return replace(tensor, dims=tuple(dims))

    return tuple(map(named, tensors))


def card_for_engine(
    card: ModelCard, tensors: Sequence[TensorSpec], inputs: Sequence[TensorSpec], profiles: Sequence[Profile]
) -> ModelCard:
    """The card as `build_spec` needs it: with the engine's own profiles, and batch sizes that they allow.

    The card's profiles are what a builder is asked for; what the engine has decides. Batch sizes that the card gives
    are kept. Derived ones are the powers of two and each profile's optimum and maximum, where a profile allows them.

    Args:
        card: as its owner wrote it.
        tensors: all of the engine's, their leading dimensions not yet `BATCH_DIM`.
        inputs: the inputs among them.
        profiles: the engine's.
    """
    card = replace(card, profiles=tuple(profiles))
    leading = [card.dims.get(tensor.name, tensor.dims)[:1] for tensor in tensors]
    is_batched = bool(inputs) and all(dims and isinstance(dims[0], str) for dims in leading)
    if BATCH_DIM in card.bucket_sizes or card.batching.max_batch_size == 0 or not is_batched:
        return card
    sizes = _batch_sizes(card.batching.max_batch_size, [profile[inputs[0].name] for profile in profiles])
    return replace(card, bucket_sizes=MappingProxyType({**card.bucket_sizes, BATCH_DIM: sizes}))


def _batch_sizes(limit: int | None, ranges: Sequence[ShapeRange]) -> tuple[int, ...]:
    """Ascending; they end with `limit` where the card has one, and it is held against the profiles like the others."""
    lowest, highest = min(shapes.min[0] for shapes in ranges), max(shapes.max[0] for shapes in ranges)
    sizes = {*powers_of_two(lowest, highest)}.union(*((shapes.opt[0], shapes.max[0]) for shapes in ranges))
    allowed = {size for size in sizes if any(shapes.min[0] <= size <= shapes.max[0] for shapes in ranges)}
    if limit is not None:
        allowed = {size for size in allowed if size < limit} | {limit}
    return tuple(sorted(allowed))


def choose_profile(profiles: Sequence[Profile], shapes: Mapping[str, Shape]) -> int | None:
    """The profile whose optimum is nearest to `shapes`, or None if none allows them.

    Kernels are timed at the optimum, so nearness counts in ratios: the sum of |log(extent / optimum)|. A bucket runs in
    its own shape on whatever profile, so no other criterion differs between them; on a tie the lowest index wins.
    """
    return next(iter(fitting_profiles(profiles, shapes)), None)


def fitting_profiles(profiles: Sequence[Profile], shapes: Mapping[str, Shape]) -> tuple[int, ...]:
    """All profiles that allow `shapes`, in the order in which `choose_profile` prefers them."""
    fitting = (index for index, profile in enumerate(profiles) if _fits(profile, shapes))
    return tuple(sorted(fitting, key=lambda index: _distance(profiles[index], shapes)))


def profile_by_bucket(spec: ModelSpec, profiles: Sequence[Profile]) -> dict[Bucket, int]:
    """The profile of every known bucket, in the order of `BucketTable.known`.

    Raises:
        ModelLoadFailed: no profile allows some bucket; the message has the buckets and the profiles' ranges.
    """
    chosen: dict[Bucket, int] = {}
    outside: list[Bucket] = []
    for bucket in spec.buckets.known():
        names = [tensor.name for tensor in spec.inputs]
        profile = choose_profile(profiles, dict(zip(names, input_shapes(spec, bucket), strict=True)))
        if profile is None:
            outside.append(bucket)
        else:
            chosen[bucket] = profile
    if outside:
        raise ModelLoadFailed(
            f"model '{spec.name}': no profile of the engine allows the buckets {_labels(outside)} "
            f"({_order(spec)}); the engine has {ranges_text(profiles)}; name in [buckets] sizes that a "
            "profile covers in every combination, or add a [[profile]] to the card and build the engine again"
        )
    return chosen


def input_shapes(spec: ModelSpec, bucket: Bucket) -> tuple[Shape, ...]:
    """The padded shapes of a bucket, in the order of `ModelSpec.inputs`."""
    sizes = spec.dim_sizes(bucket.dims, bucket.padded_size)
    return tuple(tensor.resolve(sizes) for tensor in spec.inputs)


def ranges_text(profiles: Sequence[Profile]) -> str:
    """What profiles allow, such as `profile 0: x 1x3x224x224 to 8x3x224x224`."""
    return "; ".join(
        f"profile {index}: "
        + ", ".join(f"{name} {_joined(shapes.min)} to {_joined(shapes.max)}" for name, shapes in profile.items())
        for index, profile in enumerate(profiles)
    )


def _fits(profile: Profile, shapes: Mapping[str, Shape]) -> bool:
    return all(
        low <= extent <= high
        for name, shape in shapes.items()
        for low, extent, high in zip(profile[name].min, shape, profile[name].max, strict=True)
    )


def _distance(profile: Profile, shapes: Mapping[str, Shape]) -> float:
    return sum(
        abs(math.log(extent / optimum))
        for name, shape in shapes.items()
        for extent, optimum in zip(shape, profile[name].opt, strict=True)
        if extent != optimum
    )


def _labels(buckets: Iterable[Bucket]) -> str:
    labels = [bucket.label for bucket in buckets]
    return ", ".join(labels[:8]) + (f" and {len(labels) - 8} more" if len(labels) > 8 else "")


def _order(spec: ModelSpec) -> str:
    return "x".join(((BATCH_DIM,) if spec.has_batch_dim else ("1",)) + spec.buckets.dim_names)


def _joined(shape: Shape) -> str:
    return "x".join(map(str, shape))
