"""GracefulStop: turns Ctrl-C into a request that the work checks at safe points, instead of an exception anywhere."""

from __future__ import annotations

import signal
from types import FrameType

from headrace.errors import HeadraceError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(HeadraceError):
    """The user asked to stop. Everything loaded so far is kept."""


class GracefulStop:
    """Records the first Ctrl-C (or SIGTERM) as a request to stop; a second one raises `KeyboardInterrupt` at once.

    An exception raised by a signal handler would break the socket to the JVM in the middle of an answer.

    Example:
        >>> with GracefulStop() as stopping:
        ...     stopping.check()
        ...     signal.raise_signal(signal.SIGINT)
        ...     stopping.check()
        Traceback (most recent call last):
        ...
        headrace.signals.Interrupted: stopped
    """

    def __init__(self) -> None:
        self.requested = False
        self._before = [signal.getsignal(number) for number in _SIGNALS]

    def listen(self) -> None:
        """Install the signal handlers. Call it again after PySpark's context is made, which installs its own for Ctrl-C."""
        for number in _SIGNALS:
            signal.signal(number, self._note)

    def check(self) -> None:
        """Raise `Interrupted` if a stop was requested."""
        if self.requested:
            raise Interrupted("stopped")

    def __enter__(self) -> GracefulStop:
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in zip(_SIGNALS, self._before, strict=True):
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
