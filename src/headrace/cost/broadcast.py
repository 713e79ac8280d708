"""When Spark's own broadcast join should be faster than a join in Python workers: a rule that was measured, and its words."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.relation import Relation
from headrace.semistream.sizes import tuple_bytes
from headrace.units import format_size

#: The word for Spark's own broadcast join where `enrich` and pipeline files name an algorithm.
BROADCAST = "broadcast"

_KEY_BYTES = 8  # of a row, beside its payload
# Bytes of the wanted columns up to which Spark's join was the faster one. It sends the relation and builds its hash table anew in
# each micro-batch, which takes longer the larger the relation is; to hand rows to Python and back takes as long for any relation.
WORTH_BROADCASTING = 4 << 20


def broadcast_advice(relation: Relation, columns: Sequence[str] | None) -> str:
    """Say that algorithm="broadcast" should be faster, and why; nothing where it should not.

    Parameters
    ----------
    relation, columns
        The relation, and its payload columns that are wanted; None for all.
    """
    nbytes = relation.num_rows * (_KEY_BYTES + tuple_bytes(relation, relation.payload(columns)))
    if nbytes > WORTH_BROADCASTING:
        return ""
    return (
        f"algorithm='broadcast', Spark's own join, should be faster: {relation.num_rows:,} rows take {format_size(nbytes)}, and"
        f" up to {format_size(WORTH_BROADCASTING)} Spark builds its table faster than Python workers are handed the stream"
    )
