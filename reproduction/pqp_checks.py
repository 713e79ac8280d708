"""Checks of [PQP] that compare more than two curves where they end, and parts of a curve with each other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from reproduction.checks import Check, Curves, Verdict


def _ends(curves: Curves, names: tuple[str, ...]) -> list[float]:
    """The last value of each curve."""
    missing = [name for name in names if not curves.get(name)]
    if missing:
        raise LookupError(f"the figure has no points of {', '.join(missing)}")
    return [curves[name][-1][1] for name in names]


@dataclass(frozen=True)
class Descending(Check):
    """Curves end in this order, the highest first; none above the one before it by more than a share."""

    names: tuple[str, ...]
    within: float = 0.01

    def look(self, curves: Curves) -> Verdict:
        """Compare each with the one before it."""
        ends = _ends(curves, self.names)
        steps = [b / a - 1 for a, b in pairwise(ends)]
        expected = f"{', '.join(self.names)}: each ends below the one before it, or above by {self.within:.0%} at most"
        found = f"steps of {', '.join(f'{step:+.1%}' for step in steps)}"
        return Verdict(expected, found, max(steps) <= self.within and ends[-1] < ends[0])


@dataclass(frozen=True)
class Alike(Check):
    """Curves end within a share of their mean."""

    names: tuple[str, ...]
    within: float

    def look(self, curves: Curves) -> Verdict:
        """Compare the one that is furthest from it."""
        ends = _ends(curves, self.names)
        mean = sum(ends) / len(ends)
        expected = f"{', '.join(self.names)} end within {self.within:.0%} of their mean"
        found = ", ".join(f"{end:,.4g}" for end in ends)
        return Verdict(expected, found, max(abs(end / mean - 1) for end in ends) <= self.within)


@dataclass(frozen=True)
class Steeper(Check):
    """A curve rises so many times as fast in one part as in another; parts are given by their ends."""

    series: str
    part: tuple[float, float]
    against: tuple[float, float]
    at_least: float
    at_most: float | None = None

    def look(self, curves: Curves) -> Verdict:
        """Compare the slopes."""
        _ends(curves, (self.series,))
        points = dict(curves[self.series])
        missing = [x for x in (*self.part, *self.against) if x not in points]
        if missing:
            raise LookupError(f"{self.series} has no point at {', '.join(f'{x:g}' for x in missing)}")
        slopes = [(points[b] - points[a]) / (b - a) for a, b in (self.part, self.against)]
        most = "" if self.at_most is None else f" and at most {self.at_most:g}"
        parts = [f"from {a:g} to {b:g}" for a, b in (self.part, self.against)]
        expected = f"{self.series} rises {parts[0]} at least {self.at_least:g}{most} times as fast as {parts[1]}"
        times = slopes[0] / slopes[1] if slopes[1] else 0.0
        holds = times >= self.at_least and (self.at_most is None or times <= self.at_most)
        return Verdict(expected, f"{times:.3g} times: {slopes[0]:,.4g} and {slopes[1]:,.4g} for each percent", holds)
