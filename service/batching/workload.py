"""What requests take of a lane, by the cost table."""

from __future__ import annotations

from service.batching.policy import Rules
from service.buckets import Home


class Workload:
    """Costs of rows where they cost least.

    Args:
        rules: what the policy knows of the model.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        # Asked for every request, so the homes that are known beforehand are looked at once.
        self._row_costs_ns = {home: self._row_cost_ns(home) for home in {each.home for each in rules.buckets.known()}}

    def work_ns(self, rows: int, home: Home) -> float:
        """Nanoseconds of one lane that so many rows take in the batch size of `home` that suits them best."""
        return rows * (self._row_costs_ns.get(home) or self._row_cost_ns(home))

    def _row_cost_ns(self, home: Home) -> float:
        return self._rules.costs.row_cost_ns(home, self._rules.buckets.sizes_at(home))
