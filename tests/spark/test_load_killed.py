"""kill -9 of drivers and of Python workers while a stream is loaded: every row is in the table, and once."""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from tests.spark import loading
from tests.spark.delta import by_deltalake, in_log, on_disk, rows
from tests.spark.loading import Job

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILES, ROWS, KEYS = 60, 2000, 3000  # of the input; rows of a file; keys of the relation, some of which no row has
PATIENCE = 150  # seconds for what takes a few on an idle machine

# What happens to each driver in turn: workers killed at these moments, then the driver itself. And how many commits it makes at
# the most: then it stands still between a file and its commit.
LIVES = [
    ([], "start", 5),
    (["file", "any"], "file", 5),
    (["file"], "log", 5),
    (["daemon"], "log", 5),
    (["any"], "held", 3),
]


def make(job: Job, rng: np.random.Generator) -> Counter:
    """The relation and the input; gives the rows that must be in the table."""
    names = pa.array([f"name {k}" for k in range(KEYS)])
    part = pa.array([f"part {k % 3}" for k in range(KEYS)])
    hr.Relation.create(job.relation, pa.table({"k": np.arange(KEYS), "name": names, "part": part}), key="k").close()
    job.input.mkdir()
    job.scratch.mkdir()
    wanted: Counter = Counter()
    for n in range(FILES):
        keys = rng.integers(0, KEYS + 500, ROWS)
        pq.write_table(pa.table({"k": keys, "n": np.full(ROWS, n)}), job.input / f"{n:05d}.parquet")
        wanted.update(repr([k, n, f"name {k}", f"part {k % 3}"]) for k in keys.tolist() if k < KEYS)
    return wanted


class Driver:
    """The program, in a process group of its own."""

    def __init__(self, root: Path, log: Path, program: str = loading.__file__, hold: int | str = -1) -> None:
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
        python = [p for p in self.look() if "pyspark.daemon" in " ".join(_cmdline(p))]
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
def driver(root: Path, log: Path, program: str = loading.__file__, hold: int | str = -1) -> Iterator[Driver]:
    """Started, and ended whatever happens. `hold`: how far it gets, see `loading.stand_still`."""
    started = Driver(root, log, program, hold)
    try:
        yield started
    finally:
        started.close()


def commits(job: Job) -> int:
    return len(list(job.table.glob("_delta_log/*.json")))


def numbers(job: Job) -> list[int]:
    """The micro-batches' numbers, in the order of their commits."""
    lines = [line for log in sorted(job.table.glob("_delta_log/*.json")) for line in log.read_text().splitlines()]
    return [txn["version"] for line in lines if (txn := json.loads(line).get("txn"))]


def moment(running: Driver, when: str, rng: np.random.Generator, daemon: bool = False) -> list[psutil.Process]:
    """Wait for a moment to kill at; gives the workers, found before it, since to find them takes longer than it lasts."""
    job = running.job
    if when == "start":
        time.sleep(rng.uniform(0.2, 5))
        return running.workers()
    now = max(1, commits(job))  # the first makes the table
    running.wait_for("commit", lambda: commits(job) > now)  # it is at work, and got over the kill before
    workers = running.workers(daemon)
    now, before = commits(job), on_disk(job.table)
    if when == "file":
        running.wait_for("file", lambda: on_disk(job.table) - before)
    elif when == "log":
        running.wait_for("commit", lambda: commits(job) > now)
    elif when == "held":
        running.wait_for("end of its way", lambda: False)
    else:
        time.sleep(rng.uniform(0, 1))
    return workers


def test_oracle_every_row_once_whoever_is_killed(tmp_path):
    seed = int(os.environ.get("HEADRACE_SEED", secrets.randbits(32)))
    print(f"HEADRACE_SEED={seed}")  # noqa: T201 - shown if the test fails
    rng = np.random.default_rng(seed)
    job, log = Job(tmp_path), tmp_path / "log"
    wanted = make(job, rng)
    kills: list[str] = []
    unfinished = 0
    for workers, end, hold in LIVES:
        with driver(tmp_path, log, hold=hold) as running:
            for when in workers:
                daemon = when == "daemon"
                victims = moment(running, "any" if daemon else when, rng, daemon)
                for victim in victims if when == "file" else victims[:1]:
                    victim.kill()
                    kills.append(f"{when}: worker")
            moment(running, end, rng)
            running.kill()
            kills.append(f"{end}: driver")
        if job.table.exists() and commits(job):
            unfinished += len(on_disk(job.table) - in_log(job.table))
    print(kills, f"{unfinished} files of no commit, {commits(job)} versions")  # noqa: T201
    assert len(kills) >= 10
    assert 2 * commits(job) < FILES, "the stream ended before the last kill"
    assert unfinished, "no kill came between a file and its commit"
    with driver(tmp_path, log) as running:
        assert running.process.wait(PATIENCE) == 0, log.read_text()[-3000:]
    assert in_log(job.table) <= on_disk(job.table)
    assert rows(by_deltalake(job.table), ["k", "n", "name", "part"]) == wanted, f"HEADRACE_SEED={seed} {kills}"
    # A micro-batch may have the files of two: Spark notes files before offsets. But each number is there once.
    assert numbers(job) == list(range(len(numbers(job))))
