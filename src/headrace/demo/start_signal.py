"""StartSignal: the time at which a run began to take sales. The source writes it when Spark is ready; the driver reads it."""

from __future__ import annotations

from pathlib import Path

from headrace import files
from headrace.clock import Clock


class StartSignal:
    """A file with the time at which a run began, and the run's position in the schedule of arrivals since then.

    Spark takes seconds to start a query, and sales would pile up meanwhile, so the schedule stands still until the signal
    is sent. Spark runs the source in a process of its own; a file carries the time to the driver. `SystemClock` counts from
    the machine's start, so both processes read the same clock.

    Args:
        path: the file with the time of the start.
        since: the microsecond of the schedule at which this run begins: 0, or the arrival of the first sale not loaded.

    Example:
        >>> import tempfile
        >>> from headrace.clock import ManualClock
        >>> clock, signal = ManualClock(100.0), StartSignal(Path(tempfile.mkdtemp()) / "start-signal", since=7)
        >>> signal.elapsed(clock)
        7
        >>> signal.send(clock)
        >>> clock.advance(2)
        >>> signal.elapsed(clock)
        2000007
    """

    def __init__(self, path: Path, since: int = 0) -> None:
        self.path = path
        self.since = since
        self._sent_at: float | None = None

    def send(self, clock: Clock) -> None:
        """Start the schedule now. A signal that was sent before keeps its time."""
        if files.exists(self.path):
            return
        draft = files.draft_name(self.path)
        with files.open_new(draft) as file:
            file.write(repr(clock.now()).encode())
        files.create_exclusively(draft, self.path)
        files.remove(draft)

    @property
    def sent(self) -> bool:
        """Whether the schedule has started."""
        return self._sent_at is not None or files.exists(self.path)

    def elapsed(self, clock: Clock) -> int:
        """Return the current position in the schedule, in microseconds."""
        if self._sent_at is None:
            try:
                self._sent_at = float(files.read_regular(self.path))
            except FileNotFoundError:
                return self.since
        return self.since + max(0, round((clock.now() - self._sent_at) * 1_000_000))
