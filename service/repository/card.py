"""`model.toml` → `ModelCard`: everything that can be wrong with a card alone is found here."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import ValidationError

from service.cards import (
    CARD_FILE,
    BatchingCard,
    BuildCard,
    DetectCard,
    LanesCard,
    ModelCard,
    OcrCard,
    PoolingCard,
    PrecisionCard,
    PreprocessCard,
    ShapeRange,
    TextCard,
)
from service.errors import CardError
from service.repository.card_errors import card_error
from service.repository.card_schema import (
    BatchingSection,
    BuildSection,
    CardFile,
    LanesSection,
    name_problem,
)
from service.repository.card_task_schema import (
    DetectSection,
    OcrSection,
    PoolingSection,
    PreprocessSection,
    TextSection,
)
from service.repository.inside import read_inside
from service.repository.labels import read_labels
from service.units import NS_PER_MS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_CARD_BYTES = 1 << 20
MAX_TOKENIZER_BYTES = 64 << 20

_T = TypeVar("_T")


def load_card(folder: Path) -> ModelCard:
    """The card of the model in `folder`; one of defaults, named as the folder, where no `model.toml` is.

    Reads the disk: not for the event loop. A card holds paths of no file afterwards; labels and tokenizer are read
    here.

    Raises:
        CardError: the card, or a file that it names, is malformed. The message names file, dotted key, what was got,
            what is allowed and, for an unknown key, the nearest valid one.
    """
    path = folder / CARD_FILE
    document = _read_toml(path)
    try:
        card = CardFile.model_validate(document)
    except ValidationError as error:
        raise card_error(path, CardFile, document, error) from error
    return ModelCard(
        name=_name(folder, card.name),
        task=card.task,
        backend=card.backend,
        kernels_enabled=card.kernels == "auto",
        labels=read_labels(folder, card.labels) if isinstance(card.labels, str) else tuple(card.labels),
        dims=_frozen({tensor: tuple(dims) for tensor, dims in card.dims.items()}),
        bucket_sizes=_frozen({dim: tuple(sizes) for dim, sizes in card.buckets.items()}),
        pad_values=_frozen(card.padding),
        profiles=tuple(
            _frozen({name: ShapeRange(tuple(r.min), tuple(r.opt), tuple(r.max)) for name, r in profile.items()})
            for profile in card.profile
        ),
        batching=_batching(card.batching),
        lanes=_lanes(card.lanes),
        precision=PrecisionCard(mode=card.precision.mode, min_cosine=card.precision.min_cosine),
        build=_build(card.build),
        preprocess=_preprocess(card.preprocess),
        text=_text(folder, card.text),
        pooling=_pooling(card.pooling),
        detect=_detect(card.detect),
        ocr=_ocr(card.ocr),
    )


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_CARD_BYTES:
            raise CardError(f"{path}: the card has {path.stat().st_size} bytes, at most {MAX_CARD_BYTES} are read")
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise CardError(f"{path}: the card cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise CardError(f"{path}: line {line}: byte {error.start} is no UTF-8; save the card as UTF-8") from error
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, a number of too many digits, nesting too deep
        raise CardError(f"{path}: not valid TOML: {error}") from error


def _name(folder: Path, name: str | None) -> str:
    own = folder.absolute().name
    if name is not None and name != own:
        raise CardError(
            f"{folder / CARD_FILE}: name: got '{name}', but the folder is called '{own}'; "
            "rename one of them, or leave 'name' out"
        )
    if problem := name_problem(own):
        raise CardError(f"{folder}: the folder's name is the model's name; {own!r} {problem}; rename the folder")
    return own


def _batching(section: BatchingSection) -> BatchingCard:
    return BatchingCard(
        max_batch_size=section.max_batch_size,
        max_queue_delay_ns=round(section.max_queue_delay_ms * NS_PER_MS),
        max_queued_requests=section.max_queued_requests,
        max_queued_bytes=section.max_queued_bytes,
        default_timeout_ns=round(section.default_timeout_ms * NS_PER_MS),
        priority_levels=section.priority_levels,
    )


def _lanes(section: LanesSection) -> LanesCard:
    return LanesCard(
        count=None if section.count == "auto" else section.count,
        threads_per_lane=section.threads_per_lane,
        device=section.device,
        graph_memory_bytes=section.graph_memory_bytes,
        completion=section.completion,
    )


def _build(section: BuildSection) -> BuildCard:
    return BuildCard(
        optimization_level=section.optimization_level,
        workspace_bytes=section.workspace_bytes,
        hardware_compatibility=section.hardware_compatibility,
        is_version_compatible=section.version_compatible,
        is_weak_typing_allowed=section.weak_typing,
    )


def _preprocess(section: PreprocessSection) -> PreprocessCard:
    return PreprocessCard(
        resize=section.resize,
        shortest_side=section.shortest_side,
        interpolation=section.interpolation,
        color=section.color,
        scale=section.scale,
        mean=(section.mean[0], section.mean[1], section.mean[2]),
        std=(section.std[0], section.std[1], section.std[2]),
        pad_value=section.pad_value,
        device_image_pixels=section.device_image_pixels,
    )


def _text(folder: Path, section: TextSection) -> TextCard:
    tokenizer = b""
    if section.tokenizer:
        tokenizer = read_inside(folder, section.tokenizer, key="text.tokenizer", max_bytes=MAX_TOKENIZER_BYTES)
    return TextCard(tokenizer=tokenizer, max_tokens=section.max_tokens, is_truncated=section.truncation)


def _pooling(section: PoolingSection) -> PoolingCard:
    return PoolingCard(output=section.output, mode=section.mode, is_normalized=section.normalize)


def _detect(section: DetectSection) -> DetectCard:
    return DetectCard(
        layout=section.layout,
        score_threshold=section.score_threshold,
        iou_threshold=section.iou_threshold,
        max_detections=section.max_detections,
    )


def _ocr(section: OcrSection) -> OcrCard:
    return OcrCard(
        detector=section.detector,
        recognizer=section.recognizer,
        pixel_threshold=section.pixel_threshold,
        box_threshold=section.box_threshold,
        unclip_ratio=section.unclip_ratio,
        text_threshold=section.text_threshold,
    )


def _frozen(mapping: dict[str, _T]) -> Mapping[str, _T]:
    return MappingProxyType(mapping)
