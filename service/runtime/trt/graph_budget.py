"""Which buckets keep their CUDA Graphs where the memory for graphs does not hold them all. Pure functions.

A graph saves the host's time of launching kernel by kernel. That weighs most where kernels are short, in the smallest
buckets: for ResNet-50 on an H200 a replay is 19 % quicker than an enqueue at one image and 2 % at 128. So the largest
give up their graphs first. Graphs are captured all the same, largest bucket first, because nothing tells beforehand how
much memory one takes.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.buckets import Bucket

DEFAULT_SHARE = 10
"""Without a word in the card, the graphs of a lane may take this part, a tenth, of what is free when it is made."""


def over_budget(graph_bytes: Mapping[Bucket, int], budget_bytes: int) -> tuple[Bucket, ...]:
    """The buckets whose graphs must go, largest first, so that the others fit.

    Args:
        graph_bytes: what was measured around the captures, by bucket. CUDA reserves memory for several graphs at once,
            so some show nothing; they stay, for nothing would be won.
        budget_bytes: what all of them may take.
    """
    excess_bytes = sum(graph_bytes.values()) - budget_bytes
    victims = []
    for bucket in sorted(graph_bytes, key=lambda bucket: (bucket.volume, bucket), reverse=True):
        if excess_bytes <= 0:
            break
        if graph_bytes[bucket] > 0:
            victims.append(bucket)
            excess_bytes -= graph_bytes[bucket]
    return tuple(victims)
