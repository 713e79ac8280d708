"""Clocks, which are passed to what needs the time, so that tests never sleep and runs can be repeated."""

from __future__ import annotations

import time
from typing import Protocol, runtime_checkable

from headrace.errors import BadInput


@runtime_checkable
class Clock(Protocol):
    """A clock that counts seconds from an arbitrary start."""

    def now(self) -> float:
        """Return the seconds since the clock's start."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return when `seconds` have passed."""
        ...


class SystemClock:
    """The machine's monotonic clock.

    Example:
        >>> clock = SystemClock()
        >>> before = clock.now()
        >>> clock.now() >= before
        True
    """

    def now(self) -> float:
        """Return the seconds of the machine's monotonic counter of highest resolution."""
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        """Give up the processor for `seconds`."""
        time.sleep(seconds)

    def __repr__(self) -> str:
        return "SystemClock()"


class WallClock:
    """The clock of seconds since 1970, which is comparable between machines and between runs of a program, but may be set back.

    Example:
        >>> WallClock().now() > 1.7e9
        True
    """

    def now(self) -> float:
        """Return the seconds since 1970-01-01 UTC, as the machine's clock is set."""
        return time.clock_gettime(time.CLOCK_REALTIME)

    def sleep(self, seconds: float) -> None:
        """Give up the processor for `seconds`."""
        time.sleep(seconds)

    def __repr__(self) -> str:
        return "WallClock()"


class ManualClock:
    """A clock that moves only when told: sleeping on it advances it at once.

    Args:
        start: the first value of `now()`.

    Example:
        >>> clock = ManualClock()
        >>> clock.advance(1.5)
        >>> clock.sleep(2)
        >>> clock.now()
        3.5
    """

    def __init__(self, start: float = 0.0) -> None:
        self.start = start
        self._now = float(start)

    def now(self) -> float:
        """Return the seconds as last set."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        if seconds < 0:
            raise BadInput(f"a clock does not go back: seconds={seconds!r}")
        self._now += seconds

    def sleep(self, seconds: float) -> None:
        """Advance the clock by `seconds` at once."""
        self.advance(seconds)

    def __repr__(self) -> str:
        return f"ManualClock({self._now!r})"
