"""Faults: every job of `storage_jobs` once for every call that it makes and every way in which that call can fail.

python -m soak faults                        all of it
python -m soak faults --job apply --fault short --at 17       one case again
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from headrace.clock import WallClock
from headrace.errors import HeadraceError
from headrace.files import using
from headrace.files.faulty import FAULTS, Fault, FaultyFiles, Killed, strikes
from headrace.files.watched import FileCall
from soak.storage_jobs import JOBS, Job, fresh

T = TypeVar("T")


@dataclass(frozen=True)
class Undisturbed:
    """A job that nothing happens to: what a reader sees after each step, the files that are left, and the calls made."""

    states: tuple[object, ...]
    left: Counter[str]
    calls: list[FileCall]
    prepared: Path

    @classmethod
    def of(cls, job: Job, place: Path) -> Undisturbed:
        """Run a job to its end."""
        prepared, root = fresh(place / "prepared"), place / "undisturbed"
        job.prepare(prepared)
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(prepared, root)
        form = _Listing(root)
        states = [job.observe(root)]
        for number in range(job.steps):
            with using(form):
                job.step(root, number)
            states.append(job.observe(root))
        return cls(tuple(states), job.left(root), form.made, prepared)


@dataclass(frozen=True)
class Case:
    """One call of a job that fails."""

    job: Job
    fault: Fault
    at: int

    def __str__(self) -> str:
        return f"--job {self.job.name!r} --fault {self.fault} --at {self.at}"


class Broken(AssertionError):
    """A promise was not kept."""


def cases(job: Job, known: Undisturbed) -> Iterator[Case]:
    """All cases of a job."""
    for at, call in enumerate(known.calls, start=1):
        for fault in FAULTS:
            if strikes(fault, call):
                yield Case(job, fault, at)


class _Listing(FaultyFiles):
    """Files that fail nowhere, and note the calls that are made."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.made: list[FileCall] = []

    def around(self, call: FileCall, perform: Callable[[], T]) -> T:
        """Note a call, without its bytes, and make it."""
        if call.path.is_relative_to(self.root):
            self.made.append(replace(call, data=None))
        return super().around(call, perform)


def run_case(case: Case, known: Undisturbed, root: Path) -> bool:
    """Run a job whose call fails, look at what is left, and go on to the end; False if that call cannot fail so."""
    job = case.job
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(known.prepared, root)
    form = FaultyFiles(root, case.at, case.fault)
    done = 0
    failed: BaseException | None = None
    with using(form):
        try:
            for number in range(job.steps):
                job.step(root, number)
                done += 1
        except (Killed, Exception) as error:
            failed = error.with_traceback(None)
            failed.__context__ = failed.__cause__ = None  # its frames hold what a killed process would not
    if form.struck is None:
        return False
    gc.collect()
    if failed is not None and not isinstance(failed, Killed):
        _check_error(failed, form)
    state = job.observe(root)
    if failed is None:
        expected = known.states[-1:]
    else:
        expected = known.states[done : done + 2]
    if state not in expected:
        raise Broken(f"a reader sees {state!r} after {done} steps; expected {' or '.join(map(repr, expected))}")
    go_on(job, known, root, done)
    return True


def go_on(job: Job, known: Undisturbed, root: Path, done: int) -> None:
    """Take the steps that are left, the last one at least: what a fault left goes with a later change."""
    grow_old(root)
    for number in range(min(done, job.steps - 1), job.steps):
        job.step(root, number)
    if job.observe(root) != known.states[-1]:
        raise Broken(f"the steps that were left lead to {job.observe(root)!r}; expected {known.states[-1]!r}")
    leaked = job.left(root) - known.left
    if leaked:
        raise Broken(f"files are left that nobody needs: {', '.join(leaked)}")


def grow_old(root: Path) -> None:
    """Let two hours pass: after one, nobody takes what was left for somebody's who is at work."""
    then = WallClock().now() - 7200
    for path in [root, *root.rglob("*")]:
        os.utime(path, (then, then))


def _check_error(error: BaseException, form: FaultyFiles) -> None:
    """Refuse an error that is not ours, or does not name a file below the directory."""
    if not isinstance(error, HeadraceError):
        raise Broken(f"{type(error).__name__} came out: {error}")
    if str(form.root) not in str(error):
        raise Broken(f"the error names no file: {error}")


def sample(jobs: Iterable[Job], each: int, seed: int, place: Path) -> Iterator[tuple[Case, Undisturbed]]:
    """Choose some cases of every job, with what the undisturbed job leads to."""
    rng = np.random.default_rng(seed)
    for job in jobs:
        known = Undisturbed.of(job, place / job.name.replace(" ", "-"))
        every = list(cases(job, known))
        for number in sorted(rng.permutation(len(every))[:each]):
            yield every[number], known


def run(argv: list[str]) -> int:
    """Run all cases, or those that are asked for; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m soak faults", description=__doc__)
    parser.add_argument("--job", choices=[job.name for job in JOBS])
    parser.add_argument("--fault", choices=FAULTS)
    parser.add_argument("--at", type=int)
    asked = parser.parse_args(argv)
    broken = tried = 0
    with tempfile.TemporaryDirectory(prefix="headrace-faults-", dir=in_memory()) as name:
        place = Path(name)
        for job in JOBS:
            if asked.job not in (None, job.name):
                continue
            known = Undisturbed.of(job, place / "known")
            struck = 0
            for case in cases(job, known):
                if asked.fault not in (None, case.fault) or asked.at not in (None, case.at):
                    continue
                try:
                    struck += run_case(case, known, place / "case")
                except Exception as error:
                    broken += 1
                    print(f"BROKEN {case}: {type(error).__name__}: {error}", flush=True)
            tried += struck
            print(f"{job.name}: {len(known.calls)} calls, {struck} faults", flush=True)
    print(f"faults: {tried - broken} kept, {broken} broken")
    return 1 if broken else 0


def in_memory() -> str | None:
    """A directory in memory, where a sync takes no time; None for the usual place."""
    with suppress(OSError):
        if Path("/dev/shm").is_dir():
            return "/dev/shm"
    return None


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
