"""When each sale of a scenario comes in."""

from __future__ import annotations

from functools import lru_cache

from headrace.arrivals import Arrivals
from headrace.demo.scenario import Scenario


@lru_cache(maxsize=4)
def arrivals_of(scenario: Scenario) -> Arrivals:
    """The schedule of a scenario; made once a process."""
    return Arrivals(scenario.sales, scenario.seconds, scenario.seed)
