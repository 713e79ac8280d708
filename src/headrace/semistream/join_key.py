"""JoinKey: the columns of stream and relation that must be equal, and the keys that are made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Int64s, UInt8s
from headrace.conditions import Equal
from headrace.errors import UnsupportedType
from headrace.relation import Relation
from headrace.relation.columns import NO_BYTES
from headrace.relation.keys import KeyCodec, Keys
from headrace.semistream.waiting_plan import mean_bytes

_ROW_BYTES = 24  # bytes of a tuple of R beside the values it is joined on: where they begin, in two copies, and its row


class JoinKey:
    """What a join is on: the relation's key, or any other of its columns where the relation is scanned.

    Parameters
    ----------
    relation
        R.
    equality
        The columns that must be equal; None where a condition alone decides.
    """

    def __init__(self, relation: Relation, equality: Equal | None) -> None:
        left, right = ((), ()) if equality is None else (equality.left, equality.right)
        self.is_key = sorted(right) == sorted(relation.key)
        if self.is_key:  # in the order of the key
            stream_of = dict(zip(right, left, strict=True))
            left, right = tuple(stream_of[name] for name in relation.key), relation.key
        self.stream, self.relation = left, right
        self.codec = relation.codec if self.is_key or not right else _codec(relation, right)

        # Bytes of a tuple of R in the disk buffer for columns that are not the key: as they are read, and as they are encoded
        self.row_bytes = 0.0 if self.is_key or not right else _ROW_BYTES + 2 * mean_bytes(relation, right)

    @property
    def hashed(self) -> bool:
        """Whether anything must be equal, so that tuples are found by a hash."""
        return bool(self.stream)

    def check(self, stream: pa.Schema) -> None:
        """Refuse stream columns whose values cannot be compared with the relation's, naming both types."""
        if self.stream:
            self.codec.check([stream.field(name) for name in self.stream])

    def of_stream(self, batch: pa.RecordBatch) -> tuple[Keys, UInt8s]:
        """Keys of stream tuples, and validity bytes (empty if no column is null)."""
        return self.codec.encode([batch.column(name) for name in self.stream])

    def of_relation(self, stored: Keys, column: Callable[[str], Any]) -> tuple[Keys, UInt8s]:
        """Keys of tuples of R, whose stored keys these are, and validity bytes; `column` gives any other column of them."""
        if self.is_key:
            return stored, NO_BYTES
        return self.codec.encode([column(name) for name in self.relation])


class TupleColumns:
    """Columns of some tuples of R by name: those of the payload as they were read, those of the key decoded when asked for."""

    def __init__(self, relation: Relation, stored: Keys, payload: Mapping[str, Any]) -> None:
        self._relation, self._stored, self._columns = relation, stored, dict(payload)
        self._rows: Int64s | None = None

    def column(self, name: str) -> Any:
        """A column of the tuples."""
        if name not in self._columns:
            decoded = self._relation.codec.decode(self._stored)
            self._columns |= dict(zip(self._relation.key, decoded, strict=True))
        column = self._columns[name]
        return column if self._rows is None else column.take(pa.array(self._rows))

    def keep(self, rows: Int64s) -> None:
        """Give only these tuples from now on."""
        self._rows = np.asarray(rows)


def _codec(relation: Relation, names: tuple[str, ...]) -> KeyCodec:
    types = [relation.schema.field(name).type for name in names]
    try:
        return KeyCodec(names, types)
    except UnsupportedType as error:
        equal = " and ".join(f"hr.equal(..., {name!r})" for name in names)
        raise UnsupportedType(
            f"on= cannot join on {', '.join(names)}: {error}; give condition={equal} instead"
        ) from error
