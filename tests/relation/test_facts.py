"""What a relation says about itself: duplicates, frequencies, sizes."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.kernels.filter import filter_test
from headrace.kernels.hashing import hash_ints, shards_of
from headrace.relation.writer import HEAVY
from tests.support.kernel_arrays import fit
from tests.support.relation_oracle import FEW, check_same, files_of, names_of, rows


def frequencies(rel) -> dict[tuple[object, ...], int]:
    table = rel.key_frequencies()
    assert table.schema.names == [*rel.key, "frequency"]
    counts = table["frequency"].to_pylist()
    assert counts == sorted(counts, reverse=True)
    found = dict(zip(rows(table, rel.key), counts, strict=True))
    assert len(found) == table.num_rows, "a key is counted twice"
    return found


def repeated(keys) -> dict[object, int]:
    return {key: n for key, n in Counter(keys).items() if n > 1}


def histogram(rel) -> list[int]:
    total = np.zeros(40, np.int64)
    for number in range(rel.num_shards):
        total += rel.opened.arrays(number, "stats")["histogram"]
    return total.tolist()


def brute_histogram(keys) -> list[int]:
    bins = Counter(n.bit_length() - 1 for n in Counter(keys).values())
    return [bins.get(b, 0) for b in range(40)]


# -- duplicates ------------------------------------------------------------------------------------


@pytest.mark.parametrize("copies", [1, 2, 50, 51, 52, 500, 5000])
@pytest.mark.parametrize("shards", [1, 2])
def test_oracle_duplicates_span_pages(copies, shards, tmp_path):
    """One key of many rows between neighbours; its rows start and end in the middle of a page."""
    keys = [*range(37), *[50] * copies, *range(60, 97)]
    table = pa.table({"k": keys, "n": range(len(keys)), "s": ["x" * 60] * len(keys)})
    rel = hr.Relation.create(tmp_path / "r", table, key="k", page_size=4096, shards=shards)
    check_same(rel, table)
    assert rel.lookup([50])["n"].to_pylist() == list(range(37, 37 + copies))
    assert rel.lookup([49, 51]).num_rows == 0
    if copies > 100:
        spans = [i.continues.sum() for i in rel.opened.indexes]
        assert max(spans) > copies // 60
    assert frequencies(rel) == {(k,): n for k, n in repeated(keys).items()}


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 150)), max_size=8), st.integers(1, 2))
@FEW
def test_oracle_runs_of_equal_keys(ram_path_factory, runs, shards):
    """Keys that fill pages exactly, or nearly: the flags that say where a key goes on are right."""
    keys = [key for key, copies in runs for _ in range(copies)]
    table = pa.table({"k": pa.array(keys, pa.int32()), "n": np.arange(len(keys)), "s": ["x" * 90] * len(keys)})
    root = ram_path_factory.mktemp("runs") / "r"
    with hr.Relation.create(root, table, key="k", page_size=4096, shards=shards) as rel:
        check_same(rel, table)
        assert frequencies(rel) == {(k,): n for k, n in repeated(keys).items()}
        assert histogram(rel) == brute_histogram(keys)


# -- frequencies -----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [["i"], ["s"], ["s", "i"]], ids="+".join)
def test_oracle_key_frequencies_are_exact(key, tmp_path):
    rng = np.random.default_rng(8)
    i = rng.zipf(1.4, 20_000) % 1000
    table = pa.table({"i": i, "s": [f"name {n % 300}" for n in i], "v": np.arange(i.size)})
    rel = hr.Relation.create(tmp_path / "r", table, key=key, shards=3)
    everything = rows(table, key)
    assert frequencies(rel) == repeated(everything)
    assert histogram(rel) == brute_histogram(everything)
    facts = rel.describe()
    assert facts["max_frequency"] == max(Counter(everything).values())
    assert facts["distinct_keys"] == len(set(everything))
    assert not rel.unique


def test_of_very_many_repeated_keys_the_most_frequent_are_kept(tmp_path):
    n = 3 * HEAVY
    keys = np.repeat(np.arange(n), 2 + np.arange(n) % 5)
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": keys}), key="k", shards=1)
    found = frequencies(rel)
    counts = Counter(keys.tolist())
    assert len(found) == HEAVY
    assert all(counts[key] == n for (key,), n in found.items())
    assert sorted(found.values()) == sorted(sorted(counts.values())[-HEAVY:])
    assert histogram(rel) == brute_histogram(keys.tolist())


def test_unique_keys_have_no_frequencies(tmp_path):
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": [3, 1, 2]}), key="k")
    assert rel.unique
    assert frequencies(rel) == {}
    assert rel.describe()["max_frequency"] == 1


# -- describe --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fill", [0.3, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("page_size", [4096, 8192, 65536])
def test_describe_tells_the_truth(fill, page_size, tmp_path):
    n = 20_000
    table = pa.table({"k": range(n), "s": [f"{i:060}" for i in range(n)]})
    rel = hr.Relation.create(tmp_path / "r", table, key="k", fill=fill, page_size=page_size, shards=3)
    facts = rel.describe()
    shards = rel.opened.manifest.shards
    assert facts["path"] == str(tmp_path / "r")
    assert facts["rows"] == rel.num_rows == n == sum(s.rows for s in shards)
    assert facts["distinct_keys"] == n
    assert facts["key"] == ["k"]
    assert facts["columns"] == {"k": "int64", "s": "string"}
    assert facts["version"] == rel.version == 1
    assert facts["shards"] == rel.num_shards == 3
    assert facts["page_size"] == page_size
    on_disk = [(tmp_path / "r" / f.name).stat().st_size for s in shards for f in s.files]
    assert facts["bytes"] == sum(on_disk) == facts["pages"] * page_size
    assert facts["pages"] == rel.num_pages == sum(len(rel.opened.places(s)) for s in range(3))
    assert fill - 0.12 < facts["fill"] <= fill
    assert facts["filter_bytes"] == sum((tmp_path / "r" / s.filter.name).stat().st_size for s in shards)
    assert 12 * n / 8 <= facts["filter_bytes"] <= 12 * n / 8 * 1.1 + 3 * 256
    assert facts["index_bytes"] == rel.index_bytes == facts["pages"] * 9
    assert files_of(rel.path) == {
        "manifest-000001.json",
        *(name for shard in shards for name in shard.names()),
    }


@pytest.mark.parametrize(("n", "height"), [(0, 1), (1, 1), (50_000, 2)])
def test_height_of_the_index(n, height, tmp_path):
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": np.arange(n), "v": np.arange(n)}), key="k", page_size=4096)
    assert rel.describe()["index_height"] == height


def test_variable_bytes_and_nulls_are_counted(tmp_path):
    table = pa.table({"k": range(100), "s": [None if i % 3 else "é" * i for i in range(100)], "b": [b"xy"] * 100})
    rel = hr.Relation.create(tmp_path / "r", table, key="k", page_size=4096)
    assert rel.variable_bytes == {"s": 2 * sum(range(0, 100, 3)), "b": 200}
    assert rel.opened.manifest.nulls == {"s": 66, "b": 0}
    assert [c.nullable for c in rel.opened.payload] == [True, False]


def test_the_filter_knows_every_key_and_few_others(tmp_path):
    n = 20_000
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": np.arange(n)}), key="k", shards=3)

    assert passed(rel, np.arange(n)) == 1
    assert passed(rel, np.arange(10**9, 10**9 + 50_000)) < 0.015


@pytest.mark.parametrize("start", [0, 100])
def test_the_filter_grows_with_the_relation(start, tmp_path):
    """Absent keys must stay cheap when updates bring in far more keys than there were at first."""
    n = 20_000
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": np.arange(start)}), key="k", shards=3)
    rel.apply(upserts=pa.table({"k": np.arange(n)}))
    rel = rel.refresh()
    assert passed(rel, np.arange(n)) == 1
    assert passed(rel, np.arange(10**9, 10**9 + 50_000)) < 0.05


def passed(rel, keys) -> float:
    """The share of keys that the filters of their shards let through."""
    hashes, shard = np.empty(keys.size, np.uint64), np.empty(keys.size, np.int32)
    hash_ints(keys, hashes)
    shards_of(hashes, rel.num_shards, shard)
    maybe = np.zeros(keys.size, np.uint8)
    for number in range(rel.num_shards):
        mine = np.flatnonzero(shard == number)
        some = np.zeros(mine.size, np.uint8)
        filter_test(rel.opened.filter(number), hashes, fit(filter_test, 2, mine), some)
        maybe[mine] = some
    return float(maybe.mean())


def test_small_properties(tmp_path):
    table = pa.table({"v": [1.5], "k": ["x"]})
    rel = hr.Relation.create(tmp_path / "r", table, key="k")
    assert rel.schema == table.schema
    assert rel.key == ("k",)
    assert rel.page_size == 8192
    assert names_of(rel) == ["k", "v"]
    assert repr(rel) == f"Relation({str(tmp_path / 'r')!r}, version=1, rows=1, pages=1)"
