"""A model version that serves requests, and the states that a version can be in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from service.batching.batcher import Batcher
from service.buckets import Bucket, CostTable, Unserved
from service.repository.plain import PlainModel
from service.repository.start_up import Phase

MAX_LACKS_SHOWN = 3


class ModelState(Enum):
    """States of a model version; the value is the word of the repository index."""

    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A line of the repository index; `reason` says why the version is not ready, where there is something to say."""

    name: str
    version: str
    state: ModelState
    reason: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class ServedModel(PlainModel):
    """A model version with warm lanes in this process.

    Attributes:
        batcher: its queue and lanes.
        costs: what a batch costs in each bucket, as measured at warm-up.
        unserved: buckets that failed at start-up and are not used, and why.
        phase_ns: nanoseconds that each phase of its start-up took.
    """

    batcher: Batcher
    costs: CostTable
    unserved: Mapping[Bucket, Unserved]
    phase_ns: Mapping[Phase, int]

    @property
    def lack(self) -> str:
        """What it does not serve although its card and model say so, for people; empty if there is nothing."""
        if not self.unserved:
            return ""
        total = len(self.unserved) + sum(1 for _ in self.spec.buckets.known())
        shown = [f"{bucket.label}: {each.detail}" for bucket, each in sorted(self.unserved.items(), key=_by_bucket)]
        rest = len(shown) - MAX_LACKS_SHOWN
        shown[MAX_LACKS_SHOWN:] = [f"and {rest} more"] if rest > 0 else []
        return f"{len(self.unserved)} of {total} buckets are not served: {'; '.join(shown)}"


def _by_bucket(item: tuple[Bucket, Unserved]) -> Bucket:
    return item[0]
