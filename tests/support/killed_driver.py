"""A driver program in a process group of its own, which a test watches and kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.support.programs import load_delta
from tests.support.programs.killable_job import Job

PATIENCE = 150  # seconds for what takes a few on an idle machine


class Driver:
    """The program, in a process group of its own."""

    def __init__(self, root: Path, log: Path, program: str = load_delta.__file__, hold: int | str = -1) -> None:
        self.job, self.log = Job(root), log
        self.job.held.unlink(missing_ok=True)
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, program, str(root)],
                stdout=out,
                stderr=out,
                start_new_session=True,
                env=os.environ | {"HEADRACE_HOLD": str(hold)},
            )
        self.tree: list[psutil.Process] = []

    def look(self) -> list[psutil.Process]:
        """Its processes now. They are remembered for `close`, since Python workers have a group of their own."""
        try:
            now = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            now = []
        self.tree += [p for p in now if p not in self.tree]
        return now

    def workers(self, daemon: bool = False) -> list[psutil.Process]:
        """Python workers that Spark has forked from its daemon, or the daemon."""
        python = [p for p in self.look() if "headrace.spark.daemon" in _cmdline(p)]
        ids = {p.pid for p in python}
        return [p for p in python if (_ppid(p) in ids) != daemon]

    def wait_for(self, what: str, ready) -> None:
        """Poll, until it is ready or gets no further; a driver that ends meanwhile is an error."""
        begun = time.monotonic()
        while not ready() and not self.job.held.exists():
            assert self.process.poll() is None, f"the driver ended by itself:\n{self.log.read_text()[-3000:]}"
            assert time.monotonic() - begun < PATIENCE, f"no {what}:\n{self.log.read_text()[-3000:]}"
            time.sleep(0.005)

    def kill(self) -> None:
        """At once; `look` before."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """End what is left, each by its id."""
        self.look()
        if self.process.poll() is None:
            self.kill()
        for process in self.tree:
            try:
                process.kill()  # psutil knows an id that was given to another process since
                process.wait(10)
            except psutil.NoSuchProcess:
                pass


def _cmdline(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _ppid(process: psutil.Process) -> int:
    try:
        return int(process.ppid())
    except psutil.Error:
        return 0


@contextmanager
def driver(root: Path, log: Path, program: str = load_delta.__file__, hold: int | str = -1) -> Iterator[Driver]:
    """Started, and ended whatever happens. `hold`: how far it gets, see `killable_job.stand_still`."""
    started = Driver(root, log, program, hold)
    try:
        yield started
    finally:
        started.close()


def state_files(root: Path, kind: str) -> set[tuple[str, str]]:
    """The files of a kind in the run log of a job, by shard."""
    return {(p.parent.name, p.name) for p in root.glob(f"state/*/*/shard-*/{kind}")}


def queries(root: Path, kind: str) -> set[str]:
    """The queries of a job in whose run logs there are files of a kind."""
    return {p.parts[-4] for p in root.glob(f"state/*/*/shard-*/{kind}")}


def run_with_kills(root: Path, program: str, many: int = 1, then_hold: str = "") -> None:
    """Run a program of a job whose state is in `state`: workers are killed while rows are written, the driver before a commit.

    Parameters
    ----------
    root, program
        The job's directory, and what runs in it.
    many
        Queries that it runs at the same time: workers are killed while rows of each are written.
    then_hold
        Another driver is killed when it has come so far.
    """
    log, struck = root / "log", set[str]()

    def another() -> bool:
        before = len(struck)
        struck.update(queries(root, ".draft-*"))
        return len(struck) > before

    with driver(root, log, program, 2) as running:
        while len(struck) < many and not running.job.held.exists():
            running.wait_for("rows", another)
            for worker in running.workers():  # their tasks are tried again by others
                with suppress(psutil.NoSuchProcess):
                    worker.kill()
        running.wait_for("end of its way", lambda: False)
        assert len(queries(root, "*.decision.arrow")) == many
        running.look()
        running.kill()
    if then_hold:
        with driver(root, log, program, then_hold) as running:
            running.wait_for("end of its way", lambda: False)
            running.look()
            running.kill()
    with driver(root, log, program) as running:
        assert running.process.wait(PATIENCE) == 0, log.read_text()[-3000:]
