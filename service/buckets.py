"""Buckets: the padded shapes that batches are rounded up to, in each form, and what each costs."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import NamedTuple

from service.units import NS_PER_MS

DimSizes = tuple[int, ...]
"""Sizes of a model's dynamic dimensions (the batch apart), in the order of `BucketTable.dim_names`."""


class Form(IntEnum):
    """What the rows of a request are. No batch mixes forms: each has graphs of its own."""

    TENSORS = 0
    """The model's own inputs and outputs."""
    MEDIA = 1
    """What a model's task has, such as images of any size, and what it wants, such as boxes: kernels on the device turn
    the one into the model's inputs and its outputs into the other. See `ModelSpec.media`."""

    # An enum hashes its name, in Python; forms are part of keys that every request looks up.
    __hash__ = int.__hash__


class Home(NamedTuple):
    """What batches are joined within: requests of one home can always share a batch, those of two forms never.

    Attributes:
        dims: padded sizes of the dynamic dimensions.
        form: what the requests bring and get.
    """

    dims: DimSizes
    form: Form = Form.TENSORS


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """A padded shape in a form: at most one graph per lane and buffer set exists for it.

    Attributes:
        padded_size: rows of the padded batch (1 for a model without a batch dimension).
        dims: padded sizes of the dynamic dimensions.
        form: what its requests bring and get.
    """

    padded_size: int
    dims: DimSizes = ()
    form: Form = Form.TENSORS

    @property
    def home(self) -> Home:
        """What its batches are joined within: all of it but the batch size."""
        return Home(self.dims, self.form)

    @property
    def label(self) -> str:
        """Short name for metrics and messages, such as `8`, `8x640x960` or `8:media`."""
        shape = "x".join(str(size) for size in (self.padded_size, *self.dims))
        return shape if self.form is Form.TENSORS else f"{shape}:{self.form.name.lower()}"

    @property
    def volume(self) -> int:
        """Padded rows times padded dims; proportional to the padded elements of one dynamic tensor."""
        volume = self.padded_size
        for size in self.dims:
            volume *= size
        return volume


class UnservedReason(Enum):
    """Why no batch may use a bucket; the value is the metrics' label."""

    CANNOT_RUN = "cannot_run"
    DIFFERS_FROM_REFERENCE = "differs_from_reference"
    ROWS_DEPEND_ON_NEIGHBOURS = "rows_depend_on_neighbours"


@dataclass(frozen=True, slots=True)
class Unserved:
    """What start-up found wrong with a bucket: the class of it, and all that is known."""

    reason: UnservedReason
    detail: str


