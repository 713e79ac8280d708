"""The split of a condition into terms and tests, all of which must hold.

A term keeps words of fixed size for each left tuple: ranges and distances of numbers, and what passes over texts that cannot
match. A test reads the columns of candidate pairs: texts, values of other types, and a user's function.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.conditions import (
    AllOf,
    Band,
    Between,
    Compare,
    Condition,
    EditDistance,
    Equal,
    Intersects,
    Jaccard,
    Predicate,
    Within,
)
from headrace.errors import BadInput, UnsupportedType
from headrace.predicates.distances import DistanceTerm, Vector
from headrace.predicates.numbers import Scale, Types
from headrace.predicates.pair_test import PairTest
from headrace.predicates.ranges import RangeEnd, RangeTerm
from headrace.predicates.similarity import EditTest, JaccardTest, SimilarityTerm, check_text
from headrace.predicates.texts import HashTerm, SameTest, TextRange, is_text
from headrace.predicates.user import PredicateTest

Term = RangeTerm | DistanceTerm | HashTerm | SimilarityTerm


def split(condition: Condition, right: Types, whose: str) -> tuple[list[Term], list[PairTest]]:
    """Return the terms and the tests that must all hold, the tests in the order in which they are asked.

    The types of the right side's columns tell texts from numbers; one that cannot be compared is refused by name.
    """
    parts = list(_parts(condition, right, whose))
    tests = [part for part in parts if isinstance(part, PairTest)]
    return [part for part in parts if not isinstance(part, PairTest)], sorted(tests, key=lambda test: test.cost)


def _parts(condition: Condition, right: Types, whose: str) -> Iterator[Term | PairTest]:
    match condition:
        case AllOf(conditions):
            for one in conditions:
                yield from _parts(one, right, whose)
        case Equal(xs, ys):
            for x, y in zip(xs, ys, strict=True):
                if Scale.known(right[y]) is not None:
                    yield RangeTerm(x, RangeEnd(y), RangeEnd(y))
                else:
                    yield from _same(x, y, right)
        case Compare(x, "=", y) if is_text(right[y]):
            yield from _same(x, y, right)
        case Compare(x, op, y):
            if op in ("=", "!="):
                yield _range(x, RangeEnd(y), RangeEnd(y), right, whose, outside=op == "!=")
            else:
                end = RangeEnd(y, strict=op in ("<", ">"))
                yield _range(x, end if op[0] == ">" else None, end if op[0] == "<" else None, right, whose)
        case Between(column, low, high, side, inclusive, open_ends):
            # whether the lower and the upper bound are exclusive
            above, below = inclusive in ("high", "neither"), inclusive in ("low", "neither")
            if side == "left":
                ends = RangeEnd(low, above, open=open_ends), RangeEnd(high, below, open=open_ends)
                yield _range(column, *ends, right, whose)
            else:
                yield _range(low, None, RangeEnd(column, above), right, whose)
                yield _range(high, RangeEnd(column, below), None, right, whose)
        case Band(x, y, below, above):
            if is_text(right[y]):
                raise UnsupportedType(
                    f"{whose} column {y!r} has type {right[y]}, and a band is of numbers, dates or timestamps; for texts"
                    " use compare, between, edit_distance or jaccard"
                )
            yield _range(x, RangeEnd(y, shift=below), RangeEnd(y, shift=above), right, whose)
        case Intersects(xs, ys):
            half = len(xs) // 2
            for i in range(half):
                yield _range(xs[i], None, RangeEnd(ys[half + i]), right, whose)
                yield _range(xs[half + i], RangeEnd(ys[i]), None, right, whose)
        case Within():
            Vector(
                whose, condition.right, right, condition.dims
            )  # refuses what is no coordinate before the left side is known
            yield DistanceTerm(condition)
        case EditDistance():
            check_text(condition, whose, condition.right, right)
            yield SimilarityTerm(condition)
            yield EditTest(condition)
        case Jaccard():
            check_text(condition, whose, condition.right, right)
            yield SimilarityTerm(condition)
            yield JaccardTest(condition)
        case Predicate():
            yield PredicateTest(condition)
        case _:
            raise BadInput(f"{condition!r} is not a condition that a join knows")


def _same(x: str, y: str, right: Types) -> Iterator[Term | PairTest]:
    if is_text(right[y]):
        yield HashTerm(x, y)
    yield SameTest(x, y)


def _range(
    x: str, low: RangeEnd | None, high: RangeEnd | None, right: Types, whose: str, *, outside: bool = False
) -> Term | PairTest:
    """Return the range of texts or of numbers, as the ends are; refuses ends that are neither."""
    ends = [end for end in (low, high) if end is not None]
    if any(is_text(right[end.y]) for end in ends):
        return TextRange(x, low, high, outside)
    for end in ends:
        Scale.of(whose, end.y, right[end.y])
    return RangeTerm(x, low, high, outside)
