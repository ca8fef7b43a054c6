"""The sections of the card that say what media become: [text], [pooling], [detect] and [ocr]."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.cards import BoxLayout, DetectCard, ModelCard, OcrCard, Pooling, PoolingCard, TextCard
from service.errors import CardError
from service.repository import card as card_module
from service.repository.card import load_card

OCR = 'task = "ocr"\n[ocr]\ndetector = "det"\nrecognizer = "rec"\n'


def load(folder: Path, text: str) -> ModelCard:
    (folder / "model.toml").write_text(text, encoding="utf-8")
    return load_card(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "words"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(b"{}")
    return folder


def test_sections_that_are_left_out_have_their_defaults(folder: Path) -> None:
    card = load(folder, "")
    assert (card.text, card.pooling, card.detect, card.ocr) == (TextCard(), PoolingCard(), DetectCard(), OcrCard())
    assert card.members == {}


def test_every_key_is_taken(folder: Path) -> None:
    card = load(
        folder,
        OCR + "pixel_threshold = 0.2\nbox_threshold = 0.5\nunclip_ratio = 1.8\ntext_threshold = 0.3\n"
        '[text]\ntokenizer = "tokenizer.json"\nmax_tokens = 64\ntruncation = false\n'
        '[pooling]\noutput = "hidden"\nmode = "first"\nnormalize = false\n'
        '[detect]\nlayout = "yolov8"\nscore_threshold = 0.4\niou_threshold = 0.6\nmax_detections = 10\n',
    )
    assert card.text == TextCard(tokenizer=b"{}", max_tokens=64, is_truncated=False)
    assert card.pooling == PoolingCard(output="hidden", mode=Pooling.FIRST, is_normalized=False)
    assert card.detect == DetectCard(layout=BoxLayout.YOLOV8, score_threshold=0.4, iou_threshold=0.6, max_detections=10)
    assert card.ocr == OcrCard(
        detector="det",
        recognizer="rec",
        pixel_threshold=0.2,
        box_threshold=0.5,
        unclip_ratio=1.8,
        text_threshold=0.3,
    )
    assert card.members == {"detector": "det", "recognizer": "rec"}


def test_what_runs_on_a_gpu_is_said_by_two_keys(folder: Path) -> None:
    card = load(folder, 'kernels = "off"\n[preprocess]\ndevice_image_pixels = 67108864\n')
    assert (card.kernels_enabled, card.preprocess.device_image_pixels) == (False, 1 << 26)
    assert load(folder, 'kernels = "auto"').kernels_enabled


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[text]\ntokenizer = "gone.json"', "text.tokenizer = 'gone.json', but there is no such file"),
        ('[text]\ntokenizer = "../words/../../x"', "leads out of the model's folder"),
        ("[text]\nmax_tokens = 0", "text.max_tokens: got 0"),
        ("[text]\ntruncate = true", "text.truncate: got true, unknown key; did you mean 'truncation'?"),
        ('[pooling]\nmode = "max"', "pooling.mode: got \"max\", must be 'mean' or 'first'"),
        ('[detect]\nlayout = "yolov4"', "detect.layout: got \"yolov4\", must be 'auto', 'yolov5' or 'yolov8'"),
        ("[detect]\nscore_threshold = 1.5", "detect.score_threshold: got 1.5"),
        ("[detect]\nmax_detections = 0", "detect.max_detections: got 0"),
        ('task = "ocr"', "needs an [ocr] table that names its models"),
        ('task = "ocr"\n[ocr]\ndetector = "det"', "needs an [ocr] table that names its models"),
        (OCR + "pixel_threshold = 0.0", "ocr.pixel_threshold: got 0.0"),
        ('kernels = "on"', "kernels: got \"on\", must be 'auto' or 'off'"),
        ("[preprocess]\ndevice_image_pixels = 67108865", "preprocess.device_image_pixels: got 67108865"),
    ],
)
def test_mistakes_are_named(folder: Path, text: str, words: str) -> None:
    with pytest.raises(CardError) as caught:
        load(folder, text)
    assert words in caught.value.message


def test_a_tokenizer_file_that_is_too_large_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card_module, "MAX_TOKENIZER_BYTES", 1)
    with pytest.raises(CardError, match=r"the text\.tokenizer file has 2 bytes, at most 1 are read"):
        load(folder, '[text]\ntokenizer = "tokenizer.json"')


def test_a_tokenizer_is_not_shown_with_its_card(folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes(b'{"secret": 1}')
    assert "secret" not in repr(load(folder, '[text]\ntokenizer = "tokenizer.json"'))
