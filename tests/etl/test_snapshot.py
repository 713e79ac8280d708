"""`snapshot_diff` against DuckDB, in bounded memory, and what `apply` makes of it."""

import json
import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import BadInput, VersionConflict
from tests.support.programs import measure_diff_memory
from tests.support.spark_streams import counted

TYPES = {"k": pa.int64(), "x": pa.float64(), "n": pa.int32(), "s": pa.string(), "b": pa.bool_()}


def snapshot(random: Random, keys, text: bool) -> pa.Table:
    rows = {
        "k": list(keys),
        "x": [random.choice([0.0, 1.5, math.nan, None]) for _ in keys],
        "n": [random.choice([0, 1, None]) for _ in keys],
        "s": [random.choice(["a", "", None]) for _ in keys],
        "b": [random.choice([True, None]) for _ in keys],
    }
    table = pa.table([pa.array(v, TYPES[n]) for n, v in rows.items()], names=list(rows))
    return table.set_column(0, "k", table["k"].cast(pa.string())) if text else table


def duck(old: pa.Table, new: pa.Table, sql: str) -> Counter:
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as db:
        db.register("o", old)
        db.register("n", new)
        return plain(db.sql(sql).to_arrow_table())


def plain(table: pa.Table) -> Counter:
    """Counted with NaN as a word, since it equals nothing."""
    return Counter(
        tuple("nan" if isinstance(v, float) and math.isnan(v) else v for v in row.values()) for row in table.to_pylist()
    )


@pytest.mark.parametrize("seed", range(25))
def test_oracle_against_duckdb(tmp_path, seed, monkeypatch):
    """Tiny domains, nulls and NaN, empty sides; small pieces; then apply."""
    random = Random(seed)
    pool, text = range(random.choice([1, 6, 400])), random.random() < 0.5
    monkeypatch.setattr("headrace.relation.update._PIECE", random.choice([1, 1024]))
    old = snapshot(random, random.sample(pool, random.randrange(len(pool) + 1)), text)
    new = snapshot(random, random.sample(pool, random.randrange(len(pool) + 1)), text)
    columns = random.sample(new.column_names, 5)
    rel = hr.Relation.create(tmp_path / "r", old, key="k", page_size="4KiB", shards=random.choice([1, 2]))
    with hr.snapshot_diff(new.select(columns), rel, memory=random.choice([1 << 14, "64MiB"])) as diff:
        inserted = duck(old, new, "select * from n where k not in (select k from o)")
        deleted = duck(old, new, "select * from o where k not in (select k from n)")
        # The differences of [MESH] §1 have the updates in them: S - R and R - S by EXCEPT, cut down to keys on both sides.
        after = duck(old, new, "select * from (from n except from o) where k in (select k from o)")
        before = duck(old, new, "select * from (from o except from n) where k in (select k from n)")
        same = duck(old, new, "from n intersect from o")
        assert plain(diff.inserted) == inserted, seed
        assert plain(diff.deleted) == deleted, seed
        updated = diff.updated
        assert plain(updated.select(["k", "x_new", "n_new", "s_new", "b_new"])) == after, seed
        assert plain(updated.select(["k", "x_old", "n_old", "s_old", "b_old"])) == before, seed
        assert diff.unchanged == sum(same.values()), seed
        changed = sum(map(len, (inserted, deleted, after)))
        assert rel.apply(diff) == 2
        assert f"inserted={len(inserted)}, deleted={len(deleted)}, updated={len(after)}" in repr(diff)
    with rel.refresh() as latest:
        assert plain(pa.Table.from_batches(latest.scan(), latest.schema)) == plain(new)
        again = hr.snapshot_diff(new, latest)
        assert (again.inserted.num_rows, again.deleted.num_rows, again.updated.num_rows) == (0, 0, 0)
        assert again.unchanged == new.num_rows
    assert changed >= 0
    again.close()
    assert [p.name for p in tmp_path.iterdir()] == ["r"]  # nothing is left behind


