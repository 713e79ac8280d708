"""Pace: a line after each step of long work, with how many are done, how long it took so far, and how long it will."""

from __future__ import annotations

import sys

from headrace.cli.screen import plain, watched
from headrace.clock import Clock, SystemClock
from headrace.units import format_duration


class Pace:
    """Counts the steps of long work and writes a line on standard error after each, if that is a terminal.

    Args:
        total: steps in all.
        unit: what a step is called, in the plural.
        clock: the clock that the time is taken from.

    Example:
        >>> from headrace.clock import ManualClock
        >>> clock = ManualClock()
        >>> pace = Pace(4, "figures", clock=clock)
        >>> clock.advance(30)
        >>> pace.done("mesh 10b")
        >>> pace.words()
        '1 of 4 figures · 30s so far, about 1m30s left'
    """

    def __init__(self, total: int, unit: str, *, clock: Clock | None = None) -> None:
        self.total = total
        self.unit = unit
        self.count = 0
        self._clock = clock or SystemClock()
        self._begun = self._clock.now()

    def done(self, what: str = "") -> None:
        """Count a step, and tell."""
        self.count += 1
        if watched():
            sys.stderr.write(f"{self.words()}{f' · {plain(what)}' if what else ''}\n")
            sys.stderr.flush()

    def words(self) -> str:
        """Return how it stands. What is left is taken to go on as what is done."""
        passed = max(0.0, self._clock.now() - self._begun)
        words = f"{self.count:,} of {self.total:,} {self.unit} · {_seconds(passed)} so far"
        if 0 < self.count < self.total:
            words += f", about {_seconds(passed / self.count * (self.total - self.count))} left"
        return words


def _seconds(seconds: float) -> str:
    return format_duration(round(seconds) if seconds >= 1 else round(seconds, 1))
