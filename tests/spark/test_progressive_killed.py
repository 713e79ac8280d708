"""kill -9 of drivers and of a Python worker while two streams are joined: every pair is in the table, and once."""

import secrets
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.delta_tables import by_deltalake, rows
from tests.support.killed_driver import PATIENCE, driver, run_with_kills, state_files
from tests.support.programs import join_two_streams
from tests.support.programs.killable_job import Job

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = join_two_streams.__file__
FILES, ROWS, KEYS = 5, 700, 400


def make(job: Job) -> Counter:
    """The input; gives the pairs that must be in the table."""
    job.scratch.mkdir()
    rng, sides = np.random.default_rng(5), {}
    for side in ("left", "right"):
        (job.input / side).mkdir(parents=True)
        sides[side] = []
        for n in range(FILES):
            keys, numbers = rng.integers(0, KEYS, ROWS), np.arange(ROWS) + n * ROWS
            wide = pa.array([f"{side:>150}"] * ROWS)
            pq.write_table(pa.table({"k": keys, "n": numbers, "wide": wide}), job.input / side / f"{n:05d}.parquet")
            sides[side] += zip(keys.tolist(), numbers.tolist(), strict=True)
    by_key: dict[int, list[int]] = {}
    for k, n in sides["right"]:
        by_key.setdefault(k, []).append(n)
    return Counter(repr([k, n, m]) for k, n in sides["left"] for m in by_key.get(k, ()))


def test_oracle_every_pair_once_with_a_worker_and_the_driver_killed(tmp_path):
    job = Job(tmp_path)
    wanted = make(job)
    run_with_kills(tmp_path, PROGRAM)
    assert rows(by_deltalake(job.table), ["k", "n", "n_right"]) == wanted


@pytest.mark.soak
def test_oracle_every_pair_once_whatever_is_killed(tmp_path):
    job, log, rng = Job(tmp_path), tmp_path / "log", np.random.default_rng(seed := secrets.randbits(32))
    wanted = make(job)
    with driver(tmp_path, log, PROGRAM, 2) as running:  # between a decision and its commit
        running.wait_for("decision", lambda: state_files(tmp_path, "*.decision.arrow"))
        running.look()
        before = state_files(tmp_path, "*.decision.arrow")
        running.wait_for("decision", lambda: state_files(tmp_path, "*.decision.arrow") - before)
        running.kill()
    with driver(tmp_path, log, PROGRAM, 2) as running:  # a worker while rows are written, then the driver
        running.wait_for("rows", lambda: state_files(tmp_path, ".draft-*"))
        if workers := running.workers():
            workers[rng.integers(len(workers))].kill()
        before = state_files(tmp_path, "*.decision.arrow")
        running.wait_for("decision", lambda: state_files(tmp_path, "*.decision.arrow") - before)
        running.wait_for("rows", lambda: state_files(tmp_path, ".draft-*"))
        running.look()
        running.kill()
    with driver(tmp_path, log, PROGRAM) as running:
        assert running.process.wait(PATIENCE) == 0, log.read_text()[-3000:]
    assert rows(by_deltalake(job.table), ["k", "n", "n_right"]) == wanted, f"seed {seed}"
