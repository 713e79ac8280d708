"""kill -9 of drivers and workers while a stream is loaded into PostgreSQL: every row is in the table, and once."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.sources.connection import connected
from headrace.sources.secret import SecretUrl
from tests.support.killed_driver import PATIENCE, driver
from tests.support.programs import load_postgresql
from tests.support.programs.killable_job import Job

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 300
STAGES = "SELECT count(*) FROM pg_class WHERE relname LIKE 'headrace_stage_%'"


@pytest.mark.parametrize(
    (
        "lives",
        "files",
    ),  # the moment at which each driver is killed, and how many merges it makes at the most; two files a merge
    [([("staged", 2)], 8), pytest.param([("staged", 2), ("merged", 3)], 12, marks=pytest.mark.soak)],
    ids=["one life", "two lives"],
)
def test_oracle_every_row_once_whoever_is_killed(database, tmp_path, monkeypatch, lives, files):
    monkeypatch.setenv("LOADED_URL", database.url)
    database.query("CREATE TABLE loaded (k int, n int)")  # without a key: a row that comes twice is there twice
    job, log, rng = Job(tmp_path), tmp_path / "log", np.random.default_rng(5)
    job.input.mkdir()
    job.scratch.mkdir()
    wanted: Counter = Counter()
    for n in range(files):
        keys = rng.integers(0, 50, ROWS)
        pq.write_table(pa.table({"k": keys, "n": np.full(ROWS, n)}), job.input / f"{n:05d}.parquet")
        wanted.update((str(k), str(n)) for k in keys)
    with connected(SecretUrl.of(database.url)) as looking:

        def ask(sql: str) -> int:
            looking.rollback()
            return int(looking.rows(sql)[0][0])

        def loaded() -> int:
            made = ask("SELECT count(*) FROM pg_class WHERE relname = 'headrace_loads'")
            return ask("SELECT coalesce(max(number), -1) FROM headrace_loads") if made else -1

        left = 0
        for moment, merges in lives:
            with driver(tmp_path, log, load_postgresql.__file__, merges) as running:
                before = loaded()
                running.wait_for("merge", lambda before=before: loaded() > before)  # at work
                running.look()
                if moment == "staged":
                    running.workers()[0].kill()  # Spark tries its task again
                    running.wait_for("rows that are copied and not merged", lambda: False)
                else:
                    now = loaded()
                    running.wait_for("merge", lambda now=now: loaded() > now)
                running.kill()
            left += ask(STAGES)
        assert left, "no kill came between copying and merging"
        assert loaded() < files // 2 - 1, "the stream ended before the last kill"
        with driver(tmp_path, log, load_postgresql.__file__) as running:
            assert running.process.wait(PATIENCE) == 0, log.read_text()[-3000:]
        assert ask(STAGES) == 0
    assert Counter(map(tuple, database.rows("SELECT k, n FROM loaded"))) == wanted