def test_composite_keys_parquet_and_pandas(tmp_path):
    old = pa.table({"a": ["x", "x", "y"], "b": [1, 2, 1], "v": [1.0, 2.0, 3.0]})
    new = pa.table({"a": ["x", "y", "z"], "b": [1, 1, 9], "v": [1.0, 3.5, 4.0]})
    rel = hr.Relation.create(tmp_path / "r", old, key=["a", "b"])
    pq.write_table(new, tmp_path / "new.parquet")
    for given in (tmp_path / "new.parquet", new.to_pandas(), new.to_reader()):
        with hr.snapshot_diff(given, rel) as diff:
            assert diff.inserted.to_pylist() == [{"a": "z", "b": 9, "v": 4.0}]
            assert diff.deleted.to_pylist() == [{"a": "x", "b": 2, "v": 2.0}]
            assert diff.updated.to_pylist() == [{"a": "y", "b": 1, "v_old": 3.0, "v_new": 3.5}]
            assert diff.unchanged == 1


def test_a_difference_fits_the_version_it_was_found_for(tmp_path):
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": [1], "v": [1]}), key="k")
    diff = hr.snapshot_diff(pa.table({"k": [2], "v": [1]}), rel)
    rel.apply(pa.table({"k": [7], "v": [7]}))
    with pytest.raises(VersionConflict, match=r"made for version 1 of .*, whose latest version is 2; .* decide anew"):
        rel.apply(diff)
    diff.close()
    with pytest.raises(BadInput, match="closed"):
        _ = diff.inserted


def test_refusals(tmp_path):
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": [1, 1], "v": [1, 2]}), key="k")
    one = hr.Relation.create(tmp_path / "one", pa.table({"k": [1], "v": [1]}), key="k")
    with pytest.raises(BadInput, match="key 1 is in the relation more than once"):
        hr.snapshot_diff(pa.table({"k": [1], "v": [1]}), rel)
    with pytest.raises(BadInput, match="key 3 is in the new snapshot more than once"):
        hr.snapshot_diff(pa.table({"k": [3, 2, 3], "v": [1, 2, 1]}), one)
    with pytest.raises(BadInput, match="holds 1 null"):
        hr.snapshot_diff(pa.table({"k": pa.array([None], pa.int64()), "v": [1]}), one)
    with pytest.raises(BadInput, match="the new rows have no column 'v'"):
        hr.snapshot_diff(pa.table({"k": [1]}), one)
    with pytest.raises(BadInput, match="the new rows have column 'v' of type string; expected int64"):
        hr.snapshot_diff(pa.table({"k": [1], "v": ["x"]}), one)
    with pytest.raises(BadInput, match="not a relation"):
        hr.snapshot_diff(pa.table({"k": [1]}), "r")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "r"]


def test_memory_is_bounded_by_what_was_given(tmp_path):
    """A million rows of 120 bytes, 120 MB on either side, compared in 24 MiB; the process's real growth."""
    root = Path(__file__).parents[2]
    child = measure_diff_memory.__file__
    done = subprocess.run(
        [sys.executable, child, tmp_path, "1000000", "24MiB"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["inserted"], found["deleted"], found["updated"]) == (10_000, 10_000, 20_000)
    assert found["unchanged"] == 970_000
    assert found["growth"] < 95 * (1 << 20)


@pytest.mark.spark
def test_a_spark_dataframe(spark, tmp_path):
    old = pa.table({"k": np.arange(1000), "v": np.arange(1000) % 7})
    rel = hr.Relation.create(tmp_path / "r", old, key="k")
    new = spark.range(10, 1010).selectExpr("if(id % 100 = 3, id + 1, id) % 7 AS v", "id AS k").repartition(3)
    with hr.snapshot_diff(new, rel) as diff:
        assert sorted(diff.inserted["k"].to_pylist()) == list(range(1000, 1010))
        assert counted(diff.deleted) == counted(old.slice(0, 10))
        assert sorted(diff.updated["k"].to_pylist()) == [103 + 100 * i for i in range(9)]
        assert diff.unchanged == 990 - 9
    assert [p.name for p in tmp_path.iterdir()] == ["r"]
    stream = spark.readStream.format("rate").load()
    with pytest.raises(BadInput, match="streaming DataFrame"):
        hr.snapshot_diff(stream, rel)
