"""kill -9 of drivers and of Python workers while two streams are joined: every result is in the table, and once."""

import secrets
from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from tests.support.delta_tables import by_deltalake, rows
from tests.support.killed_driver import PATIENCE, driver, run_with_kills, state_files
from tests.support.programs import join_two_streams
from tests.support.programs.killable_job import Job
from tests.support.spark_streams import files

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = join_two_streams.__file__
FILES, ROWS, KEYS = 5, 700, 400
SECONDS = 600  # that the rows of a file take: with partners so near in time, about half of the rows have one
NEAR = f"l.k = r.k AND abs(l.s - r.s) <= {join_two_streams.WITHIN}"


def make(job: Job, *hows: str) -> dict[str, Counter]:
    """The input of both sides, some of it without keys; gives the rows that must be in the table of each join."""
    job.scratch.mkdir()
    job.input.mkdir()
    (job.input.parent / "how").write_text(" ".join(hows))
    rng, database = np.random.default_rng(5), duckdb.connect()
    for side in ("left", "right"):
        parts = []
        for n in range(FILES):
            keys = pa.array(rng.integers(0, KEYS, ROWS), mask=rng.random(ROWS) < 0.05)
            seconds = np.sort(rng.integers(n * SECONDS, (n + 1) * SECONDS, ROWS))
            parts.append(pa.table({"k": keys, "n": np.arange(ROWS) + n * ROWS, "s": seconds}))
        database.register(side[0], pa.concat_tables(parts))
        wide = pa.array([f"{side:>150}"] * ROWS)
        times = [pa.array(part["s"].to_numpy() * 10**6, pa.timestamp("us", "UTC")) for part in parts]
        tables = [
            p.drop(["s"]).append_column("t", t).append_column("wide", wide) for p, t in zip(parts, times, strict=True)
        ]
        files(job.input / side, *tables)
    wanted = {}
    for how in hows:
        columns = "l.k, l.n" if how in ("semi", "anti") else "coalesce(l.k, r.k), l.n, r.n"
        found = database.sql(f"SELECT {columns} FROM l {how} JOIN r ON {'l.k = r.k' if how == 'inner' else NEAR}")
        wanted[how] = Counter(repr(list(row)) for row in found.fetchall())
    return wanted


def loaded(job: Job, how: str) -> Counter:
    names = ["k", "n"] if how in ("semi", "anti") else ["k", "n", "n_right"]
    return rows(by_deltalake(job.table / how), names)


@pytest.mark.parametrize(
    ("hows", "then_hold"),
    [
        (("inner", "full"), ""),
        # and another driver, when the rows that are left at the end are in the table, and the log does not know
        pytest.param(("left", "right", "full", "semi", "anti"), "end", marks=pytest.mark.soak),
    ],
    ids=["inner and full", "all but inner"],
)
def test_oracle_every_result_once_with_workers_and_the_driver_killed(tmp_path, hows, then_hold):
    job = Job(tmp_path)
    wanted = make(job, *hows)
    run_with_kills(tmp_path, PROGRAM, len(hows), then_hold)
    for how in hows:
        assert loaded(job, how) == wanted[how], how


@pytest.mark.soak
def test_oracle_every_pair_once_whatever_is_killed(tmp_path):
    job, log, rng = Job(tmp_path), tmp_path / "log", np.random.default_rng(seed := secrets.randbits(32))
    wanted = make(job, "inner")
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
    assert loaded(job, "inner") == wanted["inner"], f"seed {seed}"
