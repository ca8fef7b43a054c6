"""`inferlane bench`: opens one model of a repository and measures it, with no server running."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from service.backends import marked, open_backend
from service.bench.measure import BucketFigures, Trial, measure
from service.bench.mixed import MixedFigures, run_mixed
from service.buckets import Bucket
from service.errors import InvalidInput, ModelNotFound
from service.models import ModelSpec
from service.repository.card import load_card
from service.repository.layout import ModelFolder, find, scan
from service.repository.loader import ModelLoader
from service.runtime.protocol import Backend
from service.telemetry.recorder import NullRecorder

BESIDE_DIM = "--dim, which runs the model as the server would: in all of its buckets, on the lanes that its card says"
BESIDE_LAYERS = "--layers or --export-profile, which time layers and no lanes; run the two one after the other"


def open_model(repository: Path, name: str, *, cpu_threads: int, is_marked: bool = False) -> Backend:
    """Opens the highest version of a model, as the server would.

    Args:
        repository: the model's.
        name: of the model.
        cpu_threads: threads of a model on the CPU.
        is_marked: whether its lanes mark what they do for Nsight Systems.

    Raises:
        ServiceError: there is no such model, or it cannot be opened.
    """
    folder = find_model(repository, name)
    backend = open_backend(load_card(folder.path), folder.version(), cpu_threads=cpu_threads)
    return marked(backend) if is_marked else backend


def bench_buckets(backend: Backend, labels: Sequence[str], trial: Trial) -> Iterable[BucketFigures]:
    """Measures buckets one after another, the largest first; closes the backend at the end.

    Args:
        backend: the opened model.
        labels: which buckets, such as `8x128`; all known ones if there are none.
        trial: how.

    Raises:
        InvalidInput: there is no such bucket.
        ServiceError: the model failed.
    """
    with closing(backend):
        for bucket in named_buckets(backend.spec, labels):
            yield measure(backend, bucket, trial)


async def bench_mixed(
    repository: Path,
    name: str,
    lengths: Mapping[str, tuple[int, int]],
    *,
    concurrency: int,
    duration_s: float,
    cpu_threads: int,
) -> MixedFigures:
    """Loads the model as the server would and keeps single rows of mixed lengths in flight.

    Raises:
        ServiceError: the model cannot be loaded, or as `run_mixed`.
    """
    folder = find_model(repository, name)
    loader = ModelLoader(
        open_backend=lambda card, version, _: open_backend(card, version, cpu_threads=cpu_threads),
        make_task=lambda spec: None,
        recorder=NullRecorder(),
    )
    served = await loader.load(folder, folder.version(), lambda progress: None, lambda error: None)
    try:
        return await run_mixed(served, lengths, concurrency=concurrency, duration_s=duration_s)
    finally:
        await asyncio.to_thread(served.batcher.close)


def parse_lengths(texts: Sequence[str]) -> dict[str, tuple[int, int]]:
    """`sequence=8:512` becomes {"sequence": (8, 512)}.

    Raises:
        InvalidInput: a text has another form, or the range is empty.
    """
    lengths = {}
    for text in texts:
        name, _, sizes = text.partition("=")
        low, _, high = sizes.partition(":")
        if not (low.isdecimal() and high.isdecimal() and 0 < int(low) <= int(high)):
            raise InvalidInput(f"--dim {text!r} is no range of sizes; write the name and the range, sequence=8:512")
        lengths[name] = (int(low), int(high))
    return lengths


def refuse_beside(options: Mapping[str, object], why: str) -> None:
    """Refuses options that mean nothing beside another one.

    Args:
        options: what was given, by name.
        why: ends the sentence "... cannot be given with".

    Raises:
        InvalidInput: one of them was given, that is, is neither None nor empty nor False.
    """
    given = [option for option, value in options.items() if value]
    if given:
        raise InvalidInput(f"{', '.join(given)} cannot be given with {why}")


def find_model(repository: Path, name: str) -> ModelFolder:
    """The folder of a model.

    Raises:
        InvalidInput: there is none by that name.
    """
    try:
        return find(repository, name)
    except ModelNotFound as error:
        raise InvalidInput(
            f"model '{name}' is not in the repository '{repository}', which holds {sorted(scan(repository))}; name one "
            "of them, or give --repository"
        ) from error


def named_buckets(spec: ModelSpec, labels: Sequence[str]) -> list[Bucket]:
    """The buckets by their labels; all known ones if there are none, the largest first.

    Raises:
        InvalidInput: there is no such bucket, or the model has none.
    """
    known = {bucket.label: bucket for bucket in spec.buckets.known()}
    if not known:
        raise InvalidInput(
            f"model '{spec.name}' runs at every size of {', '.join(spec.buckets.exact_dims)}, so it has no buckets to "
            "measure; name sizes in [buckets] of its card"
        )
    unknown = [label for label in labels if label not in known]
    if unknown:
        raise InvalidInput(f"model '{spec.name}' has no bucket {', '.join(unknown)}; it has {', '.join(known)}")
    return [known[label] for label in labels or known]
