"""Doors: when a run begins to take sales. The source opens them when Spark is ready; the driver reads the time."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from headrace.clock import Clock


class Doors:
    """The run's own time, in the schedule's microseconds; it stands still until the doors are open.

    Spark takes seconds to start a query, and sales would pile up meanwhile. It keeps the source in a process of its own;
    so the source writes down the moment at which it opens, for the driver. `SystemClock` counts from the machine's start,
    which is the same in every process.

    Args:
        path: the file with the time of opening.
        since: the microsecond of the schedule at which this run begins: 0, or the arrival of the first sale not loaded.

    Example:
        >>> import tempfile
        >>> from headrace.clock import ManualClock
        >>> clock, doors = ManualClock(100.0), Doors(Path(tempfile.mkdtemp()) / "doors", since=7)
        >>> doors.elapsed(clock)
        7
        >>> doors.open(clock)
        >>> clock.advance(2)
        >>> doors.elapsed(clock)
        2000007
    """

    def __init__(self, path: Path, since: int = 0) -> None:
        self.path = path
        self.since = since
        self._at: float | None = None

    def open(self, clock: Clock) -> None:
        """From now on; open doors stay as they are."""
        if self.path.exists():
            return
        draft = self.path.with_suffix(f".{os.getpid()}")
        draft.write_text(repr(clock.now()))
        with suppress(FileExistsError):
            os.link(draft, self.path)  # all of it or nothing, and never over another
        draft.unlink()

    @property
    def are_open(self) -> bool:
        """Whether sales are taken."""
        return self._at is not None or self.path.exists()

    def elapsed(self, clock: Clock) -> int:
        """The microsecond of the schedule that it is now."""
        if self._at is None:
            try:
                self._at = float(self.path.read_text())
            except FileNotFoundError:
                return self.since
        return self.since + max(0, round((clock.now() - self._at) * 1_000_000))
