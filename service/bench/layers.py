"""`inferlane bench --layers`: where a bucket's time goes, layer by layer, and how far each layer is from its roof."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from service.backends import MachinePeaks, machine_peaks
from service.bench import saved
from service.bench.run import named_buckets
from service.bench.trtexec import profile_document
from service.diagnosis.layers import LayerTable, classify
from service.errors import InvalidInput, ServiceError
from service.layers.figures import known_share, layer_profile
from service.layers.profile import trace_bucket
from service.runtime.layer_trace import LayerTrace
from service.runtime.protocol import Backend


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketLayers:
    """The layers of one bucket.

    Attributes:
        trace: as they were timed.
        table: each one's place under the roof.
        known_share: share of the time whose FLOPs and bytes are known.
        peaks: what the roof is made of; None where it could not be measured.
        problem: why not; empty otherwise.
    """

    trace: LayerTrace
    table: LayerTable
    known_share: float
    peaks: MachinePeaks | None
    problem: str


def bench_layers(
    backend: Backend, labels: Sequence[str], *, cpu_threads: int, export_profile: Path | None = None
) -> Iterator[BucketLayers]:
    """Times the layers of buckets one after another, the largest first; closes the backend at the end.

    Args:
        backend: the opened model.
        labels: which buckets, such as `8x128`; all known ones if there are none.
        cpu_threads: threads of a model on the CPU.
        export_profile: file to write as trtexec's `--exportProfile`; for one bucket alone.

    Raises:
        InvalidInput: there is no such bucket, or a file is wanted of several.
        ServiceError: the model failed.
    """
    with closing(backend):
        buckets = named_buckets(backend.spec, labels)
        if export_profile is not None and len(buckets) != 1:
            raise InvalidInput("--export-profile writes the layers of one bucket; name it with one --bucket")
        peaks, problem = _peaks(backend, cpu_threads)
        for bucket in buckets:
            trace = trace_bucket(backend, bucket)
            if export_profile is not None:
                saved.write_json(profile_document(trace), export_profile)
            profile = layer_profile(bucket, trace)
            yield BucketLayers(
                trace=trace,
                table=classify(profile, peaks.peaks if peaks is not None else None),
                known_share=known_share(profile),
                peaks=peaks,
                problem=problem,
            )


def _peaks(backend: Backend, cpu_threads: int) -> tuple[MachinePeaks | None, str]:
    """Without them the layers' times are worth reading all the same."""
    try:
        return machine_peaks(backend, cpu_threads=cpu_threads), ""
    except ServiceError as error:
        return None, error.message
