"""The classes of a text recogniser, from the characters in its own metadata."""

from __future__ import annotations

from pathlib import Path

from service.errors import ModelLoadFailed

BLANK = "<blank>"
"""Label of class 0, with which the model separates equal neighbours; no character of a text."""


def ctc_labels(onnx: Path) -> bytes:
    """A labels file, UTF-8, line i for class i: `BLANK`, the characters of the metadata, a space.

    Raises:
        ModelLoadFailed: ONNX Runtime is missing, or the model names no characters.
    """
    try:
        import onnxruntime  # noqa: PLC0415 - nothing but this needs it
    except ImportError as error:
        raise ModelLoadFailed(f"ONNX Runtime is needed: pip install 'inferlane[demo]' ({error})") from error
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(onnx), options, providers=["CPUExecutionProvider"])
    characters = session.get_modelmeta().custom_metadata_map.get("character")
    if not characters:
        raise ModelLoadFailed(f"'{onnx.name}' names no characters in its metadata")
    return "\n".join((BLANK, *characters.split("\n"), " ", "")).encode()
