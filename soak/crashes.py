"""Crashes: every job of `storage_jobs` is recorded once, and every state that a power cut may leave of it is opened.

python -m soak crashes --job apply
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headrace.errors import HeadraceError
from headrace.files import using
from soak.crash_states import CrashState, RecordingFiles, Step, Tree, crash_states
from soak.faults import Broken, Undisturbed, go_on, in_memory
from soak.storage_jobs import JOBS, Job


@dataclass(frozen=True)
class Recording:
    """The steps of a job that nothing happened to."""

    base: Tree
    steps: list[Step]

    @classmethod
    def of(cls, job: Job, known: Undisturbed, root: Path) -> Recording:
        """Run a job to its end and record it."""
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(known.prepared, root)
        form = RecordingFiles(root, job.native)
        for number in range(job.steps):
            with using(form):
                job.step(root, number)
            form.discover()
            form.mark(str(number))
        return cls(form.base, form.steps)

    def syncs(self) -> list[int]:
        """The numbers of the steps that sync a file or a directory."""
        return [number for number, step in enumerate(self.steps) if step.kind in ("fsync", "sync")]


def check_state(job: Job, state: CrashState, known: Undisturbed, root: Path) -> None:
    """Open a state that a power cut left, and go on from it to the end."""
    state.tree.write(root)
    done = len(state.acknowledged)
    seen = job.observe(root)
    expected = known.states[done : done + 2]
    if seen not in expected:
        raise Broken(
            f"a reader sees {seen!r}; {done} steps were acknowledged; expected {' or '.join(map(repr, expected))}"
        )
    go_on(job, known, root, done)


def check_lying_disk(job: Job, state: CrashState, known: Undisturbed, root: Path) -> None:
    """Open a state of a disk that did not sync when it said so: a reader sees some state of the job, or is told of damage."""
    state.tree.write(root)
    try:
        seen = job.observe(root)
    except HeadraceError as error:
        if str(root) not in str(error):
            raise Broken(f"the error names no file: {error}") from error
        return
    if seen not in known.states:
        raise Broken(f"a reader sees {seen!r}, which was never there")


def lying_states(recording: Recording, bound: int, seed: int, most: int) -> Iterator[CrashState]:
    """States of disks that each left out one sync; at most so many of them."""
    rng = np.random.default_rng(seed)
    syncs = recording.syncs()
    for number in sorted(rng.permutation(syncs)[:most]):
        yield from crash_states(recording.base, recording.steps, bound=bound, seed=seed, ignored_sync=int(number))


def run(argv: list[str]) -> int:
    """Try all states of all jobs, or of one; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m soak crashes", description=__doc__)
    parser.add_argument("--job", choices=[job.name for job in JOBS])
    parser.add_argument("--bound", type=int, default=64, help="combinations of lost changes after each step")
    parser.add_argument(
        "--lies", type=int, default=5, help="syncs of each job that a lying disk leaves out, one at a time"
    )
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(argv)
    broken = tried = 0
    with tempfile.TemporaryDirectory(prefix="headrace-crashes-", dir=in_memory()) as name:
        place = Path(name)
        for job in JOBS:
            if asked.job not in (None, job.name) or not job.durable:
                continue
            known = Undisturbed.of(job, place / "known")
            recording = Recording.of(job, known, place / "recorded")
            states = lies = 0
            for state in crash_states(recording.base, recording.steps, bound=asked.bound, seed=asked.seed):
                states += 1
                broken += _tried(job, state, check_state, known, place / "state")
            for state in lying_states(recording, 4, asked.seed, asked.lies):
                lies += 1
                broken += _tried(job, state, check_lying_disk, known, place / "state")
            tried += states + lies
            print(
                f"{job.name}: {len(recording.steps)} changes, {states} crash states, {lies} of lying disks", flush=True
            )
    print(f"crashes: {tried - broken} kept, {broken} broken")
    return 1 if broken else 0


def _tried(job: Job, state: CrashState, check: object, known: Undisturbed, root: Path) -> int:
    assert callable(check)
    try:
        check(job, state, known, root)
    except Exception as error:
        print(f"BROKEN {job.name} {state}: {type(error).__name__}: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
