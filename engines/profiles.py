"""Which optimization profiles an engine is built with: the card's own, or derived from its buckets. Pure functions.

TensorRT times kernels at a profile's optimum and has them valid between its minimum and its maximum, so narrow profiles
give faster kernels, and each profile costs build time. The rule for derived ones: every dynamic dimension's sizes are
cut, from the largest down, into groups that span at most a factor of eight, and every combination of groups is a
profile whose optimum is its largest shape, the one with the most work. A group's range begins right after the next
smaller size, so together the profiles leave no size out, and a further one that catches all would only cost build time.
Where that makes more than `MAX_PROFILES`, the factor is doubled until it fits.

Profiles that the card gives stay as they are; buckets that none of them allows get one more that catches them all.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from service.buckets import BucketTable
from service.cards import ModelCard, ShapeRange
from service.errors import CardError
from service.models import TENSORRT_PLATFORM, ModelSpec, build_spec
from service.runtime.trt.profiles import Profile, card_for_engine, choose_profile, input_shapes
from service.tensors import BATCH_DIM, TensorSpec

MAX_PROFILES = 8
FIRST_SPAN = 8

Range = tuple[int, int]
"""Least and largest size of one dimension in one profile."""


def profiles_for(
    card: ModelCard,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    shape_inputs: frozenset[str] = frozenset(),
) -> tuple[Profile, ...]:
    """The profiles to build, each with a range for every input.

    Args:
        card: the model's card.
        inputs: the model's, as its ONNX file has them.
        outputs: likewise.
        shape_inputs: inputs whose values TensorRT reads on the host; their ranges in the card are of values.

    Raises:
        CardError: the card contradicts the model, or a dimension has no range.
    """
    values, card = _split_values(card, shape_inputs)
    spec = build_spec(card, version="", platform=TENSORRT_PLATFORM, inputs=inputs, outputs=outputs)
    if not card.profiles:
        return _with_values(_derived(spec), values)
    given = tuple(_completed(spec, index, profile) for index, profile in enumerate(card.profiles))
    if len(given) > MAX_PROFILES:
        raise CardError(f"model '{card.name}': the card has {len(given)} profiles, at most {MAX_PROFILES} are built")
    served = card_for_engine(card, (*inputs, *outputs), inputs, given)
    spec = build_spec(served, version="", platform=TENSORRT_PLATFORM, inputs=inputs, outputs=outputs)
    return _with_values((*given, *_catching_all(spec, given)), values)


def _with_values(profiles: Sequence[Profile], values: Sequence[Mapping[str, ShapeRange]]) -> tuple[Profile, ...]:
    """The profiles with the ranges of shape inputs; those beyond the card's own have the last ranges."""
    if not values:
        return tuple(profiles)
    return tuple({**profile, **values[min(index, len(values) - 1)]} for index, profile in enumerate(profiles))


def _split_values(
    card: ModelCard, shape_inputs: frozenset[str]
) -> tuple[tuple[Mapping[str, ShapeRange], ...], ModelCard]:
    """The ranges of shape inputs by profile, and the card without them."""
    values = tuple({name: profile[name] for name in profile if name in shape_inputs} for profile in card.profiles)
    for name in sorted(shape_inputs):
        if not values or not all(name in each for each in values):
            raise CardError(
                f"model '{card.name}': TensorRT reads the values of input '{name}' on the host and needs their range: "
                f"write a [[profile]] with {name} = {{ min = [...], opt = [...], max = [...] }}, one number per element"
            )
    kept = ({name: shapes for name, shapes in profile.items() if name not in shape_inputs} for profile in card.profiles)
    return values, replace(card, profiles=tuple(profile for profile in kept if profile))


def _derived(spec: ModelSpec) -> tuple[Profile, ...]:
    table = spec.buckets
    if table.is_exact:
        raise CardError(_how_to_give_ranges(spec))
    sizes = _sizes(spec, table)
    span = FIRST_SPAN
    while True:
        cuts = {name: cut(each, span) for name, each in sizes.items()}
        combinations = list(itertools.product(*cuts.values()))
        if len(combinations) <= MAX_PROFILES:
            return tuple(_profile(spec, dict(zip(cuts, ranges, strict=True))) for ranges in combinations)
        span *= 2


def _sizes(spec: ModelSpec, table: BucketTable) -> dict[str, Sequence[int]]:
    batch = {BATCH_DIM: table.batch_sizes} if spec.has_batch_dim else {}
    return {**batch, **{name: each for name, each in zip(table.dim_names, table.dim_sizes, strict=True) if each}}


