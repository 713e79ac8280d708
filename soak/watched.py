"""Watched: threads of the harness whose end by an error is a fault, and a limit on the time of a run."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from threading import Lock, Thread

from headrace.units import format_duration


class HarnessFault(Exception):
    """Something of the harness itself went wrong: the run proves nothing, and has failed."""


class Watched:
    """What a run watches beside its victims.

    Parameters
    ----------
    limit
        Seconds that the run may take.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._begun = time.monotonic()
        self._lock = Lock()
        self._errors: list[str] = []

    def start(self, name: str, work: Callable[[], None]) -> Thread:
        """Start a thread; if it ends by an error, the next `check` raises it."""

        def run() -> None:
            try:
                work()
            except BaseException:
                with self._lock:
                    self._errors.append(f"thread {name!r} of the harness died:\n{traceback.format_exc()}")

        thread = Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def check(self) -> None:
        """Raise the error of a thread, or that the run takes too long. The run calls it wherever it waits."""
        with self._lock:
            if self._errors:
                raise HarnessFault("\n".join(self._errors))
        if time.monotonic() - self._begun > self.limit:
            raise HarnessFault(f"the run is not done after {format_duration(round(self.limit))}, its limit: it hangs")

    def sleep(self, seconds: float) -> None:
        """Sleep, checking."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(0.2, left))
            self.check()
