"""The proof that a row of media answers in company what it answers alone, bucket by bucket.

Rows alone run in the very bucket in which they run together, so the same kernels compute both. That is stricter where
it matters, for what a task wants is often whole numbers (which classes, how many boxes), and those can be held equal
only where nothing else differs: between kernels of two batch sizes, scores that are nearly equal may change places.
That the engine itself mixes no rows is proven on tensors, across buckets (`batch_invariance`).
"""

from __future__ import annotations

from service.buckets import Bucket, Form
from service.errors import DeviceError, ExecutionFailed
from service.models import MediaForm, ModelSpec
from service.requests import Batch
from service.runtime.protocol import Lane
from service.runtime.row_agreement import DISTINCT_ROWS, disagreement
from service.runtime.synthetic import media_rows


def check_media_invariance(lane: Lane, spec: ModelSpec, least_tolerance: float) -> dict[Bucket, str]:
    """Runs rows of media alone and together in every served bucket of more than one row, and compares them.

    Each batch of more than two runs one row short, so that a row without media is tried too. What may differ, see
    `row_agreement`. Runs on the lane's thread, after `warm_up`, with no ticket open.

    Args:
        lane: a warm lane.
        spec: its model.
        least_tolerance: of floats, as a share of their peak, whatever the output's type allows.

    Returns:
        The buckets that failed, and why. None vouches for another.

    Raises:
        DeviceError: the device is lost.
    """
    media = spec.media
    if media is None:
        return {}
    problems = {
        bucket: _problem(lane, spec, media, bucket, least_tolerance)
        for bucket in spec.buckets.known()
        if bucket.form is Form.MEDIA and bucket.padded_size > 1
    }
    return {bucket: problem for bucket, problem in problems.items() if problem is not None}


def _problem(lane: Lane, spec: ModelSpec, media: MediaForm, bucket: Bucket, least_tolerance: float) -> str | None:
    rows = media_rows(media, bucket.dims, count=DISTINCT_ROWS)
    size = max(2, bucket.padded_size - 1)
    repeated = tuple(rows[row % len(rows)] for row in range(size))
    try:
        alone = [lane.sync(lane.enqueue(Batch(bucket, (row,), 1))).outputs[0] for row in rows]
        together = lane.sync(lane.enqueue(Batch(bucket, repeated, size))).outputs
    except (ExecutionFailed, DeviceError) as error:
        if isinstance(error, DeviceError) and error.is_sticky:
            raise
        return error.message
    problem = disagreement(media.outputs, bucket, alone, together, least_tolerance)
    return None if problem is None else f"model '{spec.name}': {problem}"
