"""BatchTimes: how long micro-batches and join phases took lately, and how long the next will take with high probability."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil
from statistics import median

#: Micro-batches that are remembered. What recurs on a machine recurs within some ten of them (Spark compacts its logs, Delta
#: writes a checkpoint, a run log is compacted), so the window has several of each.
WINDOW = 64
QUANTILE = 0.98  # of the times in the window: the longest, until there are so many that one may be a freak
_KNOWN = 8  # micro-batches after which their spread is known well enough
_ASSUMED = 0.25  # of the deadline that a micro-batch is assumed to take before that
_NEAR = 4.0  # join phases of so many times fewer or more pages say how long one takes
_TRUSTED = 3  # of these must have been seen; with fewer, the cost model counts too
_RECENT = 8  # micro-batches by which it is seen that they slow down
_DIGITS = 4  # of seconds: a tenth of a millisecond is less than anything here can be planned by


def high_quantile(values: Iterable[float]) -> float:
    """The value that all but a few are not above (nearest rank); 0 without values.

    Example:
        >>> high_quantile([0.5] * 9 + [1.9])
        1.9
        >>> high_quantile([0.5] * 63 + [60.0])
        0.5
    """
    ordered = sorted(values)
    return ordered[ceil(QUANTILE * len(ordered)) - 1] if ordered else 0.0


@dataclass
class BatchTimes:
    """Times of the last micro-batches of a shard, oldest first. The run log keeps them, so a restart goes on with them."""

    batches: list[list[float]] = field(default_factory=list)
    """of each micro-batch: seconds from its begin to its decision, seconds from there to the begin of the next, and its rows"""
    joins: list[list[float]] = field(default_factory=list)
    """of each join phase: pages wanted, and seconds from the begin of the micro-batch to the end of the phase"""

    # -- what was seen ---------------------------------------------------------------------------------------------------

    def add_batch(self, spent: float, rest: float, rows: int, *, idle: bool) -> None:
        """Note a micro-batch, when the next one begins.

        Parameters
        ----------
        spent, rest
            Seconds to its decision, and from there to the begin of the next.
        rows
            Of the stream in it.
        idle
            Whether nothing was owed after it. Then micro-batches may have come in between that decided nothing and left no
            note, and the time until the next one counts only as far as others have taken.
        """
        if idle and (known := [batch[1] for batch in self.batches]):
            rest = min(rest, max(known))
        self.batches.append([round(max(0.0, spent), _DIGITS), round(max(0.0, rest), _DIGITS), rows])
        del self.batches[:-WINDOW]

    def add_join(self, pages: int, seconds: float) -> None:
        """Note a join phase."""
        self.joins.append([pages, round(max(0.0, seconds), _DIGITS)])
        del self.joins[:-WINDOW]

    # -- what is to be expected ------------------------------------------------------------------------------------------

    def interval(self, deadline: float) -> float:
        """Seconds from the begin of a micro-batch to that of the next, with high probability. More where they slow down."""
        found = [spent + rest for spent, rest, _ in self.batches]
        longest = high_quantile(found)
        if len(found) > 1:
            longest = max(longest, 2 * found[-1] - found[-2])  # the next may be slower by as much again
        return longest if len(found) >= _KNOWN else max(longest, _ASSUMED * deadline)

    def rest(self) -> float:
        """Seconds from a decision to the begin of the next micro-batch, with high probability."""
        return high_quantile(rest for _, rest, _ in self.batches)

    def join(self, pages: int, modelled: float) -> float:
        """Seconds of a micro-batch with a join phase for so many pages, with high probability.

        Parameters
        ----------
        pages
            Pages that are wanted.
        modelled
            What the phase takes by the cost model, which knows nothing of the machine's noise: it counts until phases of this
            size have been seen.
        """
        near = [s * max(1.0, pages / n) for n, s in self.joins if pages / _NEAR <= n <= _NEAR * pages]
        if len(near) >= _TRUSTED:
            return high_quantile(near)
        smaller = [s for n, s in self.joins if n <= _NEAR * pages]
        return max([modelled, *near, *smaller])

    def slowdown(self) -> float:
        """How many times longer micro-batches take than a few before; 1 where they do not slow down, or it is not known."""
        found = [spent + rest for spent, rest, _ in self.batches[-_RECENT:]]
        if len(found) < _RECENT:
            return 1.0
        before, now = median(found[: _RECENT // 2]), median(found[_RECENT // 2 :])
        return max(1.0, now / before) if before > 0 else 1.0

    def rate(self) -> float:
        """Rows a second that came lately; 0 if none is known."""
        lately = self.batches[-_RECENT:]
        seconds = sum(spent + rest for spent, rest, _ in lately)
        return sum(rows for *_, rows in lately) / seconds if seconds > 0 else 0.0
