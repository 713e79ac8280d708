"""Two vectors are at most eps apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Float64s, Int32s, Int64s, UInt8s
from headrace.conditions import METRICS, Within
from headrace.errors import BadInput
from headrace.kernels.ranges import near
from headrace.predicates.numbers import Scale, Types

SLACK = 4 * np.finfo(np.float64).eps  # of a coordinate: a candidate lost by rounding would be a result lost


class Vector:
    """A side's vectors: a fixed-size list column, or numeric columns, one a coordinate.

    Parameters
    ----------
    whose
        What to call the side.
    names
        Its columns.
    types
        Types of the side's columns; what is no number is refused by name.
    """

    def __init__(self, whose: str, names: Sequence[str], types: Types) -> None:
        self.whose, self.names = whose, tuple(names)
        first = types[self.names[0]]
        self._list = len(self.names) == 1 and pa.types.is_fixed_size_list(first)
        if self._list:
            self.size = first.list_size
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
        """Vectors, coordinate after coordinate, and which there are: without nulls and NaN."""
        if not self._list:
            read = [scale.read(array, as_doubles=True) for scale, array in zip(self._scales, arrays, strict=True)]
            vectors = np.stack([np.asarray(values, np.float64) for values, _ in read], axis=1)
            return np.ascontiguousarray(vectors).reshape(-1), np.logical_and.reduce([there for _, there in read])
        lists = arrays[0].combine_chunks() if isinstance(arrays[0], pa.ChunkedArray) else arrays[0]
        flat = lists.values.slice(lists.offset * self.size, len(lists) * self.size)
        values, there = self._scales[0].read(flat, as_doubles=True)
        whole = there.reshape(-1, self.size).all(axis=1) & lists.is_valid().to_numpy(zero_copy_only=False)
        return np.ascontiguousarray(values, np.float64), whole


class DistanceTerm:
    """The distance of two vectors is at most eps."""

    rank, outside = 1, False

    def __init__(self, condition: Within) -> None:
        self.condition = condition
        self.size = len(condition.right)  # until the types are known, if that is a list
        self.values: Float64s = np.empty(0, np.float64)  # of left tuples, by slot, coordinate after coordinate

    def bind(self, left: Types, right: Types, sides: tuple[str, str]) -> None:
        """Check that both sides are vectors of one size."""
        self._left = Vector(sides[0], self.condition.left, left)
        self._right = Vector(sides[1], self.condition.right, right)
        self._left.check_size(self._right)
        self.size = self._right.size

    def read_left(self, batch: pa.RecordBatch) -> tuple[Float64s, Bools]:
        """Vectors of left tuples, coordinate after coordinate, and which there are."""
        return self._left.read([batch.column(name) for name in self.condition.left])

    def meet(self, columns: dict[str, pa.Array]) -> None:
        """Vectors of right tuples."""
        self._vectors, self._there = self._right.read([columns[name] for name in self.condition.right])

    def keep(self, r: Int32s, slots: Int32s, keep: UInt8s) -> None:
        """keep[k] becomes 0 where pair k does not satisfy it."""
        keep &= self._there[r].view(np.uint8)
        eps, metric = float(self.condition.eps), METRICS.index(self.condition.metric)
        near(self.values, self._vectors, self.size, eps, metric, r, slots, keep)

    def spans(self, xs: Float64s) -> tuple[Int64s, Int64s]:
        """Where each right tuple finds its candidates in sorted first coordinates."""
        first, eps = self._vectors[:: self.size], float(self.condition.eps)
        slack = SLACK * (np.abs(first) + eps)
        begin = np.searchsorted(xs, first - eps - slack, "left").astype(np.int64)
        end = np.searchsorted(xs, first + eps + slack, "right").astype(np.int64)
        return begin, np.where(self._there, end, begin)
