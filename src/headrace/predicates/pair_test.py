"""PairTest: a part of a condition that is asked of the columns of candidate pairs, as two record batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from headrace.arrays import Bools, Int32s
from headrace.predicates.numbers import Types


class LeftRows(Protocol):
    """Left tuples that are found by a number, wherever they are held."""

    def some_columns(self, names: Sequence[str], slots: Int32s) -> pa.RecordBatch:
        """Copy some columns of the tuples with these numbers."""
        ...


class PairTest(ABC):
    """Tests pairs of rows by their columns, and keeps nothing of a tuple.

    Numbers are compared by terms, which keep a word for each left tuple; texts and whatever a user's function reads have no fixed
    size, so they are copied for the pairs that all terms leave.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    cost = 0  # tests with a lower one are asked first: they are cheaper
    pair_bytes = 0  # memory that the test of a pair takes, beside copies of its columns
    copies = 3  # of its columns that a test makes at most: the pairs as they come, in the stored type, and those that are valid

    @abstractmethod
    def bind(self, left: Types, right: Types, sides: tuple[str, str]) -> None:
        """Take the types of the columns; refuses those that cannot be tested, by name."""

    @abstractmethod
    def can_match(self, batch: pa.RecordBatch) -> Bools | None:
        """Tell which left tuples can match anything; None where all can."""

    @abstractmethod
    def keep(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Bools:
        """Tell for each i whether row i of the left and row i of the right pass."""
