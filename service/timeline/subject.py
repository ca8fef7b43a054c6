"""What of a diagnosis a tool should look at: a bucket, and the layer that is farthest from what it could be. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.errors import InvalidInput

_SLOW = "inefficient"


@dataclass(frozen=True, slots=True)
class Subject:
    """A bucket of a model and one of its layers.

    Attributes:
        model: its name.
        bucket: its label.
        layer: name of the layer; empty where the diagnosis has none.
        tactic: the kernel of the layer; empty if it is not known.
    """

    model: str
    bucket: str
    layer: str = ""
    tactic: str = ""


def subject_of(document: Mapping[str, Any]) -> Subject:
    """The bucket whose layers are known, else the one that took most of the device's time.

    Of its layers the inefficient one that takes longest, else the one that takes longest.

    Args:
        document: a diagnosis, as the server answers it.

    Raises:
        InvalidInput: it is a review, or of a window without traffic.
    """
    if "buckets" not in document or not document["buckets"]:
        raise InvalidInput(
            "there is no bucket to look at: ask for a diagnosis, not a review, of a window in which batches ran"
        )
    name = document["model"]["name"]
    for table in document["layers"]:
        layer = _layer(table["layers"])
        if layer is not None:
            return Subject(name, table["bucket"], layer["name"], layer["tactic"])
    return Subject(name, max(document["buckets"], key=_device_s)["bucket"])


def _layer(layers: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    slow = [layer for layer in layers if layer["class"] == _SLOW] or layers
    return max(slow, key=lambda layer: layer["time_s"] or 0.0, default=None)


def _device_s(bucket: Mapping[str, Any]) -> float:
    return float(bucket["batches"] * (bucket["batch_s"] or bucket["cost_s"] or 1.0))
