"""A wall clock that the harness sets forward and back while processes run.

Headrace asks `time.clock_gettime(CLOCK_REALTIME)` for the time of day. In processes of the soak that function adds what a file
says, which the harness writes. The monotonic clock goes on as it does when an administrator sets the clock. (libfaketime would be
closer to that, but it either moves the monotonic clock too or makes `time.sleep` of Python fail.) Times of files stay those of
the machine: after a jump forward all of them are a day old, also the newest, which is harder than what a real jump does.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

VARIABLE = "HEADRACE_SOAK_CLOCK"
_real = time.clock_gettime


def set_offset(path: Path, seconds: float) -> None:
    """Set the clock of all processes that follow the file."""
    draft = path.with_suffix(".draft")
    draft.write_text(str(seconds))
    draft.rename(path)


def follow(path: Path) -> None:
    """Let the wall clock of this process, and of those that it forks, follow a file."""

    def clock_gettime(clock: int) -> Any:
        now = _real(clock)
        if clock != time.CLOCK_REALTIME:
            return now
        try:
            return now + float(path.read_text() or 0)
        except FileNotFoundError:
            return now

    time.clock_gettime = clock_gettime


def follow_environment() -> None:
    """Follow the file that the environment names, if it names one; called when Python starts, by sitecustomize."""
    if path := os.environ.get(VARIABLE):
        follow(Path(path))