@dataclass(frozen=True, slots=True)
class BucketTable:
    """The padded sizes of a model, by dimension.

    Attributes:
        batch_sizes: ascending padded batch sizes; the last is the largest batch.
        dim_names: the dynamic dimensions, in the order of `Bucket.dims`.
        dim_sizes: per dynamic dimension its ascending padded sizes, or None for a dimension that is served
            at its exact size (never padded, so never joined with another size).
        limited: by home, the ascending batch sizes that are left where some are not served; empty where none is.
            Homes that are not named have all sizes of their form.
        media_sizes: ascending padded batch sizes of the form `Form.MEDIA`, some of `batch_sizes`; empty where there is
            no such form.
    """

    batch_sizes: tuple[int, ...]
    dim_names: tuple[str, ...] = ()
    dim_sizes: tuple[tuple[int, ...] | None, ...] = ()
    limited: Mapping[Home, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    media_sizes: tuple[int, ...] = ()

    @property
    def max_size(self) -> int:
        """Rows of the largest batch."""
        return self.batch_sizes[-1]

    @property
    def is_exact(self) -> bool:
        """Whether some dimension is served at its exact size, so that not every bucket is known beforehand."""
        return any(sizes is None for sizes in self.dim_sizes)

    @property
    def exact_dims(self) -> tuple[str, ...]:
        """The dimensions that are served at their exact size."""
        return tuple(name for name, sizes in zip(self.dim_names, self.dim_sizes, strict=True) if sizes is None)

    def sizes_of(self, form: Form) -> tuple[int, ...]:
        """The ascending padded batch sizes of a form, whether served or not; empty where there is no such form."""
        return (self.batch_sizes, self.media_sizes)[form]

    def padded_size(self, size: int, form: Form = Form.TENSORS) -> int | None:
        """The smallest padded batch of a form that holds `size` rows, or None if none does."""
        return _least(self.sizes_of(form), size)

    def padded_dims(self, dims: DimSizes) -> DimSizes | None:
        """`dims`, each rounded up to a padded size; None if one exceeds its largest."""
        if not dims and not self.dim_sizes:
            return dims  # as for most models, and asked for every request
        padded = []
        for size, sizes in zip(dims, self.dim_sizes, strict=True):
            if sizes is None:
                padded.append(size)
                continue
            index = bisect_left(sizes, size)
            if index == len(sizes):
                return None
            padded.append(sizes[index])
        return tuple(padded)

    def sizes_at(self, home: Home) -> tuple[int, ...]:
        """The ascending padded batch sizes that are served in `home`; empty if none is."""
        sizes = self.sizes_of(home.form)
        return self.limited.get(home, sizes) if self.limited else sizes

    def served_size(self, size: int, home: Home) -> int | None:
        """The smallest padded batch served in `home` that holds `size` rows, or None if none does."""
        return _least(self.sizes_at(home), size)

    def home(self, size: int, dims: DimSizes, form: Form = Form.TENSORS) -> Home | None:
        """Where a request of `size` rows of `dims` runs: in its own padded dims, or in larger ones where those fail.

        Returns:
            Of the homes of its form whose dims cover `dims` and that serve a batch of `size` rows, the one whose bucket
            has the least volume; None if there is none.
        """
        sizes, own = self.sizes_of(form), self.padded_dims(dims)
        if own is None or not sizes or size > sizes[-1]:
            return None
        home = Home(own, form)
        if not self.limited or self.served_size(size, home) is not None:
            return home
        larger = itertools.product(
            *(
                (extent,) if sizes is None else sizes[bisect_left(sizes, extent) :]
                for extent, sizes in zip(own, self.dim_sizes, strict=True)
            )
        )
        buckets = [
            Bucket(padded_size, padded, form)
            for padded in larger
            if (padded_size := self.served_size(size, Home(padded, form)))
        ]
        return min(buckets, key=lambda bucket: (bucket.volume, bucket)).home if buckets else None

    def without(self, unserved: Collection[Bucket]) -> BucketTable:
        """The same table, less these buckets: no method names them any more, but `sizes_of` and the padding ones."""
        if not unserved:
            return self
        limited = {
            home: tuple(size for size in self.sizes_at(home) if Bucket(size, *home) not in unserved)
            for home in {bucket.home for bucket in unserved}
        }
        return replace(self, limited=MappingProxyType({**self.limited, **limited}))

    def covers(self, larger: Home, smaller: Home) -> bool:
        """Whether what is at home in `smaller` may run in `larger`.

        They are of one form, no size is less, and exact ones are the same.
        """
        return larger.form is smaller.form and all(
            low == high if sizes is None else low <= high
            for low, high, sizes in zip(smaller.dims, larger.dims, self.dim_sizes, strict=True)
        )

    def known(self) -> Iterator[Bucket]:
        """Every bucket that is served: those of tensors, then those of media, each form's largest first.

        Nothing if a dimension is served at its exact size.
        """
        if self.is_exact:
            return
        per_dim = [tuple(reversed(sizes)) for sizes in self.dim_sizes if sizes is not None]
        for form in Form:
            for dims in itertools.product(*per_dim):
                for padded_size in reversed(self.sizes_at(Home(dims, form))):
                    yield Bucket(padded_size, dims, form)


def _least(sizes: tuple[int, ...], size: int) -> int | None:
    index = bisect_left(sizes, size)
    return sizes[index] if index < len(sizes) else None


def powers_of_two(low: int, high: int) -> tuple[int, ...]:
    """`low`, the powers of two between, and `high`: ascending, without repeats.

    The derived buckets: each is at most twice the one before, so padding wastes less than half.
    """
    sizes = {low, high}
    size = 1
    while size < high:
        if size > low:
            sizes.add(size)
        size *= 2
    return tuple(sorted(sizes))


@dataclass(frozen=True, slots=True)
class CostTable:
    """Measured duration of one batch per bucket, host to host, in nanoseconds.

    Immutable; made at warm-up. A bucket that was not measured (an exact size) is estimated by its volume, on the
    straight line between the volumes around it that were measured in its form, or with `default_row_ns` per row when
    none was.
    """

    measured_ns: Mapping[Bucket, int]
    default_row_ns: int = NS_PER_MS

    def cost_ns(self, bucket: Bucket) -> int:
        """Expected duration of one batch in `bucket`."""
        measured = self.measured_ns.get(bucket)
        if measured is not None:
            return measured
        return self._estimate_ns(bucket)

    def row_cost_ns(self, home: Home, batch_sizes: Sequence[int]) -> float:
        """The least cost per row, in nanoseconds, that any of these padded batch sizes reaches in `home`."""
        return min(self.cost_ns(Bucket(size, *home)) / size for size in batch_sizes)

    def _estimate_ns(self, bucket: Bucket) -> int:
        """Never less for a larger volume, where that holds for what was measured; beyond it in proportion."""
        known_ns = {0: 0}
        for measured, cost_ns in self.measured_ns.items():
            if measured.form is bucket.form:
                known_ns[measured.volume] = max(cost_ns, known_ns.get(measured.volume, 0))
        if len(known_ns) == 1:
            return self.default_row_ns * bucket.padded_size
        volume, volumes = bucket.volume, sorted(known_ns)
        index = min(bisect_left(volumes, volume), len(volumes) - 1)
        if volume > volumes[index]:
            return known_ns[volumes[index]] * volume // volumes[index]
        low, high = volumes[index - 1], volumes[index]
        return max(1, known_ns[low] + (known_ns[high] - known_ns[low]) * (volume - low) // (high - low))
