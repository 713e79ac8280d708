"""RequestCosts: what a request and a page of it cost on the disk at hand, learned from the requests that are made.

With T requests in flight that take L seconds each, one comes every L / T seconds. Of requests of m pages that is
seek + m * transfer, a line, which is fitted to what was seen lately: a disk of another kind, or one that others use too, has
other costs than the defaults, and bridging gaps of unwanted pages pays on some and not on others.
"""

from __future__ import annotations

_WEIGHT = 0.9  # by which what was seen before counts less with each new observation
_ENOUGH = 4.0  # observations, weighed, before the line counts
_SPREAD = (
    0.05  # of the number of pages: variance beside the square of the mean below which the line's slope means nothing
)
_LEAST, _MOST = 0.1, 20.0  # times the defaults


class RequestCosts:
    """A line through observations of the pages of a request and the seconds between two of them.

    Parameters
    ----------
    seek, transfer
        Seconds of a request and of a page of it, before anything was seen. A page never costs less beside a request than here.

    Example
    -------
    >>> costs = RequestCosts(9e-6, 2e-6)
    >>> for pages in (1.0, 4.0) * 20:
    ...     costs.observe(pages, 5e-6 + pages * 10e-6)
    >>> [round(cost * 1e6, 1) for cost in costs.now]
    [5.0, 10.0]
    """

    def __init__(self, seek: float, transfer: float) -> None:
        self._defaults = seek, transfer
        self.now = seek, transfer
        # Of the weights, the pages, their squares, the seconds, and the products of pages and seconds.
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)

    def observe(self, pages: float, seconds: float) -> None:
        """Take in that requests of so many pages in the mean came every so many seconds."""
        new = (1.0, pages, pages * pages, seconds, pages * seconds)
        self._sums = tuple(_WEIGHT * old + one for old, one in zip(self._sums, new, strict=True))  # type: ignore[assignment]
        n, x, xx, y, xy = self._sums
        if n < _ENOUGH:
            return
        seek, transfer = self._defaults
        variance = xx / n - (x / n) ** 2
        if variance > _SPREAD * (x / n) ** 2:
            transfer = (xy / n - x * y / n / n) / variance
            seek = y / n - transfer * x / n
        else:  # all are alike: both costs are as much larger as their sum is
            factor = y / n / (seek + transfer * x / n)
            seek, transfer = factor * seek, factor * transfer
        # Where the system reads ahead, pages beside those that were asked for look as if they cost nothing. What a disk of ours
        # is known to take is the least that they cost beside a request.
        transfer = max(transfer, seek * self._defaults[1] / self._defaults[0])
        known = zip((seek, transfer), self._defaults, strict=True)
        self.now = tuple(min(_MOST * usual, max(_LEAST * usual, cost)) for cost, usual in known)  # type: ignore[assignment]
