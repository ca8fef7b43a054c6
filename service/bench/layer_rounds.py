"""The layers' times beside those of the lanes, a few executions in every round: `inferlane bench --layers --save`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing

from service.bench.recording import LEAST_NS, Place, PlaceKind, Rounds
from service.buckets import Bucket
from service.runtime.protocol import Backend

RUNS = 3
"""Executions with the profiler in a round: rounds differ by more than executions within one."""


class LayerRounds:
    """Probes of every bucket of every model, while the `stack` is open; used by the thread that made it.

    Args:
        backends: the opened models.
        buckets: which to look at; every model knows them.
        stack: closes the probes.

    Raises:
        ModelLoadFailed: a runtime tells nothing of layers.
    """

    def __init__(self, backends: Sequence[Backend], buckets: Sequence[Bucket], stack: ExitStack) -> None:
        self._probes = [
            {bucket: stack.enter_context(closing(backend.create_layer_probe(bucket))) for bucket in buckets}
            for backend in backends
        ]
        self._samples: list[dict[Place, list[tuple[float, ...]]]] = [{} for _ in backends]

    def run(self) -> None:
        """One round, bucket by bucket.

        Raises:
            ServiceError: a model does not run.
        """
        for probes, samples in zip(self._probes, self._samples, strict=True):
            for bucket, probe in probes.items():
                layers = probe.layers(RUNS).layers
                for name, layer in zip(numbered(layer.operation.name for layer in layers), layers, strict=True):
                    times_ns = tuple(max(LEAST_NS, time_s * 1e9) for time_s in layer.times_s)
                    samples.setdefault(Place(bucket.label, PlaceKind.LAYER, name), []).append(times_ns)

    def series(self) -> tuple[dict[Place, Rounds], ...]:
        """The times by layer, of each model."""
        return tuple({place: tuple(rounds) for place, rounds in samples.items()} for samples in self._samples)


def numbered(names: Iterable[str]) -> Iterator[str]:
    """Names that repeat get a number, as `conv #2`: layers keep their order from run to run."""
    seen: Counter[str] = Counter()
    for name in names:
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} #{seen[name]}"
