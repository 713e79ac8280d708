"""A user's own function of two record batches as a part of a condition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools
from headrace.conditions import Predicate
from headrace.errors import BadInput, OutsideFailure, shown
from headrace.predicates.numbers import Types
from headrace.predicates.pair_test import PairTest
from headrace.predicates.texts import bools


class PredicateTest(PairTest):
    """Asks a user's function about pairs of rows."""

    cost = 2  # what it costs is not known: it sees only pairs that pass everything else
    pair_bytes = 64  # what the function makes on the way is the user's; this is for its answer, and a few numbers

    def __init__(self, condition: Predicate) -> None:
        self.condition = condition
        self.left, self.right = condition.left, condition.right
        self._names = condition.names or (condition.left, condition.right)

    def bind(self, left: Types, right: Types, sides: tuple[str, str]) -> None:
        """Take any types: the function knows what to do with them."""

    def can_match(self, batch: pa.RecordBatch) -> Bools | None:
        """Let all left tuples match, since the function may accept nulls."""
        return None

    def keep(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Bools:
        """Tell what the function says of each row."""
        a = left.select(list(self.left)).rename_columns(list(self._names[0]))
        b = right.select(list(self.right)).rename_columns(list(self._names[1]))
        called = self.condition.called
        try:
            answer = self.condition.fn(a, b)
        except Exception as error:
            raise OutsideFailure(
                f"the predicate {called} failed on {a.num_rows:,} pairs of {', '.join(self._names[0])} and"
                f" {', '.join(self._names[1])}: {type(error).__name__}: {shown(error)}"
            ) from error
        return _answers(called, answer, a.num_rows)


def _answers(called: str, answer: Any, pairs: int) -> Bools:
    """Return what a function answered; refuses anything but a boolean for each pair."""
    expected = f"expected an Arrow or NumPy array of {pairs:,} booleans, one for each pair of rows"
    if isinstance(answer, pa.Array | pa.ChunkedArray):
        type_, size = answer.type, len(answer)
        is_boolean = pa.types.is_boolean(answer.type)
    elif isinstance(answer, np.ndarray) and answer.ndim == 1:
        type_, size = answer.dtype, answer.size
        is_boolean = answer.dtype == np.bool_
    else:
        raise BadInput(f"the predicate {called} returned {shown(answer)} of type {type(answer).__name__}; {expected}")
    if not is_boolean:
        raise BadInput(f"the predicate {called} returned values of type {type_}; {expected}")
    if size != pairs:
        raise BadInput(f"the predicate {called} returned {size:,} values; {expected}")
    return answer if isinstance(answer, np.ndarray) else bools(answer)
