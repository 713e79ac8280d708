"""Time is injected, so that a test never sleeps and a run can be repeated."""

from __future__ import annotations

import time
from typing import Protocol, runtime_checkable

from headrace.errors import BadInput


@runtime_checkable
class Clock(Protocol):
    """Monotonic seconds from an arbitrary start."""

    def now(self) -> float:
        """Seconds since the clock's start."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return when `seconds` have passed."""
        ...


class SystemClock:
    """The machine's clock.

    Example:
        >>> clock = SystemClock()
        >>> before = clock.now()
        >>> clock.now() >= before
        True
    """

    def now(self) -> float:
        """Seconds of the machine's highest-resolution monotonic counter."""
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        """Give up the processor for `seconds`."""
        time.sleep(seconds)

    def __repr__(self) -> str:
        return "SystemClock()"


class WallClock:
    """Seconds since 1970: the only clock that two machines, or two lives of a program, have in common. It may be set back.

    Example:
        >>> WallClock().now() > 1.7e9
        True
    """

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC, as the machine believes."""
        return time.clock_gettime(time.CLOCK_REALTIME)

    def sleep(self, seconds: float) -> None:
        """Give up the processor for `seconds`."""
        time.sleep(seconds)

    def __repr__(self) -> str:
        return "WallClock()"


class ManualClock:
    """A clock that moves only when told: sleeping on it advances it at once.

    Args:
        start: what `now()` says first.

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
        """Seconds, as last set."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        if seconds < 0:
            raise BadInput(f"a clock does not go back: seconds={seconds!r}")
        self._now += seconds

    def sleep(self, seconds: float) -> None:
        """The same as `advance`."""
        self.advance(seconds)

    def __repr__(self) -> str:
        return f"ManualClock({self._now!r})"
