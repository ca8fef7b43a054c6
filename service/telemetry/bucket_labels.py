"""Labels of buckets: bounded, however many buckets there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from service.buckets import Bucket
from service.telemetry.metrics import MAX_BUCKET_LABELS, OTHER_BUCKETS


def bucket_labels(buckets: Iterable[Bucket]) -> dict[Bucket, str]:
    """A label per bucket: its own for the first `MAX_BUCKET_LABELS`, one for all the others."""
    return {
        bucket: bucket.label if index < MAX_BUCKET_LABELS else OTHER_BUCKETS
        for index, bucket in enumerate(dict.fromkeys(buckets))
    }


def sums_by_label(labels: Mapping[Bucket, str], numbers: Mapping[Bucket, int]) -> dict[str, int]:
    """The numbers under their buckets' labels; those under the label that many share are added up."""
    sums: Counter[str] = Counter()
    for bucket, number in numbers.items():
        sums[labels[bucket]] += number
    return dict(sums)
