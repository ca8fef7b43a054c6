"""The rare messages: what is published, acknowledged and counted, as pickled values of these classes."""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from service.buckets import CostTable
from service.models import ModelSpec
from service.repository.served import IndexEntry
from service.shared_regions.region import Identity, RegionSpec
from service.transport.wire import Kind, Malformed, pack_frame

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Hello:
    """A front end presents itself.

    Attributes:
        region: the index of the region that it owns.
        restarts: how often its place was filled again.
    """

    region: int
    restarts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel:
    """A model version with tensors of its own.

    Attributes:
        number: of this load of it; messages name it by that.
        spec: what it takes; of its form of media, examples are left out.
        costs: what a batch costs in each bucket.
        lanes: how many there are.
    """

    number: int
    spec: ModelSpec
    costs: CostTable
    lanes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedComposition:
    """A composed model.

    Attributes:
        number: of this composition, of the same count as those of models.
        spec: name, version and card.
        members: by the card's key, the number of each.
    """

    number: int
    spec: ModelSpec
    members: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRegion:
    """A registered region of a client's shared memory, which the engine has open.

    Attributes:
        spec: what was registered.
        identity: of the object, of which the region of this name may be another registration by now.
        pid: of the engine's process.
        fd: its descriptor of the object.
    """

    spec: RegionSpec
    identity: Identity
    pid: int
    fd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCatalogue:
    """All that a look-up needs to know; see `Catalogue`.

    Attributes:
        serial: ascending; `Known` names it.
        models: what serves.
        compositions: likewise, of what is among `models`.
        unavailable: what does not serve, and why.
        is_complete: whether every model was tried.
        regions: of clients' shared memory.
    """

    serial: int
    models: tuple[PublishedModel, ...]
    compositions: tuple[PublishedComposition, ...]
    unavailable: tuple[IndexEntry, ...]
    is_complete: bool
    regions: tuple[PublishedRegion, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """A front end serves by a catalogue, and will ask nothing more of what that no longer holds.

    Attributes:
        serial: of the catalogue.
    """

    serial: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecords:
    """What a front end counted for one model since its last message.

    Attributes:
        number: of the load of the model.
        name: of the model, for figures that outlive the load.
        version: likewise.
        rows: answered requests, each a `REQUEST_ROW`.
        failures: how many by reason.
        stays: int64 moments at which requests came (positive) and ended (negative), in nanoseconds.
        lost_ns: of that time, what was spent on requests that failed.
        pool_ns: CPU time of worker threads spent on media.
        pool_rows: rows that came of it.
    """

    number: int
    name: str
    version: str
    rows: bytes
    failures: Mapping[str, int]
    stays: bytes
    lost_ns: int
    pool_ns: int
    pool_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What a front end counted since its last message.

    Attributes:
        models: by model.
        unattributed: failures of no model, by reason.
        streams: by how many the open streams have changed.
        dropped_frames: frames that gave way to newer ones.
        loop_lags_ns: samples of the event loop's lateness.
        loop_cpu_ns: CPU time of the event loop's thread.
        held_bytes: of the region, that its requests hold now.
    """

    models: tuple[ModelRecords, ...]
    unattributed: Mapping[str, int]
    streams: int
    dropped_frames: int
    loop_lags_ns: tuple[int, ...]
    loop_cpu_ns: int
    held_bytes: int


def _reduce_proxy(proxy: MappingProxyType[Any, Any]) -> tuple[Callable[..., object], tuple[object, ...]]:
    return _as_proxy, (dict(proxy),)


def _as_proxy(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(mapping)  # a class that pickle cannot name


class _Pickler(pickle.Pickler):
    """Knows read-only mappings, which cards and tables are full of."""

    dispatch_table = copyreg.dispatch_table.copy()
    dispatch_table[MappingProxyType] = _reduce_proxy


def pack_object(kind: Kind, value: object) -> bytes:
    """The frame of a rare message."""
    pickled = io.BytesIO()
    _Pickler(pickled, pickle.HIGHEST_PROTOCOL).dump(value)
    return pack_frame(kind, pickled.getbuffer())


def unpack_object(payload: memoryview, expected: type[_T]) -> _T:
    """The value of a rare message.

    Raises:
        Malformed: it is none of that class.
    """
    try:
        value = pickle.loads(payload)
    except Exception as error:
        # Unpickling raises whatever the classes that it meets raise.
        raise Malformed(f"a message of {len(payload)} bytes cannot be read: {error!r}") from error
    if not isinstance(value, expected):
        raise Malformed(f"a message is a {type(value).__name__}, expected a {expected.__name__}")
    return value
