"""Recordings as files: one JSON object of a versioned schema; trtexec's files are read too.

    {"schema": "inferlane-bench/1",
     "origin": {"model": "resnet50/1", "machine": {..}, "versions": {..}, "digests": {..}, "load": {..}},
     "series": [{"bucket": "8", "kind": "stage", "name": "compute", "rounds_ns": [[..], ..]}, ..]}

A reader refuses a schema that it does not know; a new key in `origin` or in a series changes none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from service.bench import trtexec
from service.bench.recording import Origin, Place, PlaceKind, Recording, Rounds
from service.errors import InvalidInput

SCHEMA = "inferlane-bench/1"


def write(recording: Recording, path: Path) -> None:
    """Writes a recording with its origin.

    Raises:
        InvalidInput: the file cannot be written.
    """
    assert recording.origin is not None, "what this server records has an origin"
    origin = recording.origin
    content = {
        "schema": SCHEMA,
        "origin": {
            "model": origin.model,
            "machine": dict(origin.machine),
            "versions": dict(origin.versions),
            "digests": dict(origin.digests),
            "load": dict(origin.load),
        },
        "series": [
            {"bucket": place.bucket, "kind": place.kind.value, "name": place.name, "rounds_ns": rounds}
            for place, rounds in recording.series.items()
        ],
    }
    write_json(content, path)


def write_json(content: object, path: Path) -> None:
    """Writes one JSON document.

    Raises:
        InvalidInput: the file cannot be written.
    """
    try:
        path.write_bytes(orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE))
    except OSError as error:
        raise InvalidInput(
            f"'{path}' cannot be written: {error.strerror}; name a file in a folder that exists"
        ) from error


def read(path: Path, bucket: str) -> Recording:
    """Reads what `write` wrote, or what trtexec exported.

    Args:
        path: the file.
        bucket: label of the bucket whose times a file of trtexec has; empty where that is not said.

    Raises:
        InvalidInput: there is no such file, or it is none of these, or a file of trtexec without `bucket`.
    """
    content = _json(path)
    try:
        if isinstance(content, dict):
            return _own(content, path)
        if not (trtexec.is_times(content) or trtexec.is_profile(content)):
            raise ValueError("neither an object nor a list as trtexec writes it")
        if not bucket:
            raise InvalidInput(
                f"'{path}' is a file of trtexec, which does not tell the batch that it ran; name it with one --bucket"
            )
        return (trtexec.read_times if trtexec.is_times(content) else trtexec.read_profile)(content, bucket)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"'{path}' is no recording: {type(error).__name__}: {error}; give a file of `inferlane bench --save`, or "
            "of trtexec's --exportTimes or --exportProfile"
        ) from error


def _json(path: Path) -> Any:
    try:
        return orjson.loads(path.read_bytes())
    except OSError as error:
        raise InvalidInput(f"'{path}' cannot be read: {error.strerror}; `inferlane bench --save` writes one") from error
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"'{path}' is no JSON: {error}; `inferlane bench --save` writes a recording") from error


def _own(content: Mapping[str, Any], path: Path) -> Recording:
    schema = content.get("schema")
    if schema != SCHEMA:
        raise InvalidInput(
            f"'{path}' has the schema {schema!r}, this version reads {SCHEMA!r}; record the baseline again with "
            "`inferlane bench --save`"
        )
    origin = content["origin"]
    maps = {name: _texts(origin[name]) for name in ("machine", "versions", "digests", "load")}
    series = {
        Place(str(each["bucket"]), PlaceKind(each["kind"]), str(each["name"])): _rounds(each["rounds_ns"])
        for each in content["series"]
    }
    return Recording(series, Origin(model=str(origin["model"]), **maps))


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in values.items()}


def _rounds(values: list[list[float]]) -> Rounds:
    rounds = tuple(tuple(float(sample) for sample in samples) for samples in values)
    if not rounds or not all(samples and min(samples) > 0.0 for samples in rounds):
        raise ValueError("a series needs rounds, and a round samples above 0")
    return rounds
