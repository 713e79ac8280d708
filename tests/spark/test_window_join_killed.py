"""kill -9 of a Python worker and of the driver while samples of two windows are joined: the result is that of a quiet run."""

from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from tests.support.delta_tables import by_deltalake, rows
from tests.support.killed_driver import PATIENCE, driver
from tests.support.programs import join_windows
from tests.support.programs.killable_job import Job
from tests.support.spark_streams import finished

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILES, ROWS, KEYS = 8, 700, 150


def make(job: Job) -> None:
    job.scratch.mkdir()
    rng, begin = np.random.default_rng(5), datetime(2026, 1, 1)
    for side in ("left", "right"):
        (job.input / side).mkdir(parents=True)
        for n in range(FILES):
            minutes = rng.uniform(10 * n, 10 * n + 15, ROWS)
            t = pa.array([begin + timedelta(minutes=float(m)) for m in minutes], pa.timestamp("us", "UTC"))
            table = pa.table({"k": rng.integers(0, KEYS, ROWS), "n": np.arange(ROWS) + n * ROWS, "t": t})
            pq.write_table(table, job.input / side / f"{n:05d}.parquet")


def found(job: Job, kind: str) -> set[tuple[str, str]]:
    return {(p.parent.name, p.name) for p in job.table.parent.glob(f"state/*/*/shard-*/{kind}")}


def test_oracle_the_same_part_with_a_worker_and_the_driver_killed(spark, tmp_path):
    job, log = Job(tmp_path), tmp_path / "log"
    make(job)
    with driver(tmp_path, log, join_windows.__file__, 2) as running:
        running.wait_for("rows", lambda: found(job, ".draft-*"))
        for worker in running.workers()[:1]:
            worker.kill()
        running.wait_for("end of its way", lambda: False)  # between decision and commit
        assert found(job, "*.decision.arrow")
        running.look()
        running.kill()
    with driver(tmp_path, log, join_windows.__file__) as running:
        assert running.process.wait(PATIENCE) == 0, log.read_text()[-3000:]
    quiet = join_windows.joined(spark, job.input, tmp_path / "quiet state")
    finished(hr.load(quiet, tmp_path / "quiet", checkpoint=tmp_path / "check", trigger={"availableNow": True}))
    got, wanted = (rows(by_deltalake(path), ["k", "n", "n_right"]) for path in (job.table, tmp_path / "quiet"))
    assert got == wanted
    assert max(got.values()) == 1 and got.total() > 1000
