"""What shedding did to counts and sums of results, with confidence intervals, until a replay brings the rows back. [MESH] §4

Rows are shed by a hash of their content: the rows that a task keeps are a random sample of its rows. So what they count for says
what the shed ones would have counted for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Float64s
from headrace.sampling.estimates import amounts
from headrace.sampling.intervals import Estimate, Stratum, estimate_total

ROW = "__headrace_row"  # a column of the stream's rows, with their numbers in the task
_GROWTH = 1 << 14  # rows that there is room for at first


class ResultSums:
    """Sums up the results of each row that a task joins. It takes 8 bytes for a row, and 16 more for each column.

    Parameters
    ----------
    columns
        The result columns that are summed.
    """

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self.rows = 0
        self._sums: Float64s = np.zeros((_GROWTH, 1 + 2 * len(columns)))

    def numbered(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows with their numbers in a last column."""
        for batch in batches:
            numbers = np.arange(self.rows, self.rows + batch.num_rows)
            self.rows += batch.num_rows
            yield batch.append_column(ROW, pa.array(numbers))

    def added(self, out: pa.RecordBatch) -> pa.RecordBatch:
        """Add results to the sums of their rows; gives them without the numbers."""
        at = out.schema.get_field_index(ROW)
        rows = np.asarray(out.column(at))
        while self.rows > len(self._sums):
            self._sums = np.concatenate([self._sums, np.zeros_like(self._sums)])
        np.add.at(self._sums, rows, amounts(out, self.columns))
        return out.remove_column(at)

    def stratum(self, population: int) -> Stratum:
        """What is known of all rows, of which those that were joined are a sample."""
        return Stratum.of(population, self._sums[: self.rows])


def as_facts(columns: Sequence[str], stratum: Stratum) -> dict[str, Any]:
    """A stratum as JSON has it. Infinite variances are those of a sample of one, and are left out."""
    many = stratum.drawn > 1
    return {
        "columns": list(columns),
        "population": stratum.population,
        "drawn": stratum.drawn,
        "means": stratum.means.tolist() if stratum.drawn else None,
        "spread": stratum.spread.tolist() if many else None,
    }


def _stratum(facts: dict[str, Any], amount: int) -> Stratum:
    """The stratum of one amount that `as_facts` wrote."""
    mean = np.nan if facts["means"] is None else facts["means"][amount]
    spread = np.inf if facts["spread"] is None else facts["spread"][amount][amount]
    return Stratum(facts["population"], facts["drawn"], np.array([mean]), np.array([[spread]]))


def missing(found: Sequence[dict[str, Any]], confidence: float = 0.95) -> dict[str, Estimate]:
    """Estimate what shed rows would have counted for and summed up to, by quantity; those that all of them have noted."""
    if not found:
        return {}
    columns = [name for name in found[0]["columns"] if all(name in facts["columns"] for facts in found)]
    out = {}
    for name in (None, *columns):
        strata = [_stratum(facts, 0 if name is None else 1 + 2 * facts["columns"].index(name)) for facts in found]
        whole = estimate_total(strata, confidence)
        kept = sum(s.drawn * float(s.means[0]) for s in strata if s.drawn)
        quantity = "count" if name is None else f"sum({name})"
        out[quantity] = Estimate(whole.estimate - kept, whole.low - kept, whole.high - kept)
    return out
