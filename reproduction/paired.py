"""A check that compares policies on the same streams, so that differences between streams do not count."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reproduction.checks import Check, Curves, Verdict


@dataclass(frozen=True)
class Leads(Check):
    """Checks that one curve is, on average, nowhere below the best of several others by more than `errors` standard errors.

    The standard error is that of the mean difference of the two curves on the same streams.
    """

    series: str
    others: tuple[str, ...]
    errors: float = 1.0

    def look(self, curves: Curves) -> Verdict:
        """Compare the curves at every x; the y of a point is the list of values of all streams."""
        expected = (
            f"{self.series} is everywhere at least the best of {', '.join(self.others)}, less"
            f" {self.errors:g} standard error{'s' if self.errors != 1 else ''} of their difference on the same streams"
        )
        missing = [name for name in (self.series, *self.others) if not curves.get(name)]
        if missing:
            raise LookupError(f"the figure has no points of {', '.join(missing)}")
        others = [dict(curves[name]) for name in self.others]
        found, holds = [], True
        for x, values in curves[self.series]:
            best = max((np.array(one[x]) for one in others), key=np.mean)
            lead = np.array(values) - best
            error = float(np.std(lead, ddof=1)) / lead.size**0.5
            holds &= bool(lead.mean() >= -self.errors * error)
            found.append(f"{x:g}: {lead.mean() / best.mean():+.2%} (error {error / best.mean():.2%})")
        return Verdict(expected, "; ".join(found), holds)
