"""kill -9 of the driver while rows wait in the run log: every row is in the table or a dead letter, and once."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.runlog import RunLog
from tests.support.delta_tables import by_deltalake, rows
from tests.support.killed_driver import PATIENCE, driver
from tests.support.programs import enrich_with_deadline
from tests.support.programs.killable_job import Job

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = enrich_with_deadline.__file__
FILES, ROWS, KEYS = 5, 300, 4000


def make(job: Job) -> tuple[Counter, Counter]:
    """The relation and the input; gives the rows that must be in the table, and those that must be dead letters."""
    names = pa.array([f"name {k}" for k in range(KEYS)])
    hr.Relation.create(job.relation, pa.table({"k": np.arange(KEYS), "name": names}), key="k", page_size="4KiB").close()
    job.input.mkdir()
    job.scratch.mkdir()
    rng, wanted, dead = np.random.default_rng(5), Counter(), Counter()
    for n in range(FILES):
        keys = rng.integers(0, KEYS + 400, ROWS)
        pq.write_table(pa.table({"k": keys, "n": np.full(ROWS, n)}), job.input / f"{n:05d}.parquet")
        wanted.update(repr([k, n, f"name {k}"]) for k in keys.tolist() if k < KEYS)
        dead.update((k, n) for k in keys.tolist() if k >= KEYS)
    return wanted, dead


def decisions(root: Path) -> set[str]:
    return {p.name for p in root.glob("state/*/*/shard-*/*.decision.arrow")}


def still_waiting(log: RunLog) -> int:
    """Rows that wait for their deadline."""
    waiting = 0
    for number in range(log.shards):
        with log.shard(number) as shard:
            last = shard.last("decision", before=1 << 62)
            waiting += last.facts["waiting"] if last else 0
    return waiting


def finishing(root: Path) -> bool:
    return any(root.glob("state/*/*/shard-*/*.finishing.arrow"))


@pytest.mark.parametrize("before_the_end", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_oracle_every_row_once_whenever_the_driver_is_killed(tmp_path, before_the_end):
    """The short form kills at the end; that of test_queue_killed in the midst of the stream."""
    job, log = Job(tmp_path), tmp_path / "log"
    wanted, dead = make(job)
    if before_the_end:
        with driver(tmp_path, log, PROGRAM, 3) as running:  # between a decision and its commit
            running.wait_for("decision", lambda: len(decisions(tmp_path)) >= 2)
            running.look()
            before = decisions(tmp_path)
            running.wait_for("decision", lambda: decisions(tmp_path) - before)
            running.kill()
        (waiting,) = RunLog.find(tmp_path / "state")
        assert still_waiting(waiting) > 0, "nothing waited"
    with driver(tmp_path, log, PROGRAM, "end") as running:  # while the end is being joined
        running.wait_for("finish", lambda: finishing(tmp_path))
        running.look()
        running.kill()
    (waiting,) = RunLog.find(tmp_path / "state")
    assert still_waiting(waiting) > 0, "nothing waited"
    with driver(tmp_path, log, PROGRAM) as running:
        assert running.process.wait(PATIENCE) == 0, log.read_text()[-3000:]
    assert rows(by_deltalake(job.table), ["k", "n", "name"]) == wanted
    letters = pq.read_table(waiting.path / "dead_letter")
    assert Counter(zip(letters["k"].to_pylist(), letters["n"].to_pylist(), strict=True)) == dead
