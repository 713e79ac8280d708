"""Creation in little memory: runs are spilled and merged, and the result is the same."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.relation.sorter import ExternalSorter
from headrace.relation.writer import Layout
from tests.support.programs import measure_create_memory
from tests.support.relation_oracle import FEW, chunks, in_order, leftovers, rows, scanned

ROWS = 200_000
MIB = 1 << 20


def numbers(order: str) -> np.ndarray:
    rng = np.random.default_rng(4)
    n = np.arange(ROWS)
    return {
        "random": lambda: rng.permutation(ROWS),
        "duplicates": lambda: rng.integers(0, 5000, ROWS),
        "sorted": lambda: n,
        "reverse": lambda: n[::-1].copy(),
        "one giant key": lambda: np.where(rng.random(ROWS) < 0.7, 77_777, rng.permutation(ROWS)),
        "only one key": lambda: np.full(ROWS, -5),
        "two halves": lambda: np.concatenate([n[::2], n[1::2]]),
        "zipf": lambda: rng.zipf(1.3, ROWS) % 10_000,
    }[order]()


def create_spilling(root: Path, table: pa.Table, **options):
    """The relation, and how many spilled runs were seen while it was made."""
    spilled = set()
    data = table.to_reader(max_chunksize=10_000)

    def look(done, total):
        spilled.update(p.name for p in root.parent.glob(f"{root.name}.unfinished-*/scratch/*"))

    rel = hr.Relation.create(root, data, memory="1MiB", progress=look, **options)
    assert leftovers(root) == [], "scratch is left"
    assert not (root / "scratch").exists()
    return rel, len(spilled)


@pytest.mark.parametrize(
    "order", ["random", "duplicates", "sorted", "reverse", "one giant key", "only one key", "two halves", "zipf"]
)
def test_oracle_spilled(order, tmp_path):
    keys = numbers(order)
    table = pa.table({"k": keys, "arrival": np.arange(ROWS)})
    rel, spilled = create_spilling(tmp_path / "r", table, key="k", shards=2)
    assert spilled >= 3, "hardly anything was spilled: the test shows nothing"
    assert rel.num_rows == ROWS
    got = [np.array(list(c)) for c in zip(*scanned(rel), strict=True)]
    expected = np.argsort(keys, kind="stable")  # by key and, among equal keys, by arrival
    order_of = np.argsort(got[0], kind="stable")
    assert (got[1][order_of] == expected).all()
    assert (got[0][order_of] == keys[expected]).all()
    starts = np.flatnonzero(np.diff(got[0]) < 0)
    assert starts.size <= 1, "a shard is not in key order"
    rel.verify()
    assert rel.distinct_keys == len(np.unique(keys))
    # A key whose rows come in several pieces is found whole.
    common, counts = np.unique(keys, return_counts=True)
    some = common[np.argsort(-counts)[:50]]
    found = rel.lookup(some.tolist())
    assert found["arrival"].to_pylist() == [n for key in some for n in np.flatnonzero(keys == key).tolist()]


def test_differential_strings_and_composites_spilled_or_not(tmp_path):
    rng = np.random.default_rng(6)
    n = 140_000
    table = pa.table(
        {
            "a": pa.array([f"key {i % 700}\0{i % 3}" for i in rng.permutation(n)]),
            "b": pa.array(rng.integers(-3, 3, n), pa.int8()),
            "s": pa.array([None if i % 9 == 0 else "x" * (i % 90) for i in range(n)]),
        }
    )
    for key in ("a", ["b", "a"]):
        name = "-".join(key)
        spilled, runs = create_spilling(tmp_path / name / "r", table, key=key)
        assert runs > 3
        whole = hr.Relation.create(tmp_path / f"{name}-whole" / "r", table, key=key)
        assert scanned(spilled) == scanned(whole)
        facts, others = spilled.describe(), whole.describe()
        for fact in ("rows", "distinct_keys", "max_frequency", "pages", "bytes", "fill"):
            assert facts[fact] == others[fact]
        frequencies = [sorted(rows(r.key_frequencies())) for r in (spilled, whole)]
        assert frequencies[0] == frequencies[1]


KEYS = {
    "int": (pa.int64(), st.integers(-3, 3)),
    "string": (pa.string(), st.text(st.sampled_from("\0ab"), max_size=2)),
    "decimal": (pa.decimal128(38, 0), st.decimals(-(10**30), 10**30, places=0)),
}


@pytest.mark.parametrize("kind", KEYS)
@given(data=st.data(), memory=st.sampled_from([1, 40, 500, 5000]), batch=st.integers(1, 12))
@FEW
def test_oracle_tiny_runs(kind, tmp_path_factory, data, memory, batch):
    """So little memory that every few rows are a run, and a piece is next to nothing."""
    type_, keys = KEYS[kind]
    some = data.draw(st.lists(keys, max_size=60))
    shards = data.draw(st.integers(1, 3))
    table = pa.table({"k": pa.array(some, type_), "n": pa.array(range(len(some)), pa.int64())})
    layout = Layout.of(table.schema, ("k",), 4096, 0.8)
    scratch = tmp_path_factory.mktemp("scratch")
    sorter = ExternalSorter(layout, shards, memory, scratch, "refuse")
    for some_rows in chunks(table, batch):
        sorter.add(pa.Table.from_batches([some_rows]))
    sorter.finish()
    seen = []
    for shard in range(shards):
        mine = [row for piece in sorter.shard(shard) for row in rows(piece)]
        assert in_order(mine), "not by key and, among equal keys, by arrival"
        seen += mine
    assert len(seen) == len(some)
    assert sorted(seen) == sorted(rows(table))
    homes = {}
    for shard in range(shards):
        for piece in sorter.shard(shard):
            for key, _ in rows(piece):
                assert homes.setdefault(key, shard) == shard, "a key is in two shards"


def test_null_keys_are_dropped_from_every_run(tmp_path):
    keys = pa.array([None if i % 10 == 0 else i for i in range(ROWS)])
    table = pa.table({"k": keys, "v": np.arange(ROWS)})
    rel, spilled = create_spilling(tmp_path / "r", table, key="k", null_keys="drop")
    assert spilled > 3
    assert rel.num_rows == ROWS - ROWS // 10
    assert {v for _, v in scanned(rel)} == {i for i in range(ROWS) if i % 10}


def test_a_refusal_after_spilling_leaves_nothing(tmp_path):
    keys = pa.array([None if i == ROWS - 1 else i for i in range(ROWS)])
    with pytest.raises(hr.BadInput, match="null"):
        hr.Relation.create(tmp_path / "r", pa.table({"k": keys}), key="k", memory="1MiB")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("skew", [0, 0.6, 1], ids=["distinct", "one key of 60%", "only one key"])
def test_peak_memory_of_a_create(skew, tmp_path):
    """1.5 million rows, 165 MB of them, sorted in 128 MiB; the process's real growth, from outside."""
    assert growth(tmp_path / "r", 1_500_000, "128MiB", skew=skew) < 400 * MIB


@pytest.mark.slow
def test_peak_memory_with_wide_rows(tmp_path):
    """Memory is counted in bytes, not in rows: 24,000 rows of 8,000 bytes, sorted in 32 MiB."""
    assert growth(tmp_path / "r", 24_000, "32MiB", text=8000) < 200 * MIB


def growth(root, count, memory, *, skew=0.0, text=83) -> int:
    child = measure_create_memory.__file__
    done = subprocess.run(
        [sys.executable, child, root, str(count), memory, str(skew), str(text)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["rows"] == count
    return found["growth"]


def test_progress_goes_up_to_all_rows(tmp_path):
    seen = []
    table = pa.table({"k": np.arange(ROWS)})
    hr.Relation.create(tmp_path / "r", table, key="k", memory="1MiB", progress=lambda *a: seen.append(a))
    assert all(a <= b for (a, _), (b, _) in pairwise(seen))
    assert seen[-1] == (ROWS, ROWS)