def cut(sizes: Sequence[int], span: int) -> tuple[Range, ...]:
    """Cuts ascending sizes into groups that span at most a factor of `span`; gives their ranges, without gaps between.

    >>> cut((1, 2, 4, 8, 16, 32, 64, 128), 8)
    ((1, 8), (9, 128))
    """
    ranges: list[Range] = []
    left = list(sizes)
    while left:
        high = left[-1]
        inside = [size for size in left if size * span >= high]
        left = left[: -len(inside)]
        ranges.append((left[-1] + 1 if left else inside[0], high))
    return tuple(reversed(ranges))


def _profile(spec: ModelSpec, ranges: Mapping[str, Range]) -> Profile:
    low, high = ({name: each[end] for name, each in ranges.items()} for end in (0, 1))
    return {
        tensor.name: ShapeRange(tensor.resolve(low), tensor.resolve(high), tensor.resolve(high))
        for tensor in spec.inputs
    }


def _completed(spec: ModelSpec, index: int, profile: Mapping[str, ShapeRange]) -> Profile:
    """The card's profile with the inputs that it does not name, whose dimensions the named ones tell."""
    known: dict[str, tuple[int, int, int]] = {}
    for tensor in spec.inputs:
        if tensor.name in profile:
            known.update(_named_sizes(spec, index, tensor, profile[tensor.name]))
    return {
        tensor.name: profile[tensor.name] if tensor.name in profile else _told(spec, index, tensor, known)
        for tensor in spec.inputs
    }


def _named_sizes(
    spec: ModelSpec, index: int, tensor: TensorSpec, shapes: ShapeRange
) -> Iterable[tuple[str, tuple[int, int, int]]]:
    for dim, *sizes in zip(tensor.dims, shapes.min, shapes.opt, shapes.max, strict=True):
        if isinstance(dim, str):
            yield dim, (sizes[0], sizes[1], sizes[2])
        elif sizes != [dim, dim, dim]:
            raise CardError(
                f"model '{spec.name}': profile {index} gives input '{tensor.name}' {list(shapes.min)} to "
                f"{list(shapes.max)}, the model has {tensor.wire_shape}; only dimensions of -1 may differ"
            )


def _told(spec: ModelSpec, index: int, tensor: TensorSpec, known: Mapping[str, tuple[int, int, int]]) -> ShapeRange:
    missing = [dim for dim in tensor.dims if isinstance(dim, str) and dim not in known]
    if missing:
        raise CardError(
            f"model '{spec.name}': profile {index} has no range for dimension '{missing[0]}' of input '{tensor.name}'; "
            f"add {tensor.name} = {{ min = [...], opt = [...], max = [...] }} to that [[profile]]"
        )
    low, best, high = (tensor.resolve({name: sizes[end] for name, sizes in known.items()}) for end in range(3))
    return ShapeRange(low, best, high)


def _catching_all(spec: ModelSpec, profiles: Sequence[Profile]) -> tuple[Profile, ...]:
    """None where every bucket is allowed already, else one profile around all that are not."""
    names = [tensor.name for tensor in spec.inputs]
    shapes = (dict(zip(names, input_shapes(spec, bucket), strict=True)) for bucket in spec.buckets.known())
    outside = [each for each in shapes if choose_profile(profiles, each) is None]
    if not outside:
        return ()
    if len(profiles) == MAX_PROFILES:
        raise CardError(
            f"model '{spec.name}': the card's {MAX_PROFILES} profiles, as many as are built, do not allow all of its "
            "buckets; widen one, or name fewer sizes in [buckets]"
        )
    around: dict[str, ShapeRange] = {}
    for name in names:
        low, high = (tuple(map(end, *(each[name] for each in outside), outside[0][name])) for end in (min, max))
        around[name] = ShapeRange(low, high, high)
    return (around,)


def _how_to_give_ranges(spec: ModelSpec) -> str:
    name = spec.buckets.exact_dims[0]
    tensor = next(tensor for tensor in spec.inputs if name in tensor.dims)
    shapes = ", ".join(
        f"{end} = [{', '.join(str(dim) if isinstance(dim, int) else end.upper() for dim in tensor.dims)}]"
        for end in ("min", "opt", "max")
    )
    return (
        f"model '{spec.name}': dimension '{name}' of input '{tensor.name}' {tensor.wire_shape} has no sizes, and a "
        f"plan needs its range; write the sizes to serve, [buckets] {name} = [64, 128], or a "
        f"[[profile]] {tensor.name} = {{ {shapes} }}"
    )
