"""When Spark's own broadcast join should be faster than a join in Python workers: a rule that was measured, and its words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.relation import Relation
from headrace.semistream.sizes import tuple_bytes
from headrace.units import format_size

#: The word for Spark's own broadcast join where `enrich` and pipeline files name an algorithm.
BROADCAST = "broadcast"

# In each micro-batch Spark runs one more job, reads the relation in one Python task, sends and hashes it; a join in Python has
# stream rows handed over and back. Seconds on two cores, relations of 10,000 to 1 million rows of 115 bytes and 500,000 rows a
# micro-batch: the former is worth 380,000 rows of the stream, and one more for each 20 bytes of the relation.
_JOB_ROWS = 380_000
_BYTES_A_ROW = 20
_LARGEST_BATCH = 1_000_000  # rows: where only larger micro-batches would be faster, nothing is said before one comes
_KEY_BYTES = 8  # of a row, beside its payload


@dataclass(frozen=True)
class BroadcastAdvice:
    """What is said of Spark's own join with a relation.

    Parameters
    ----------
    rows, nbytes
        Of the relation: its rows, and the bytes of their key and wanted columns.
    """

    rows: int
    nbytes: int

    @classmethod
    def of(cls, relation: Relation, columns: Sequence[str] | None) -> BroadcastAdvice:
        """For a relation, and its payload columns that are wanted; None for all."""
        each = _KEY_BYTES + tuple_bytes(relation, relation.payload(columns))
        return cls(relation.num_rows, relation.num_rows * each)

    @property
    def least_rows(self) -> int:
        """Stream rows of a micro-batch from which on Spark's join should be faster."""
        return _JOB_ROWS + self.nbytes // _BYTES_A_ROW

    def words(self, batch_rows: int | None = None) -> str:
        """Advice for micro-batches of so many rows, or before any has come; empty where Spark's join should not be faster."""
        if self.least_rows > (_LARGEST_BATCH if batch_rows is None else batch_rows):
            return ""
        seen = "" if batch_rows is None else f", and this one has some {batch_rows:,}"
        return (
            f"algorithm={BROADCAST!r}, Spark's own join, should be faster for micro-batches of more than {self.least_rows:,}"
            f" rows{seen}: it sends and hashes the relation's {format_size(self.nbytes)} in each of them, which takes less time"
            " than to hand as many rows to Python and back"
        )
