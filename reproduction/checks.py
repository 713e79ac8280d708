"""Expected shapes, checked: who wins and by what factor, where a curve peaks, what it follows. Each states its tolerance."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise

Curve = Sequence[tuple[float, float]]  # (x, y), x rising
Curves = Mapping[str, Curve]


@dataclass(frozen=True)
class Verdict:
    """Whether what was expected was found."""

    expected: str
    found: str
    holds: bool


class Check(ABC):
    """A shape that curves should have."""

    @abstractmethod
    def look(self, curves: Curves) -> Verdict:
        """Whether they do."""


def _curve(curves: Curves, name: str) -> dict[float, float]:
    """A curve by its name; one without points would let a check pass that saw nothing."""
    points = dict(curves.get(name, ()))
    if not points:
        raise LookupError(f"the figure has no points of {name!r}; it has {', '.join(curves)}")
    return points


def _ratio(a: float, b: float) -> float:
    """How many times b is a; nothing is as much as nothing, and anything is endlessly more."""
    return a / b if b else 1.0 if a == 0 else math.inf


def _where(x: float | None) -> str:
    return "everywhere" if x is None else f"at {x:g}"


@dataclass(frozen=True)
class Faster(Check):
    """One curve is so many times another: everywhere, at one x, or (`somewhere`) at some x."""

    series: str
    than: str
    _: KW_ONLY
    at_least: float = 1.0
    at_most: float | None = None
    at: float | None = None
    above: float | None = None  # only for x above this
    somewhere: bool = False

    def look(self, curves: Curves) -> Verdict:
        """Compare where both have a point."""
        mine, other = _curve(curves, self.series), _curve(curves, self.than)
        shared = sorted(
            x
            for x in mine.keys() & other.keys()
            if (self.at is None or x == self.at) and (self.above is None or x > self.above)
        )
        ratios = [_ratio(mine[x], other[x]) for x in shared]
        most = f" and at most {self.at_most:g}" if self.at_most is not None else ""
        where = "somewhere" if self.somewhere else _where(self.at) if self.above is None else f"above {self.above:g}"
        expected = f"{self.series} is at least {self.at_least:g}{most} times {self.than} {where}"
        if not ratios:
            return Verdict(expected, "there is no x at which both were measured", False)
        best = [r >= self.at_least and (self.at_most is None or r <= self.at_most) for r in ratios]
        holds = any(best) if self.somewhere else all(best)
        return Verdict(expected, f"{min(ratios):.3g} to {max(ratios):.3g} times", holds)


@dataclass(frozen=True)
class BestOf(Check):
    """One curve is nowhere below the best of several others by more than a share; at one x, or everywhere."""

    series: str
    others: tuple[str, ...]
    within: float
    at: float | None = None

    def look(self, curves: Curves) -> Verdict:
        """Compare with the best at every x that all were measured at."""
        mine, others = _curve(curves, self.series), [_curve(curves, name) for name in self.others]
        shared = set(mine).intersection(*others)
        ratios = [mine[x] / max(one[x] for one in others) for x in shared if self.at is None or x == self.at]
        expected = (
            f"{self.series} is {_where(self.at)} at least the best of {', '.join(self.others)}, less {self.within:.1%}"
        )
        if not ratios:
            return Verdict(expected, "there is no x at which all were measured", False)
        return Verdict(expected, f"{min(ratios) - 1:+.1%} to {max(ratios) - 1:+.1%}", min(ratios) >= 1 - self.within)


@dataclass(frozen=True)
class Widens(Check):
    """How many times one curve is another grows with x: by this factor in all, and no step falls by more than a share."""

    series: str
    than: str
    factor: float
    steps: float = 0.05

    def look(self, curves: Curves) -> Verdict:
        """The ratio as a curve."""
        mine, other = _curve(curves, self.series), _curve(curves, self.than)
        shared = sorted(mine.keys() & other.keys())
        expected = (
            f"{self.series} over {self.than} grows from first to last to {self.factor:g} times or more, and no step falls by more"
            f" than {self.steps:.0%}"
        )
        ratios = [mine[x] / other[x] for x in shared]
        if len(ratios) < 2:
            return Verdict(expected, "too few points", False)
        steady = all(b / a >= 1 - self.steps for a, b in pairwise(ratios))
        holds = steady and ratios[-1] / ratios[0] >= self.factor
        return Verdict(expected, "ratios " + ", ".join(f"{r:.3g}" for r in ratios), holds)


@dataclass(frozen=True)
class GainsMore(Check):
    """One curve is more times its rival than another curve is its own rival, everywhere: by this factor at least."""

    series: str
    than: str
    other: str
    its: str
    at_least: float = 1.0

    def look(self, curves: Curves) -> Verdict:
        """Compare the ratios where all four have a point."""
        four = [_curve(curves, name) for name in (self.series, self.than, self.other, self.its)]
        shared = sorted(set.intersection(*(set(curve) for curve in four)))
        expected = f"{self.series} over {self.than} is at least {self.at_least:g} times {self.other} over {self.its} everywhere"
        if not shared:
            return Verdict(expected, "there is no x at which all were measured", False)
        mine, other = ([_ratio(a[x], b[x]) for x in shared] for a, b in (four[:2], four[2:]))
        found = ", ".join(f"{a:.3g} and {b:.3g}" for a, b in zip(mine, other, strict=True))
        return Verdict(expected, found, all(a >= self.at_least * b for a, b in zip(mine, other, strict=True)))


@dataclass(frozen=True)
class About(Check):
    """A curve has a value that the text gives, within a share of it: at an x, or everywhere."""

    series: str
    at: float | None
    value: float
    within: float

    def look(self, curves: Curves) -> Verdict:
        """Compare the point that is furthest from it."""
        points = _curve(curves, self.series)
        found = [y for x, y in points.items() if self.at is None or x == self.at]
        expected = f"{self.series} {_where(self.at)} is {self.value:,.6g}, within {self.within:.0%}"
        if not found:
            return Verdict(expected, "not measured there", False)
        worst = max(found, key=lambda y: abs(y - self.value))
        holds = abs(worst - self.value) <= self.within * abs(self.value)
        return Verdict(expected, f"{worst:,.6g}, {worst / self.value - 1:+.1%}", holds)


@dataclass(frozen=True)
class AtLeast(Check):
    """A curve is not below a value: at an x, or everywhere."""

    series: str
    at: float | None
    value: float

    def look(self, curves: Curves) -> Verdict:
        """The lowest of the points in question."""
        found = [y for x, y in _curve(curves, self.series).items() if self.at is None or x == self.at]
        expected = f"{self.series} {_where(self.at)} is {self.value:,.6g} or more"
        if not found:
            return Verdict(expected, "not measured there", False)
        return Verdict(expected, f"{min(found):,.6g}", min(found) >= self.value)


@dataclass(frozen=True)
class AtMost(Check):
    """No curve is above a value; or one is not, everywhere or at an x."""

    value: float
    series: str | None = None
    at: float | None = None

    def look(self, curves: Curves) -> Verdict:
        """The highest of the points in question."""
        names = curves if self.series is None else (self.series,)
        ys = [y for name in names for x, y in _curve(curves, name).items() if self.at is None or x == self.at]
        if self.series is None and self.at is None:
            expected = f"no curve is above {self.value:,.6g}"
        else:
            expected = f"{self.series or 'every curve'} {_where(self.at)} is {self.value:,.6g} or less"
        if not ys:
            return Verdict(expected, "not measured there", False)
        return Verdict(expected, f"{max(ys):,.4g} at most", max(ys) <= self.value)


@dataclass(frozen=True)
class Tracks(Check):
    """One curve follows another: nowhere further away than a share."""

    series: str
    other: str
    within: float

    def look(self, curves: Curves) -> Verdict:
        """Compare where both have a point."""
        mine, other = _curve(curves, self.series), _curve(curves, self.other)
        apart = [abs(mine[x] / other[x] - 1) for x in mine.keys() & other.keys()]
        expected = f"{self.series} is within {self.within:.0%} of {self.other} everywhere"
        if not apart:
            return Verdict(expected, "there is no x at which both were measured", False)
        return Verdict(expected, f"{max(apart):.2%} at most", max(apart) <= self.within)


@dataclass(frozen=True)
class Trend(Check):
    """A curve rises (`factor` above 1) or falls (below 1) from its first point to its last by this factor at least.

    `steps`: how far a step may go the other way, as a share. `at_most`: and by no more than this (of a fall: no less is left).
    """

    series: str
    factor: float
    steps: float = 0.02
    at_most: float | None = None

    def look(self, curves: Curves) -> Verdict:
        """From point to point, and from end to end."""
        points = _curve(curves, self.series)
        ys = [points[x] for x in sorted(points)]
        whole = _ratio(ys[-1], ys[0])
        up = self.factor >= 1
        word, rest = ("rises", "falls") if up else ("falls", "rises")
        limit = "" if self.at_most is None else f", and {'at most' if up else 'no lower than'} {self.at_most:g}"
        expected = (
            f"{self.series} {word} from first to last to {self.factor:g} times or {'more' if up else 'less'}{limit}, and no step"
            f" {rest} by more than {self.steps:.0%}"
        )
        changes = [_ratio(b, a) for a, b in pairwise(ys)]
        steady = all(c >= 1 - self.steps if up else c <= 1 + self.steps for c in changes)
        far = whole >= self.factor if up else whole <= self.factor
        bounded = self.at_most is None or (whole <= self.at_most if up else whole >= self.at_most)
        found = f"{whole:.3g} times, in steps of {min(changes) - 1:+.1%} to {max(changes) - 1:+.1%}"
        return Verdict(expected, found, steady and far and bounded)


@dataclass(frozen=True)
class Level(Check):
    """A curve stays the same, within a share of its mean; from an x on, and up to an x."""

    series: str
    within: float
    after: float | None = None
    before: float | None = None

    def look(self, curves: Curves) -> Verdict:
        """Compare all with their mean."""
        points = _curve(curves, self.series)
        low, high = (
            min(points) if self.after is None else self.after,
            max(points) if self.before is None else self.before,
        )
        ys = [y for x, y in points.items() if low <= x <= high]
        where = "" if self.after is None and self.before is None else f" from {low:g} to {high:g}"
        expected = f"{self.series} stays within {self.within:.0%} of its mean{where}"
        if len(ys) < 2:
            return Verdict(expected, "too few points", False)
        mean = sum(ys) / len(ys)
        apart = max(abs(y / mean - 1) for y in ys)
        return Verdict(expected, f"within {apart:.1%}", apart <= self.within)


@dataclass(frozen=True)
class Peak(Check):
    """A curve has its maximum (or minimum) inside, between two x; the ends lie lower (higher) by these shares at least."""

    series: str
    between: tuple[float, float]
    left: float = 0.0
    right: float = 0.0
    minimum: bool = False

    def look(self, curves: Curves) -> Verdict:
        """Where it is, and how far the ends are from it."""
        points = _curve(curves, self.series)
        xs = sorted(points)
        best = (min if self.minimum else max)(xs, key=lambda x: points[x])
        sign = -1 if self.minimum else 1
        left, right = (sign * (1 - points[x] / points[best]) for x in (xs[0], xs[-1]))
        what, side = ("minimum", "above") if self.minimum else ("maximum", "below")
        expected = (
            f"{self.series} has its {what} between {self.between[0]:g} and {self.between[1]:g}; its ends are {self.left:.0%} and"
            f" {self.right:.0%} {side} it, or more"
        )
        inside = self.between[0] <= best <= self.between[1]
        holds = inside and left >= self.left and right >= self.right
        return Verdict(expected, f"at {best:g}; ends {left:.1%} and {right:.1%} {side}", holds)


@dataclass(frozen=True)
class Knee(Check):
    """A curve does most of its rise by an x: at least `share` of the way from its first point to its highest."""

    series: str
    by: float
    share: float

    def look(self, curves: Curves) -> Verdict:
        """How far up it is at that x."""
        points = _curve(curves, self.series)
        xs = sorted(points)
        start, top = points[xs[0]], max(points.values())
        reached = max((points[x] for x in xs if x <= self.by), default=start)
        share = (reached - start) / (top - start) if top > start else 0.0
        expected = f"{self.series} has done {self.share:.0%} of its rise by {self.by:g}"
        return Verdict(expected, f"{share:.1%}", share >= self.share)
