"""A closed loop of single rows of mixed lengths through queue, policy and lanes, without HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from service.errors import InvalidInput
from service.models import ModelSpec
from service.repository.served import ServedModel
from service.requests import Clock, InferenceRequest, Stamps
from service.runtime.synthetic import synthetic_request

_SEED = 20261130
_DISTINCT_REQUESTS = 512
_PATIENCE_NS = 3_600_000_000_000


@dataclass(frozen=True, slots=True)
class MixedFigures:
    """What a served model did with the mix.

    Attributes:
        concurrency: requests in flight.
        requests_per_s: answered.
        p50_ms: from the submission to the answer.
        p99_ms: likewise.
    """

    concurrency: int
    requests_per_s: float
    p50_ms: float
    p99_ms: float


async def run_mixed(
    served: ServedModel,
    lengths: Mapping[str, tuple[int, int]],
    *,
    concurrency: int,
    duration_s: float,
    clock: Clock = time.monotonic_ns,
) -> MixedFigures:
    """Keeps `concurrency` requests of one row in flight for `duration_s`, after as long again unmeasured.

    Args:
        served: a loaded model; on its event loop.
        lengths: smallest and largest size of every dynamic dimension, by name; drawn so that each doubling is as
            frequent as the next, as the lengths of sentences and documents roughly are.
        concurrency: requests in flight.
        duration_s: measured time.
        clock: monotonic nanoseconds.

    Raises:
        InvalidInput: a dynamic dimension has no range, or a range is of none.
        ServiceError: the model failed.
    """
    requests = _requests(served.spec, lengths)
    durations_ns: list[int] = []
    measured_from_ns = clock() + round(duration_s * 1e9)
    until_ns = measured_from_ns + round(duration_s * 1e9)

    async def client(offset: int) -> None:
        index = offset
        while (submitted_ns := clock()) < until_ns:
            request = requests[index % len(requests)]
            index += concurrency
            fresh = replace(request, stamps=Stamps(submitted_ns), deadline_ns=submitted_ns + _PATIENCE_NS)
            await served.batcher.submit(fresh).future
            ended_ns = clock()
            if measured_from_ns <= ended_ns < until_ns:
                durations_ns.append(ended_ns - submitted_ns)

    await asyncio.gather(*(client(offset) for offset in range(concurrency)))
    p50_ns, p99_ns = np.quantile(np.asarray(durations_ns), (0.5, 0.99))
    return MixedFigures(concurrency, len(durations_ns) / duration_s, float(p50_ns) / 1e6, float(p99_ns) / 1e6)


def _requests(spec: ModelSpec, lengths: Mapping[str, tuple[int, int]]) -> Sequence[InferenceRequest]:
    unknown = [name for name in lengths if name not in spec.buckets.dim_names]
    if unknown:
        has = ", ".join(spec.buckets.dim_names) or "no dynamic dimension besides the rows"
        raise InvalidInput(f"--dim names {', '.join(unknown)}, but model '{spec.name}' has {has}")
    for name, sizes in zip(spec.buckets.dim_names, spec.buckets.dim_sizes, strict=True):
        largest = sizes[-1] if sizes else None
        if name not in lengths:
            raise InvalidInput(f"sizes of {name} are needed, such as --dim {name}=8:{largest or 512}")
        if largest is not None and lengths[name][1] > largest:
            raise InvalidInput(
                f"--dim {name}={lengths[name][0]}:{lengths[name][1]} exceeds the largest bucket, {largest}"
            )
    rng = np.random.default_rng(_SEED)
    ranges = [lengths[name] for name in spec.buckets.dim_names]
    all_dims = [tuple(_log_uniform(rng, low, high) for low, high in ranges) for _ in range(_DISTINCT_REQUESTS)]
    return [synthetic_request(spec, dims, rows=1, seed=index) for index, dims in enumerate(all_dims)]


def _log_uniform(rng: np.random.Generator, low: int, high: int) -> int:
    return min(high, int(np.exp(rng.uniform(np.log(low), np.log(high + 1)))))
