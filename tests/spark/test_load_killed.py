"""kill -9 of drivers and of Python workers while a stream is loaded: every row is in the table, and once."""

import json
import os
import secrets
import time
from collections import Counter

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from tests.support.delta_tables import by_deltalake, in_log, on_disk, rows
from tests.support.killed_driver import PATIENCE, Driver, driver
from tests.support.programs.killable_job import Job

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS, KEYS = 2000, 3000  # rows of an input file; keys of the relation, some of which no row has
# What happens to each driver in turn: workers killed at these moments, then the driver itself. And how many commits it makes at
# the most: then it stands still between a file and its commit.
LIVES = [
    ([], "start", 5),
    (["file", "any"], "file", 5),
    (["file"], "log", 5),
    (["daemon"], "log", 5),
    (["any"], "held", 3),
]
#: The same in one life: workers killed while they write, their daemon, the driver between a file and its commit.
ONE_LIFE = [(["file", "daemon"], "held", 6)]


def make(job: Job, rng: np.random.Generator, files: int) -> Counter:
    """The relation and the input; gives the rows that must be in the table."""
    names = pa.array([f"name {k}" for k in range(KEYS)])
    part = pa.array([f"part {k % 3}" for k in range(KEYS)])
    hr.Relation.create(job.relation, pa.table({"k": np.arange(KEYS), "name": names, "part": part}), key="k").close()
    job.input.mkdir()
    job.scratch.mkdir()
    wanted: Counter = Counter()
    for n in range(files):
        keys = rng.integers(0, KEYS + 500, ROWS)
        pq.write_table(pa.table({"k": keys, "n": np.full(ROWS, n)}), job.input / f"{n:05d}.parquet")
        wanted.update(repr([k, n, f"name {k}", f"part {k % 3}"]) for k in keys.tolist() if k < KEYS)
    return wanted


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


@pytest.mark.parametrize(
    ("lives", "files", "least"),  # the input's files, of which two make a micro-batch; how many are killed at least
    [
        pytest.param(ONE_LIFE, 18, 3, id="one life"),
        pytest.param(LIVES, 60, 10, id="many lives", marks=pytest.mark.soak),
    ],
)
def test_oracle_every_row_once_whoever_is_killed(tmp_path, lives, files, least):
    seed = int(os.environ.get("HEADRACE_SEED", secrets.randbits(32)))
    print(f"HEADRACE_SEED={seed}")  # noqa: T201 - shown if the test fails
    rng = np.random.default_rng(seed)
    job, log = Job(tmp_path), tmp_path / "log"
    wanted = make(job, rng, files)
    kills: list[str] = []
    unfinished = 0
    for workers, end, hold in lives:
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
    assert len(kills) >= least
    assert 2 * commits(job) < files, "the stream ended before the last kill"
    assert unfinished, "no kill came between a file and its commit"
    with driver(tmp_path, log) as running:
        assert running.process.wait(PATIENCE) == 0, log.read_text()[-3000:]
    assert in_log(job.table) <= on_disk(job.table)
    assert rows(by_deltalake(job.table), ["k", "n", "name", "part"]) == wanted, f"HEADRACE_SEED={seed} {kills}"
    # A micro-batch may have the files of two: Spark notes files before offsets. But each number is there once.
    assert numbers(job) == list(range(len(numbers(job))))
