"""Leads: the part of a condition on two sides that finds pairs, as a condition of ProgressiveJoin on computed columns.

A lead lets pass every pair that the condition lets pass, and perhaps a few more: hr.within has <= where SQL has <, and
numbers are rounded. So all but equality and intersection are asked again of each pair.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from headrace.conditions import Condition, EditDistance, Equal, Intersects, Jaccard, Within
from headrace.feeds.sql.binder import FLIPPED
from headrace.feeds.sql.expressions import Call, Constant, Expr, call
from headrace.feeds.sql.kernels.places import SIDES, chord

LeadKind = Literal["equal", "intersects", "within_km", "dist", "edit_distance", "similarity", "difference"]
RANKS: tuple[LeadKind, ...] = ("equal", "intersects", "within_km", "dist", "edit_distance", "similarity", "difference")
"""What is taken first where a query has several: the one that usually leaves the fewest pairs."""
_WIDER = 1 + 1e-9  # times a distance: rounding must lose no pair
_LEAST = 1e-9  # the least distance of a grid: cells would be too many to be counted
BOX_CELL = 10.0  # degrees: the width of a cell of boxes on Spark, where the first boxes do not tell


@dataclass(frozen=True)
class Lead:
    """Columns to be computed of each side, and the condition on them.

    Args:
        kind: what it is.
        left, right: what is computed of each side, in pairs.
        reach: the largest distance, of `within`.
        texts: for similarity: the least similarity, or the most edits, of the last column of each side.
        exact: whether every pair that it finds satisfies the condition.
    """

    kind: LeadKind
    left: tuple[Expr, ...]
    right: tuple[Expr, ...]
    reach: float = 0.0
    texts: float | int | None = None
    exact: bool = False

    def conditions(self, left: tuple[str, ...], right: tuple[str, ...]) -> list[Condition]:
        """The conditions on columns of these names, the one that divides the sides first."""
        if self.kind == "equal":
            return [Equal(left, right)]
        if self.kind == "intersects":
            return [Intersects(left, right)]
        if self.kind == "similarity" and self.texts is not None:
            return [Within(left[:1], right[:1], self.reach), Jaccard(left[1], right[1], float(self.texts))]
        if self.kind == "edit_distance":
            return [Within(left[:1], right[:1], self.reach), EditDistance(left[1], right[1], int(self.texts or 0))]
        return [Within(left, right, self.reach)]

    @property
    def cell(self) -> tuple[float, ...] | None:
        """The width of a cell of boxes."""
        return (BOX_CELL, BOX_CELL) if self.kind == "intersects" else None


def aliases_of(expr: Expr) -> frozenset[str]:
    """The sources that an expression reads."""
    return frozenset(name.rsplit("__", 1)[0] for name in expr.columns)


def find_lead(condition: Expr, left: Collection[str], right: str) -> Lead | None:
    """The lead that a condition gives for a join of some sources with one more; None if it gives none."""
    if not isinstance(condition, Call):
        return None
    if condition.kernel == "intersects":
        sides = _sides(condition.arguments, left, right)
        if sides is None:
            return None
        boxes = [tuple(call("box_side", "double", [box], side) for side in SIDES) for box in sides]
        return Lead("intersects", boxes[0], boxes[1], exact=True)
    if condition.kernel == "=":
        sides = _sides(condition.arguments, left, right)
        return None if sides is None else Lead("equal", (key_of(sides[0]),), (key_of(sides[1]),), exact=True)
    if condition.kernel not in FLIPPED:
        return None
    measure, bound = condition.arguments
    word = condition.kernel
    if isinstance(measure, Constant):
        measure, bound, word = bound, measure, FLIPPED[word]
    if not isinstance(measure, Call) or not isinstance(bound, Constant) or bound.value is None:
        return None
    if measure.kernel == "similarity":
        return _similar(measure, bound.value, left, right) if word in (">", ">=") else None
    if word not in ("<", "<="):
        return None
    return _near(measure, bound, left, right)


def _near(measure: Call, bound: Constant, left: Collection[str], right: str) -> Lead | None:
    """The lead of a distance that is at most so large."""
    value = bound.value
    if measure.kernel == "edit_distance":
        sides = _sides(measure.arguments, left, right)
        if sides is None or value < 0:
            return None
        sizes = [call("to double", "double", [call("length", "integer", [one])]) for one in sides]
        return Lead("edit_distance", (sizes[0], sides[0]), (sizes[1], sides[1]), value + 0.5, math.floor(value))
    if measure.kernel == "to double" and isinstance(measure.arguments[0], Call):
        return _near(measure.arguments[0], bound, left, right)
    if measure.kernel == "abs" and isinstance(measure.arguments[0], Call) and measure.arguments[0].kernel == "-":
        sides = _sides(measure.arguments[0].arguments, left, right)
        if sides is None or value < 0:
            return None
        x, y = (call("finite", "double", [call("to double", "double", [one])]) for one in sides)
        return Lead("difference", (x,), (y,), max(float(value) * _WIDER, _LEAST))
    if measure.kernel not in ("dist", "geo_km") or value < 0:
        return None
    pairs = [_sides(measure.arguments[i::2], left, right) for i in (0, 1)]
    if pairs[0] is None or pairs[1] is None:
        return None
    points = [(pairs[0][side], pairs[1][side]) for side in (0, 1)]
    if measure.kernel == "dist":
        coordinates = [tuple(call("finite", "double", [one]) for one in point) for point in points]
        return Lead("dist", coordinates[0], coordinates[1], max(float(value) * _WIDER, _LEAST))
    spots = [tuple(call("on_sphere", "double", point, axis) for axis in (0, 1, 2)) for point in points]
    return Lead("within_km", spots[0], spots[1], max(chord(float(value)), _LEAST))


def _similar(measure: Call, least: float, left: Collection[str], right: str) -> Lead | None:
    """The lead of a similarity: texts that share a part t of their grams have numbers of grams within a factor of 1 / t."""
    sides = _sides(measure.arguments, left, right)
    if sides is None or not 0 < least <= 1:
        return None
    sizes = [call("gram_size", "double", [one]) for one in sides]
    return Lead(
        "similarity", (sizes[0], sides[0]), (sizes[1], sides[1]), -math.log(least) * _WIDER + 1e-6, float(least)
    )


def _sides(values: Sequence[Expr], left: Collection[str], right: str) -> tuple[Expr, Expr] | None:
    """Two values as that of the left and that of the right side; None if they are not one of each."""
    for x, y in (values, values[::-1]):
        if aliases_of(x) and aliases_of(x) <= set(left) and aliases_of(y) == {right}:
            return x, y
    return None


def key_of(value: Expr) -> Expr:
    """A value as one that a join can hash: equal where the value is."""
    if value.kind == "double":
        return Call("integer", "bits", (value,))
    if value.kind in ("boolean", "moment", "interval"):
        return Call("integer", "as integer", (value,))
    return value
