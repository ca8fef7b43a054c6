"""The page's files: read once from this package, told apart by a digest, and never anything else of the disk.

Charts are drawn by Plotly's script out of the Python package `plotly`, where that is installed; it is found without
being imported, and read when a browser first asks for it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

CHARTS = "plotly.min.js"
CHARTS_PACKAGE = "plotly"

CONTENT_TYPES = MappingProxyType(
    {
        ".css": "text/css; charset=utf-8",
        ".html": "text/html; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".svg": "image/svg+xml",
    }
)

_DIGEST_CHARS = 16
_STYLE_IDS = re.compile(rb'getElementById\("([0-9a-f]{64})"\)')
_PLACEHOLDERS = b'for (const id of %s) document.head.append(Object.assign(document.createElement("meta"), { id }));\n'


@dataclass(frozen=True, slots=True)
class Asset:
    """One file as it is sent.

    Attributes:
        content: its bytes.
        content_type: for the header.
        etag: quoted, the same for the same bytes.
        encoding: how `content` is compressed; empty if it is not.
    """

    content: bytes
    content_type: str
    etag: str
    encoding: str = ""


@dataclass(frozen=True, slots=True)
class Assets:
    """Everything that a browser may ask for.

    Attributes:
        files: by their names, without the charts' script.
        charts_path: that script on disk; None where it is not installed.
        digest: another one whenever any of it is another one.
    """

    files: Mapping[str, Asset]
    charts_path: Path | None
    digest: str


def load_assets() -> Assets:
    """Reads the page's files. Blocking, some tens of kilobytes."""
    found = {
        entry.name: _asset(entry.name, entry.read_bytes())
        for entry in sorted((files(__package__) / "static").iterdir(), key=lambda entry: entry.name)
    }
    charts_path, charts_version = _charts()
    whole = "".join(f"{name}{asset.etag}" for name, asset in found.items()) + charts_version
    return Assets(MappingProxyType(found), charts_path, _digest(whole.encode()))


def compressed_charts(path: Path) -> Asset:
    """The charts' script, compressed to about a third. Blocking, for some tenths of a second.

    For its maps it would put styles into the page, which the page's policy forbids; it leaves alone those that it finds
    by their ids, so elements with these ids are put there before it runs.

    Raises:
        OSError: the file cannot be read.
    """
    script = path.read_bytes()
    ids = sorted({found.decode() for found in _STYLE_IDS.findall(script)})
    content = _PLACEHOLDERS % json.dumps(ids).encode() + script
    plain = _asset(path.name, content)
    return Asset(gzip.compress(content, compresslevel=6, mtime=0), plain.content_type, plain.etag, "gzip")


def _charts() -> tuple[Path | None, str]:
    spec = find_spec(CHARTS_PACKAGE)
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        path = Path(folder) / "package_data" / CHARTS
        if path.is_file():
            return path, version(CHARTS_PACKAGE)
    return None, ""


def _asset(name: str, content: bytes) -> Asset:
    return Asset(content, CONTENT_TYPES[Path(name).suffix], f'"{_digest(content)}"')


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGEST_CHARS]
