import pytest

from service.buckets import Bucket
from service.telemetry.bucket_labels import bucket_labels, sums_by_label
from service.telemetry.metrics import MAX_BUCKET_LABELS, OTHER_BUCKETS


@pytest.mark.parametrize("count", [0, MAX_BUCKET_LABELS, MAX_BUCKET_LABELS + 1, MAX_BUCKET_LABELS + 30])
def test_labels_of_buckets_are_bounded(count):
    buckets = [Bucket(2, (dim,)) for dim in range(count)]
    labels = bucket_labels([*buckets, *buckets])
    own = min(count, MAX_BUCKET_LABELS)
    assert list(labels) == buckets
    assert list(labels.values()) == [bucket.label for bucket in buckets[:own]] + [OTHER_BUCKETS] * (count - own)


def test_numbers_under_a_shared_label_add_up():
    labels = {Bucket(1): "1", Bucket(2): "other", Bucket(4): "other"}
    assert sums_by_label(labels, {Bucket(1): 5, Bucket(2): 6, Bucket(4): 7}) == {"1": 5, "other": 13}
