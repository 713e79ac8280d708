"""kill -9 of workers and of the driver while rows wait in the queue of a published join: every row is in the table, and once."""

from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.runlog import RunLog
from headrace.semistream.deferred.waiting_now import waiting_now
from tests.support.delta_tables import by_deltalake, rows
from tests.support.killed_driver import PATIENCE, driver
from tests.support.programs import enrich_with_queue
from tests.support.programs.killable_job import Job

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = enrich_with_queue.__file__
FILES, ROWS, KEYS = 6, 400, 4000


def make(job: Job) -> Counter:
    """The relation and the input; gives the rows that must be in the table."""
    names = pa.array([f"name {k}" for k in range(KEYS)])
    hr.Relation.create(job.relation, pa.table({"k": np.arange(KEYS), "name": names}), key="k", page_size="4KiB").close()
    job.input.mkdir()
    job.scratch.mkdir()
    rng, wanted = np.random.default_rng(5), Counter()
    for n in range(FILES):
        keys = rng.integers(0, KEYS + 400, ROWS)
        pq.write_table(pa.table({"k": keys, "n": np.full(ROWS, n)}), job.input / f"{n:05d}.parquet")
        wanted.update(repr([k, n, f"name {k}" if k < KEYS else None]) for k in keys.tolist())
    return wanted


def decisions(root: Path) -> set[str]:
    return {f"{p.parent.name}/{p.name}" for p in root.glob("state/*/*/shard-*/*.decision.arrow")}


@pytest.mark.parametrize("at_the_end", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_oracle_every_row_once_whoever_is_killed(tmp_path, at_the_end):
    job, log = Job(tmp_path), tmp_path / "log"
    wanted = make(job)
    with driver(tmp_path, log, PROGRAM, 4) as running:
        running.wait_for("decision", lambda: decisions(tmp_path))
        for worker in running.workers():  # their tasks are tried again by others
            with suppress(psutil.NoSuchProcess):
                worker.kill()
        running.wait_for("decisions", lambda: any("0000000003." in name for name in decisions(tmp_path)))
        running.look()
        before = decisions(tmp_path)
        running.wait_for("decision", lambda: decisions(tmp_path) - before)  # between a decision and its commit
        running.kill()
    (found,) = RunLog.find(tmp_path / "state")
    assert sum(shard.owed for shard in waiting_now(found)) > 0, "nothing waited"
    if at_the_end:  # while the rows are joined that still wait
        with driver(tmp_path, log, PROGRAM, "end") as running:
            running.wait_for("finish", lambda: any(tmp_path.glob("state/*/*/shard-*/*.finishing.arrow")))
            running.look()
            running.kill()
    with driver(tmp_path, log, PROGRAM) as running:
        assert running.process.wait(PATIENCE) == 0, log.read_text()[-3000:]
    assert rows(by_deltalake(job.table), ["k", "n", "name"]) == wanted
