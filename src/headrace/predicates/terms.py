"""A condition broken up into ranges and distances, all of which must hold."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.conditions import AllOf, Band, Between, Compare, Condition, Equal, Intersects, Within
from headrace.errors import BadInput
from headrace.predicates.distances import Near
from headrace.predicates.ranges import End, Range

Term = Range | Near


def terms(condition: Condition) -> Iterator[Term]:
    """The ranges and distances that all must hold."""
    match condition:
        case AllOf(conditions):
            for one in conditions:
                yield from terms(one)
        case Equal(left, right):
            for x, y in zip(left, right, strict=True):
                yield Range(x, End(y), End(y))
        case Compare(left, op, right):
            if op in ("=", "!="):
                yield Range(left, End(right), End(right), outside=op == "!=")
            else:
                end = End(right, strict=op in ("<", ">"))
                yield Range(left, end if op[0] == ">" else None, end if op[0] == "<" else None)
        case Between(column, low, high, side, inclusive, open_ends):
            # Whether a bound is left out
            above, below = inclusive in ("high", "neither"), inclusive in ("low", "neither")
            if side == "left":
                yield Range(column, End(low, above, open=open_ends), End(high, below, open=open_ends))
            else:
                yield Range(low, None, End(column, above))
                yield Range(high, End(column, below), None)
        case Band(left, right, below, above):
            yield Range(left, End(right, shift=below), End(right, shift=above))
        case Intersects(left, right):
            half = len(left) // 2
            for i in range(half):
                yield Range(left[i], None, End(right[half + i]))
                yield Range(left[half + i], End(right[i]), None)
        case Within():
            yield Near(condition)
        case _:
            raise BadInput(f"{condition!r} is not a condition that a join knows")
