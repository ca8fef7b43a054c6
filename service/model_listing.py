"""What a repository would serve: every model opened, none warmed. Behind `inferlane models`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from service.backends import open_backend
from service.batching.lane_count import is_measured
from service.buckets import Form
from service.errors import ServiceError
from service.models import ModelSpec
from service.pipeline.task import create_task
from service.repository.card import load_card
from service.repository.composed import COMPOSED_PLATFORM
from service.repository.layout import IMPLICIT_VERSION, ModelFolder, scan
from service.tensors import TensorSpec

MAX_BUCKETS_SHOWN = 12


@dataclass(frozen=True, slots=True)
class ModelListing:
    """One model of the repository, or why it cannot be served.

    Attributes:
        name: the model's name.
        version: the version that would be served, empty if none can.
        platform: Triton's word for the backend.
        task: what `/predict` makes of it.
        inputs: as `name dtype [dims]`.
        outputs: likewise.
        buckets: labels of the padded shapes of tensors, largest first; empty where sizes are served exactly.
        media_buckets: likewise of those that its task's kernels take media in; empty where the task runs on the host.
        exact_dims: dimensions that are served at their exact size.
        lanes: how many there are; None where start-up measures how many pay, 0 where it is its members that have them.
        error: why it cannot be served, empty if it can.
    """

    name: str
    version: str = ""
    platform: str = ""
    task: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    buckets: tuple[str, ...] = ()
    media_buckets: tuple[str, ...] = ()
    exact_dims: tuple[str, ...] = ()
    lanes: int | None = 0
    error: str = ""


def list_models(repository: Path, *, cpu_threads: int, max_image_pixels: int) -> tuple[ModelListing, ...]:
    """Every model of a repository, in the order of names; blocking.

    Args:
        repository: its folder.
        cpu_threads: threads of each model, divided among its lanes.
        max_image_pixels: largest image, width times height.

    Raises:
        ModelLoadFailed: the repository itself cannot be read.
    """
    return tuple(_list_one(folder, cpu_threads, max_image_pixels) for folder in scan(repository).values())


def to_dicts(listings: tuple[ModelListing, ...]) -> list[dict[str, object]]:
    """The listings as JSON-able objects."""
    return [asdict(listing) for listing in listings]


def render(listings: tuple[ModelListing, ...]) -> Table:
    """The listings as a table for a terminal."""
    table = Table("model", "version", "task\nbackend", "inputs → outputs", "buckets", "lanes", show_lines=True)
    for listing in listings:
        if listing.error:
            table.add_row(Text(listing.name), listing.version, "", Text(listing.error, "red"), "", "")
            continue
        tensors = "\n".join((*listing.inputs, *(f"→ {output}" for output in listing.outputs)))
        table.add_row(
            Text(listing.name),
            listing.version,
            f"{listing.task}\n{_backend(listing)}",
            Text(tensors),
            Text(_buckets(listing)),
            "auto" if listing.lanes is None else str(listing.lanes or "-"),
        )
    return table


def _list_one(folder: ModelFolder, cpu_threads: int, max_image_pixels: int) -> ModelListing:
    try:
        if folder.has_card_alone:
            return _list_composed(folder)
        version = folder.version()
        backend = open_backend(load_card(folder.path), version, cpu_threads=cpu_threads)
    except ServiceError as error:
        return ModelListing(folder.name, error=error.message)
    try:
        create_task(backend.spec, max_image_pixels=max_image_pixels)
        return _listing(backend.spec, None if is_measured(backend) else backend.lane_count)
    except ServiceError as error:
        return ModelListing(folder.name, version.version, error=error.message)
    finally:
        backend.close()


def _list_composed(folder: ModelFolder) -> ModelListing:
    """A model that is composed of others, which are listed under their own names and checked against it by `serve`.

    Raises:
        ModelLoadFailed: its card names no others.
    """
    card = load_card(folder.path)
    if not card.members:
        folder.version()
    return ModelListing(
        name=card.name,
        version=IMPLICIT_VERSION,
        platform=COMPOSED_PLATFORM,
        task=card.task,
        inputs=tuple(f"{key}: {name}" for key, name in card.members.items()),
    )


def _listing(spec: ModelSpec, lanes: int | None) -> ModelListing:
    buckets = spec.buckets
    return ModelListing(
        name=spec.name,
        version=spec.version,
        platform=spec.platform,
        task=spec.card.task,
        inputs=tuple(_tensor(tensor) for tensor in spec.inputs),
        outputs=tuple(_tensor(tensor) for tensor in spec.outputs),
        buckets=tuple(bucket.label for bucket in buckets.known() if bucket.form is Form.TENSORS),
        media_buckets=tuple(bucket.label for bucket in buckets.known() if bucket.form is Form.MEDIA),
        exact_dims=buckets.exact_dims,
        lanes=lanes,
    )


def _tensor(tensor: TensorSpec) -> str:
    return f"{tensor.name} {tensor.dtype.value} [{', '.join(str(dim) for dim in tensor.dims)}]"


def _backend(listing: ModelListing) -> str:
    """The card's word for what runs the model, which Triton's begins with: `onnxruntime`, `tensorrt`."""
    return listing.platform.partition("_")[0]


def _buckets(listing: ModelListing) -> str:
    if listing.exact_dims:
        return f"exact {', '.join(listing.exact_dims)}: not warmed, sizes never join"
    return "\n".join(_cut(labels) for labels in (listing.buckets, listing.media_buckets) if labels)


def _cut(labels: tuple[str, ...]) -> str:
    shown = " ".join(labels[:MAX_BUCKETS_SHOWN])
    rest = len(labels) - MAX_BUCKETS_SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown
