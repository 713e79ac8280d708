"""kill -9 of a Python worker and of the driver while three streams are joined: every result is in the table, and once."""

from collections import Counter
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.delta_tables import by_deltalake, rows
from tests.support.killed_driver import run_with_kills
from tests.support.programs import join_several_streams
from tests.support.programs.killable_job import Job

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILES, ROWS, KEYS = 4, 600, 800


def make(job: Job) -> Counter:
    """The input; gives the results that must be in the table."""
    job.scratch.mkdir()
    rng, streams = np.random.default_rng(5), []
    for stream in ("a", "b", "c"):
        (job.input / stream).mkdir(parents=True)
        by_key: dict[int, list[int]] = {}
        for n in range(FILES):
            keys, numbers = rng.integers(0, KEYS, ROWS), np.arange(ROWS) + n * ROWS
            wide = pa.array([f"{stream:>150}"] * ROWS)
            pq.write_table(pa.table({"k": keys, "n": numbers, "wide": wide}), job.input / stream / f"{n:05d}.parquet")
            for k, number in zip(keys.tolist(), numbers.tolist(), strict=True):
                by_key.setdefault(k, []).append(number)
        streams.append(by_key)
    shared = set(streams[0]) & set(streams[1]) & set(streams[2])
    return Counter(repr([k, *found]) for k in shared for found in product(*(by_key[k] for by_key in streams)))


def test_oracle_every_result_once_with_a_worker_and_the_driver_killed(tmp_path):
    job = Job(tmp_path)
    wanted = make(job)
    run_with_kills(tmp_path, join_several_streams.__file__)
    assert rows(by_deltalake(job.table), ["k", "n", "n_1", "n_2"]) == wanted
