"""The split of a condition into ranges and distances, all of which must hold."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.conditions import AllOf, Band, Between, Compare, Condition, Equal, Intersects, Within
from headrace.errors import BadInput
from headrace.predicates.distances import DistanceTerm
from headrace.predicates.ranges import RangeEnd, RangeTerm

Term = RangeTerm | DistanceTerm


def terms(condition: Condition) -> Iterator[Term]:
    """Yield the ranges and distances that must all hold."""
    match condition:
        case AllOf(conditions):
            for one in conditions:
                yield from terms(one)
        case Equal(left, right):
            for x, y in zip(left, right, strict=True):
                yield RangeTerm(x, RangeEnd(y), RangeEnd(y))
        case Compare(left, op, right):
            if op in ("=", "!="):
                yield RangeTerm(left, RangeEnd(right), RangeEnd(right), outside=op == "!=")
            else:
                end = RangeEnd(right, strict=op in ("<", ">"))
                yield RangeTerm(left, end if op[0] == ">" else None, end if op[0] == "<" else None)
        case Between(column, low, high, side, inclusive, open_ends):
            # whether the lower and the upper bound are exclusive
            above, below = inclusive in ("high", "neither"), inclusive in ("low", "neither")
            if side == "left":
                yield RangeTerm(column, RangeEnd(low, above, open=open_ends), RangeEnd(high, below, open=open_ends))
            else:
                yield RangeTerm(low, None, RangeEnd(column, above))
                yield RangeTerm(high, RangeEnd(column, below), None)
        case Band(left, right, below, above):
            yield RangeTerm(left, RangeEnd(right, shift=below), RangeEnd(right, shift=above))
        case Intersects(left, right):
            half = len(left) // 2
            for i in range(half):
                yield RangeTerm(left[i], None, RangeEnd(right[half + i]))
                yield RangeTerm(left[half + i], RangeEnd(right[i]), None)
        case Within():
            yield DistanceTerm(condition)
        case _:
            raise BadInput(f"{condition!r} is not a condition that a join knows")
