"""The schedule that tells when each sale of a scenario arrives."""

from __future__ import annotations

from functools import lru_cache

from headrace.arrivals import Arrivals
from headrace.demo.scenario import Scenario


@lru_cache(maxsize=4)
def arrivals_of(scenario: Scenario) -> Arrivals:
    """Return the schedule of a scenario, which is computed once per process."""
    return Arrivals(scenario.sales, scenario.seconds, scenario.seed)
