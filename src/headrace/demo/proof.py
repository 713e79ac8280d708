"""The proof: the loaded table has the same totals as the generator, and every sale exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Int64s
from headrace.demo.scenario import Scenario
from headrace.demo.totals import CHUNK, COLUMNS, Totals, expected

_CLAIMS = {
    "sales": "sales in the table",
    "quantity": "pieces sold",
    "line_totals": "sum of line totals, cents",
    "unmatched": "sales of unknown products",
    "sale_ids": "sum of sale numbers",
    "checksum": "checksum of all rows",
}


@dataclass(frozen=True)
class Check:
    """A check of one figure: `found` in the table, `expected` by the generator."""

    name: str
    claim: str
    expected: int
    found: int

    @property
    def holds(self) -> bool:
        """Whether both are equal."""
        return self.expected == self.found

    def as_dict(self) -> dict[str, Any]:
        """Return the check by name, for JSON."""
        return {"name": self.name, "expected": self.expected, "found": self.found, "holds": self.holds}


class SaleNumbers:
    """A bitmap of the sale numbers that were seen, which counts duplicates exactly.

    Example:
        >>> seen = SaleNumbers(10)
        >>> seen.add(np.array([3, 4, 3])), seen.add(np.array([4, 9, 77]))
        (None, None)
        >>> seen.distinct, seen.repeated, seen.foreign
        (3, 2, 1)
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.distinct = 0
        self.repeated = 0
        self.foreign = 0
        self._bits = np.zeros(-(-total // 8), np.uint8)

    def add(self, numbers: Int64s) -> None:
        """Add sale numbers."""
        known = np.sort(numbers[(numbers >= 0) & (numbers < self.total)])
        self.foreign += len(numbers) - len(known)
        once = np.unique(known)
        self.repeated += len(known) - len(once)
        byte, bit = once >> 3, np.left_shift(1, once & 7).astype(np.uint8)
        fresh = self._bits[byte] & bit == 0
        self.repeated += int(len(once) - fresh.sum())
        self.distinct += int(fresh.sum())
        if len(once):
            # `once` is sorted, so the bits of one byte are neighbours and are combined before they are set
            first = np.flatnonzero(np.diff(byte, prepend=-1))
            self._bits[byte[first]] |= np.bitwise_or.reduceat(bit, first)


def prove(table: Path, scenario: Scenario, watch: Callable[[int, int], None] | None = None) -> list[Check]:
    """Read the whole table, in bounded memory, and compare it with the generator.

    Args:
        table: the Delta table's directory.
        scenario: the scenario that was loaded.
        watch: called with rows done and the total, which includes the generator's.
    """
    both = 2 * scenario.sales
    tell = watch or (lambda done, of: None)
    found, numbers = Totals(), SaleNumbers(scenario.sales)
    for rows in _read(table):
        found += Totals.of(rows)
        numbers.add(np.asarray(rows.column("sale_id")))
        tell(min(found.sales, scenario.sales), both)
    wanted = expected(scenario, lambda done: tell(scenario.sales + done, both))
    return compare(wanted, found, numbers)


def compare(wanted: Totals, found: Totals, numbers: SaleNumbers) -> list[Check]:
    """Compare every total with its counterpart, and check that every sale is there once."""
    checks = [Check(name, claim, getattr(wanted, name), getattr(found, name)) for name, claim in _CLAIMS.items()]
    return [
        *checks,
        Check("distinct", "different sales", wanted.sales, numbers.distinct),
        Check("repeated", "sales loaded twice", 0, numbers.repeated),
        Check("foreign", "sales that were never made", 0, numbers.foreign),
    ]


def _read(table: Path) -> Iterator[pa.RecordBatch]:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        dataset = DeltaTable(str(table)).to_pyarrow_dataset()
    except TableNotFoundError:
        return  # nothing was loaded, which the totals will show
    batches = dataset.to_batches(columns=list(COLUMNS), batch_size=CHUNK, batch_readahead=2, fragment_readahead=1)
    for batch in batches:
        if batch.num_rows:
            yield batch
