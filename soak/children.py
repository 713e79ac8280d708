"""Processes that are forked from one that has loaded Headrace: each costs milliseconds, and each may be killed at any moment.

The process that forks has one thread and does no work of its own, so that nothing is half done when it is copied.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1  # linux/prctl.h: a signal for when the parent ends
_POLL = 0.002  # seconds
_LONGEST_TEXT = 4000  # characters of what a child said


class ChildFailed(Exception):
    """A process of the harness ended with an error, or did not end."""


class Child:
    """A function at work in a process of its own.

    Parameters
    ----------
    name
        What it is called in messages.
    log
        The file for its traceback; written anew.
    work, arguments
        What it does. What the function returns is `result`, by way of JSON.
    """

    def __init__(self, name: str, log: Path, work: Callable[..., Any], *arguments: Any) -> None:
        self.name, self.log = name, log
        self.result: Any = None
        self.status: int | None = None
        log.unlink(missing_ok=True)
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _work(log, work, arguments)

    def poll(self) -> bool:
        """Whether it has ended."""
        if self.status is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self.status = status
        return self.status is not None

    def wait(self, limit: float) -> Child:
        """Wait for its end; one that is at work longer than the limit is killed, and is a fault that shows where it stood."""
        until = time.monotonic() + limit
        while not self.poll():
            if time.monotonic() > until:
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGCONT)
                    os.kill(self.pid, signal.SIGUSR1)  # it writes the stacks of its threads
                time.sleep(0.5)
                self.kill()
                raise ChildFailed(f"{self.name} did not end within {limit:.0f} s:\n{self.said}")
            time.sleep(_POLL)
        return self

    def answer(self, limit: float) -> Any:
        """What the function returned; an error of it is one here."""
        self.wait(limit)
        if self.error:
            raise ChildFailed(f"{self.name} failed:\n{self.error}")
        with suppress(FileNotFoundError):
            return json.loads(self.log.with_suffix(".json").read_text())
        return None

    def signal(self, number: int) -> None:
        """Send a signal, if it is there."""
        if not self.poll():
            os.kill(self.pid, number)

    def kill(self) -> bool:
        """Kill it; whether it was still there."""
        there = not self.poll()
        if there:
            os.kill(self.pid, signal.SIGKILL)
            _, self.status = os.waitpid(self.pid, 0)
        return there

    @property
    def error(self) -> str:
        """The traceback, if it ended by an error; empty otherwise, and where it was killed."""
        if self.status is None or (os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signal.SIGKILL):
            return ""
        return (self.said or f"it ended with status {self.status}") if self.status else ""

    @property
    def said(self) -> str:
        """The end of what it wrote."""
        with suppress(FileNotFoundError):
            return self.log.read_text(errors="replace")[-_LONGEST_TEXT:]
        return ""


def _work(log: Path, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """The life of a child; it does not return."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        file = log.open("w", buffering=1)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        faulthandler.register(signal.SIGUSR1, file, all_threads=True)
        result = work(*arguments)
        if result is not None:
            log.with_suffix(".json").write_text(json.dumps(result))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
