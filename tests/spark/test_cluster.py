"""A real cluster on loopback: one master, two workers, the driver in a process of its own."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from soak.cluster import Cluster
from tests.support import programs

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow]

PROGRAMS = Path(programs.__file__).parent  # not imported: they import pyspark, and need no session here
KEYS = 3000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    directory = tmp_path_factory.mktemp("cluster")
    some = Cluster(directory)
    try:
        some.start()
        yield some
    finally:
        some.close()


@pytest.fixture(scope="module")
def relation(tmp_path_factory):
    path = tmp_path_factory.mktemp("relation") / "r"
    k = np.arange(KEYS - 500)
    hr.Relation.create(path, pa.table({"k": k, "v": k * 3, "s": [f"name {x}" for x in k]}), key="k").close()
    return path


def test_contract_each_row_once_on_two_executors_and_with_one_of_them_killed(cluster, relation, tmp_path):
    from deltalake import DeltaTable

    files, rows = 3, 4000
    facts = cluster.run(PROGRAMS / "cluster_enrich.py", relation, tmp_path, files, rows, KEYS)
    got = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    n = np.arange(2 * files * rows)
    n = n[n * 7919 % KEYS < KEYS - 500]
    assert np.array_equal(np.sort(got["n"].to_numpy()), n)
    assert np.array_equal(got["k"].to_numpy(), got["n"].to_numpy() * 7919 % KEYS)
    assert np.array_equal(got["v"].to_numpy(), got["k"].to_numpy() * 3)
    assert got["s"].to_pylist() == [f"name {k}" for k in got["k"].to_pylist()]
    assert facts["workers"] == 1
    assert facts["batches"] == list(range(2 * files))
    assert facts["rows"] == facts["served"] == [rows] * 2 * files
    assert facts["hits"][2] > rows / 2, "what the first micro-batches fetched serves the third"
    assert all(0 < used <= limit for used, limit in zip(facts["memory"], facts["limits"], strict=True))
    # A micro-batch that ran on both executors shows the budgets of both.
    assert 16 << 20 in facts["limits"][:files]
    # While one of them is killed, tasks may have run on it, on the other and on the one that comes after it.
    assert set(facts["limits"]) <= {8 << 20, 16 << 20, 24 << 20}


def test_contract_each_pair_once_on_two_executors_and_with_one_of_them_killed(cluster, tmp_path):
    from deltalake import DeltaTable

    files, rows, keys = 2, 1000, 400
    facts = cluster.run(PROGRAMS / "cluster_join_two_streams.py", tmp_path, files, rows, keys)
    got = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    i = np.arange(2 * files * rows)
    left, right = pa.table({"k": i * 7919 % keys, "n": i}), pa.table({"k": i * 104729 % keys, "m": i})
    wanted = left.join(right, "k", join_type="inner")
    pairs = [np.sort(t["n"].to_numpy() * i.size + t[m].to_numpy()) for t, m in ((got, "n_right"), (wanted, "m"))]
    assert np.array_equal(*pairs)
    assert facts["rows"] >= 2 * i.size  # a task that ran twice may be counted in two micro-batches
    assert facts["deferred"] > 0
    assert facts["waiting"] == 0
    assert all(used <= limit for used, limit in zip(facts["memory"], facts["limits"], strict=True))
