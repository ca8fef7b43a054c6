"""What a batcher tells those whose requests it does not run: each a pure function of the figures that decided it."""

from __future__ import annotations

from collections.abc import Mapping

from service.buckets import Bucket, Form, Unserved
from service.errors import DeadlineExceeded, NotReady, Overloaded
from service.models import ModelSpec
from service.requests import InferenceRequest
from service.units import NS_PER_MS, NS_PER_S


def unserved_shape(spec: ModelSpec, unserved: Mapping[Bucket, Unserved], request: InferenceRequest) -> NotReady:
    """No bucket holds the request's rows and dims in its form."""
    buckets, form = spec.buckets, request.form
    padded_size, dims = buckets.padded_size(request.rows, form), buckets.padded_dims(request.dims)
    assert dims is not None, "the request's dims were validated before it was submitted"
    if padded_size is None:
        assert form is Form.MEDIA, "and so were the rows of tensors"
        return NotReady(
            f"model '{spec.name}' takes {request.rows} rows of media in no batch: it serves the sizes "
            f"{list(buckets.sizes_of(form))} in this form; send fewer rows, or tensors"
        )
    bucket = Bucket(padded_size, dims, form)
    return NotReady(
        f"model '{spec.name}' does not serve bucket {bucket.label}, nor one that could stand in for it: "
        f"{unserved[bucket].detail}; POST /v2/repository/index tells all that it lacks"
    )


def too_late(model: str, wait_ns: float, allowed_ns: int) -> Overloaded:
    """A lane would reach the request after its deadline."""
    return Overloaded(
        f"model '{model}' is {wait_ns / NS_PER_MS:.0f} ms behind, this request allows "
        f"{max(0, allowed_ns) / NS_PER_MS:.0f} ms; allow a longer timeout or send less at once",
        retry_after_s=wait_ns / NS_PER_S,
    )


def expired(model: str, waited_ns: int) -> DeadlineExceeded:
    """The request's deadline came while it waited."""
    return DeadlineExceeded(
        f"Request timeout expired: it waited {waited_ns / NS_PER_MS:.0f} ms for model '{model}' and was not "
        "run; allow a longer timeout or send less at once"
    )
