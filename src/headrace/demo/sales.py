"""The stream of sales. Sale i is a function of the scenario and i, so any executor can generate any part of the stream."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

import numpy as np
import pyarrow as pa

from headrace.arrays import Float64s, Int32s, Int64s
from headrace.arrivals import Arrivals
from headrace.demo.products import codes, sources
from headrace.demo.sale_times import arrivals_of
from headrace.demo.scenario import Scenario
from headrace.splitmix import draw, uniform_floats, uniform_ints

SCHEMA = pa.schema(
    [
        ("sale_id", pa.int64()),
        ("sold_at", pa.timestamp("us", tz="UTC")),
        ("source", pa.string()),
        ("code", pa.string()),
        ("quantity", pa.int32()),
        ("till", pa.int32()),
    ]
)

ABSENT = 0.01  # the share of sales with a code that no source has
OPENING = 1_795_770_000_000_000  # microseconds since 1970 of 2026-11-27 09:00 UTC, when the shops open

_GOLDEN_RATIO = 0.618034  # a stride of this share of the products scatters neighbouring ranks
_TILLS = 400
# a quantity is drawn uniformly from this list, so half of the sales are of one piece
_QUANTITIES = np.array([1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 10], np.int32)


@dataclass(frozen=True)
class Sales:
    """The stream of sales of a scenario.

    Example:
        >>> sales = Sales(Scenario(rate=100, seconds=1, products=10))
        >>> sales.batch(0, 100).slice(40, 10) == sales.batch(40, 50)
        True
    """

    scenario: Scenario

    @property
    def total(self) -> int:
        """The number of sales."""
        return self.scenario.sales

    @property
    def arrivals(self) -> Arrivals:
        """The schedule of their arrivals."""
        return arrivals_of(self.scenario)

    def batch(self, start: int, stop: int) -> pa.RecordBatch:
        """Generate sales `start` to `stop` - 1."""
        ids = np.arange(start, stop, dtype=np.int64)
        numbers = self.products(ids)
        sold_at = OPENING + self.arrivals.time_of(ids)
        columns = [
            pa.array(ids),
            pa.array(sold_at).cast(SCHEMA.field("sold_at").type),
            sources(numbers),
            codes(numbers),
            pa.array(self.quantities(ids)),
            pa.array(uniform_ints(draw(self.scenario.seed, 3, ids), _TILLS).astype(np.int32) + 1),
        ]
        return pa.record_batch(columns, schema=SCHEMA)

    def products(self, ids: Int64s) -> Int64s:
        """Return the product number of each sale. Numbers from `scenario.products` on stand for unknown products."""
        seed, count = self.scenario.seed, self.scenario.products
        rank = np.searchsorted(_zipf(count, self.scenario.skew), uniform_floats(draw(seed, 0, ids)), side="right")
        number = (np.minimum(rank, count - 1) + 1) * _stride(count) % count
        lottery = draw(seed, 1, ids)
        return np.where(uniform_floats(lottery) < ABSENT, count + number, number)

    def quantities(self, ids: Int64s) -> Int32s:
        """Return the number of pieces of each sale."""
        return _QUANTITIES[uniform_ints(draw(self.scenario.seed, 2, ids), len(_QUANTITIES))]


@lru_cache(maxsize=2)
def _zipf(count: int, skew: float) -> Float64s:
    """Return the cumulative distribution of Zipf's law over ranks; its inverse at a uniform number draws a rank."""
    weights = np.arange(1, count + 1, dtype=np.float64) ** -skew
    sums: Float64s = np.cumsum(weights)
    return np.asarray(sums / sums[-1])


def _stride(count: int) -> int:
    """Return the stride that maps rank r to product r * stride mod count, bijectively, as the two have no common divisor.

    Without it the popular products would be neighbours and share pages, which flatters the join.
    """
    stride = max(1, round(count * _GOLDEN_RATIO))
    while gcd(stride, count) != 1:
        stride += 1
    return stride
