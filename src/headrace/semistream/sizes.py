"""Sizes of a relation's tuples in memory, which every operator plans its buffers by."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.relation import Relation
from headrace.relation.columns import Column


def tuple_bytes(relation: Relation, payload: Sequence[Column]) -> int:
    """Mean bytes of a tuple's payload columns in memory: a text column has an offset, a nullable one a flag."""
    rows = max(1, relation.num_rows)
    total = 0.0
    for column in payload:
        total += column.width or 4 + relation.variable_bytes[column.name] / rows
        total += 1 if column.nullable else 0
    return int(total) + 1
