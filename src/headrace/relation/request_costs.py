"""RequestCosts: what a request and a page of it cost on the disk at hand, learned from the requests that are made.

With T requests in flight that take L seconds each, one comes every L / T seconds. Of requests of m pages that is
seek + m * transfer, a line, which is fitted to what was seen lately: a disk of another kind, or one that others use too, has
other costs than the defaults, and bridging gaps of unwanted pages pays on some and not on others.

A plan makes requests of much the same size, which tell nothing of the slope of the line. So a small part of all pages is read by
other plans: some without bridging, some with wide gaps bridged.
"""

from __future__ import annotations

import math

import numpy as np

_WEIGHT = 0.1  # of a new observation in the mean of requests of its size
_SIZES = 24  # groups of sizes, two for each power of two
_ENOUGH = 4  # observations before the defaults are given up
_RECENT = 512  # observations after which a size that was not seen again is forgotten
_LEAST, _MOST = 0.1, 20.0  # times the defaults
_TURN = 8192  # pages of which some are read by another plan
_TRIAL = 512  # as many
_WIDE = 16  # pages: gaps that the other plan bridges in every second turn; in the others it bridges none


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
        self._observations = 0
        self._last = np.full(_SIZES, -_RECENT)  # the number of the last observation of a size
        self._pages, self._seconds = np.zeros(_SIZES), np.zeros(_SIZES)  # means
        self._planned = 0

    def observe(self, pages: float, seconds: float) -> None:
        """Take in that requests of so many pages in the mean came every so many seconds."""
        self._observations += 1
        size = min(_SIZES - 1, int(2 * math.log2(max(1.0, pages))))
        weight = _WEIGHT if self._observations - self._last[size] < _RECENT else 1.0
        self._last[size] = self._observations
        self._pages[size] += weight * (pages - self._pages[size])
        self._seconds[size] += weight * (seconds - self._seconds[size])
        if self._observations >= _ENOUGH:
            self.now = self._fitted()

    def _fitted(self) -> tuple[float, float]:
        """Return the costs by the line through the sizes seen lately, each with the same weight."""
        recent = self._observations - self._last < _RECENT
        x, y = self._pages[recent], self._seconds[recent]
        seek, transfer = self._defaults
        if x.size > 1 and x.max() > 1.2 * x.min():
            # Errors are in proportion to what is measured, so a second counts the more the fewer there are.
            weight = y**-2 / (y**-2).sum()
            spread = x - weight @ x
            transfer = float((weight * spread) @ y / ((weight * spread) @ spread))
            seek = float(weight @ y - transfer * (weight @ x))
        else:  # all are alike: both costs are as much larger as their sum is
            factor = float(y.mean() / (seek + transfer * x.mean()))
            seek, transfer = factor * seek, factor * transfer
        # Where the system reads ahead, pages beside those that were asked for look as if they cost nothing. What a disk of ours
        # is known to take is the least that they cost beside a request.
        transfer = max(transfer, seek * self._defaults[1] / self._defaults[0])
        usual_seek, usual_transfer = self._defaults
        return (
            min(_MOST * usual_seek, max(_LEAST * usual_seek, seek)),
            min(_MOST * usual_transfer, max(_LEAST * usual_transfer, transfer)),
        )

    def trial(self, pages: int) -> tuple[int, int]:
        """Return how many of the next so many pages are to be read by another plan, and the gaps that it bridges."""
        turn, at = divmod(self._planned, _TURN)
        self._planned += pages
        return min(pages, max(0, _TRIAL - at)), _WIDE if turn % 2 else 0
