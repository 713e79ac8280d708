"""The term of a condition that two vectors are at most eps apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import AnyArray, Bools, Float64s, Int32s, Int64s, UInt8s
from headrace.conditions import METRICS, Within
from headrace.errors import BadInput, UnsupportedType
from headrace.kernels.ranges import near
from headrace.predicates.numbers import Scale, Types
from headrace.predicates.pair_test import LeftRows
from headrace.predicates.ranges import SortedRanges, in_order

SLACK = 4 * np.finfo(np.float64).eps  # relative widening of a search range, so that rounding loses no candidate


class Vector:
    """The vectors of one side: a list column, or numeric columns, one per coordinate.

    Parameters
    ----------
    whose
        The name of the side in errors.
    names
        The columns of the vector.
    types
        The types of the side's columns; a column that is not numeric is refused by name.
    dims
        The number of coordinates; needed for lists that are not of a fixed size.
    """

    def __init__(self, whose: str, names: Sequence[str], types: Types, dims: int | None = None) -> None:
        self.whose, self.names = whose, tuple(names)
        first = types[self.names[0]]
        fixed = pa.types.is_fixed_size_list(first)
        self._list = len(self.names) == 1 and (fixed or pa.types.is_list(first) or pa.types.is_large_list(first))
        self._ragged = self._list and not fixed
        if self._ragged and dims is None:
            raise UnsupportedType(
                f"{whose} column {names[0]!r} has type {first}, which cannot be compared without the number of coordinates; give"
                " within(..., dims=...)"
            )
        if self._list:
            self.size = first.list_size if fixed else int(dims or 0)
            if dims is not None and self.size != dims:
                raise BadInput(f"{whose} column {names[0]!r} has {self.size} coordinates, and dims={dims}")
            self._scales = [self._number(self.names[0], first.value_type)]
        else:
            self.size = len(self.names)
            self._scales = [self._number(name, types[name]) for name in self.names]

    def _number(self, name: str, type_: pa.DataType) -> Scale:
        scale = Scale.of(self.whose, name, type_)
        if scale.family != "number":
            raise BadInput(f"{self.whose} column {name!r} of type {type_} is no coordinate; expected numbers")
        return scale

    def check_size(self, other: Vector) -> None:
        """Refuse vectors of another number of coordinates."""
        if self.size != other.size:
            raise BadInput(
                f"the {self.whose} vector {', '.join(self.names)} has {self.size} coordinates, and the {other.whose} vector"
                f" {', '.join(other.names)} has {other.size}; name as many"
            )

    def read(self, arrays: Sequence[Any]) -> tuple[Float64s, Bools]:
        """Return the coordinates of all vectors in one array, and which vectors are complete: without null or NaN."""
        if not self._list:
            read = [scale.read(array, as_doubles=True) for scale, array in zip(self._scales, arrays, strict=True)]
            vectors = np.stack([np.asarray(values, np.float64) for values, _ in read], axis=1)
            return np.ascontiguousarray(vectors).reshape(-1), np.logical_and.reduce([there for _, there in read])
        lists = arrays[0].combine_chunks() if isinstance(arrays[0], pa.ChunkedArray) else arrays[0]
        if self._ragged:
            self.check(arrays)
            lists = lists.cast(pa.list_(lists.type.value_type, self.size))
        flat = lists.values.slice(lists.offset * self.size, len(lists) * self.size)
        values, there = self._scales[0].read(flat, as_doubles=True)
        whole = there.reshape(-1, self.size).all(axis=1) & lists.is_valid().to_numpy(zero_copy_only=False)
        return np.ascontiguousarray(values, np.float64), whole

    def check(self, arrays: Sequence[Any]) -> None:
        """Refuse a list of another size. Nulls are of none."""
        if not self._ragged:
            return
        sizes = pc.list_value_length(arrays[0])
        wrong = pc.drop_null(pc.filter(sizes, pc.not_equal(sizes, self.size)))
        if len(wrong):
            raise BadInput(
                f"a list of {self.whose} column {self.names[0]!r} has {wrong[0]} coordinates, and dims={self.size}; leave such"
                " rows out, or make the list null"
            )


class DistanceTerm(SortedRanges):
    """Tests whether the distance of two vectors is at most eps."""

    rank = 1
    exact_lead, prefilter = False, False  # the first coordinate finds too many pairs; the distance decides

    def __init__(self, condition: Within) -> None:
        self.condition = condition
        self.size = len(condition.right)  # coordinates; of a list column they are known in `bind`
        self.values: Float64s = np.empty(0, np.float64)  # vectors of left tuples by slot, as one array of coordinates

    def bind(self, left: Types, right: Types, sides: tuple[str, str]) -> None:
        """Take the types of the columns; refuses vectors of different sizes."""
        self._left = Vector(sides[0], self.condition.left, left, self.condition.dims)
        self._right = Vector(sides[1], self.condition.right, right, self.condition.dims)
        self._left.check_size(self._right)
        self.size = self._right.size

    def read_left(self, batch: pa.RecordBatch) -> tuple[Float64s, Bools]:
        """Return the coordinates of the vectors of left tuples, and which vectors are complete."""
        return self._left.read([batch.column(name) for name in self.condition.left])

    def read_right(self, columns: dict[str, pa.Array]) -> None:
        """Read the vectors of the right tuples that `keep` and `spans` refer to."""
        self._vectors, self._there = self._right.read([columns[name] for name in self.condition.right])

    def keep(self, r: Int32s, slots: Int32s, keep: UInt8s) -> None:
        """Set keep[k] to 0 where right tuple r[k] and the left tuple in slots[k] are too far apart."""
        keep &= self._there[r].view(np.uint8)
        eps, metric = float(self.condition.eps), METRICS.index(self.condition.metric)
        near(self.values, self._vectors, self.size, eps, metric, r, slots, keep)

    def in_order(self, slots: Int32s, rows: LeftRows) -> tuple[AnyArray, Int32s]:
        """Return the first coordinates of the vectors in some slots, sorted, and their slots."""
        return in_order(self.values[:: self.size], slots)

    def spans(self, xs: Float64s) -> tuple[Int64s, Int64s]:
        """Return the range of candidates of each right tuple among sorted first coordinates of left vectors."""
        if self.condition.metric == "cosine":  # no coordinate says anything of an angle
            begin = np.zeros(self._there.size, np.int64)
            return begin, np.where(self._there, xs.size, begin)
        first, eps = self._vectors[:: self.size], float(self.condition.eps)
        slack = SLACK * (np.abs(first) + eps)
        begin = np.searchsorted(xs, first - eps - slack, "left").astype(np.int64)
        end = np.searchsorted(xs, first + eps + slack, "right").astype(np.int64)
        return begin, np.where(self._there, end, begin)
