"""Stopping: Ctrl-C as a wish that the work looks at, instead of an exception in the middle of anything."""

from __future__ import annotations

import signal
from types import FrameType

from headrace.errors import HeadraceError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(HeadraceError):
    """The user asked to stop. Everything loaded so far is kept."""


class Stopping:
    """Notes a first Ctrl-C (or SIGTERM); the second one breaks off at once.

    An exception out of a signal handler would break the socket to Java in the middle of an answer.

    Example:
        >>> with Stopping() as stopping:
        ...     stopping.check()
        ...     signal.raise_signal(signal.SIGINT)
        ...     stopping.check()
        Traceback (most recent call last):
        ...
        headrace.signals.Interrupted: stopped
    """

    def __init__(self) -> None:
        self.wished = False
        self._before = [signal.getsignal(number) for number in _SIGNALS]

    def listen(self) -> None:
        """Take the signals (again: PySpark's context takes Ctrl-C for itself)."""
        for number in _SIGNALS:
            signal.signal(number, self._note)

    def check(self) -> None:
        """Raise `Interrupted` if the user wished to stop."""
        if self.wished:
            raise Interrupted("stopped")

    def __enter__(self) -> Stopping:
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in zip(_SIGNALS, self._before, strict=True):
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.wished:
            raise KeyboardInterrupt
        self.wished = True
