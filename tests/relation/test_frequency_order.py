"""Relations stored by popularity: the order of rows and pages, the secondary index, and all that reads them."""

import json
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import app
from headrace.relation import Disk
from headrace.semistream import AdaptiveJoin, MeshJoin
from tests.support.join_oracle import KEY_KINDS, join, table, tuples

PAYLOAD = ["v", "s", "b"]


def popular(path, rows, frequencies, key="k0", **given):
    return hr.Relation.create(
        path, rows, key=key, order="frequency", frequencies=frequencies, page_size="4KiB", **given
    )


def ints(n, seed=1):
    random = np.random.default_rng(seed)
    return pa.table({"k0": random.permutation(n), "v": np.arange(n), "s": [f"text {i}" for i in range(n)]})


def test_rows_are_stored_by_falling_frequency_and_keys_without_one_last(tmp_path):
    rows = ints(5000)
    asked = pa.table({"k0": np.arange(0, 5000, 2), "frequency": np.random.default_rng(2).integers(0, 40, 2500)})
    relation = popular(tmp_path / "r", rows, asked)
    assert relation.num_shards == 1 and relation.order == "frequency" == relation.describe()["order"]
    rank = dict(zip(asked["k0"].to_pylist(), asked["frequency"].to_pylist(), strict=True))
    pages = []
    for keys, _, facts in relation._scan_shard(0, ()):  # private: a public scan does not say where a page ends
        pages += np.split(keys.values, np.cumsum(facts.rows)[:-1])
    expected = sorted(range(5000), key=lambda k: (-rank.get(k, -1), k))
    at = 0
    for page in pages:
        # In the page by key, so that it can be searched; from page to page by popularity and then key.
        assert list(page) == sorted(expected[at : at + page.size])
        at += page.size
    assert at == 5000 and len(pages) == relation.num_pages > 20


@pytest.mark.parametrize("kind", sorted(KEY_KINDS))
@pytest.mark.parametrize("shards", [1, 3])
def test_lookup_and_joins_agree_with_brute_force_whatever_the_key_and_its_frequency_in_r(tmp_path, kind, shards):
    random = Random(f"{kind}{shards}")
    numbers = [random.randrange(150) for _ in range(800)] + [7] * 300  # key 7 spans pages
    rows = table(kind, numbers, random, tag="r")
    key = [name for name in rows.schema.names if name.startswith("k")]
    distinct = rows.select(key).group_by(key).aggregate([])
    asked = distinct.append_column("frequency", pa.array([random.random() for _ in range(distinct.num_rows)]))
    relation = popular(tmp_path / "r", rows, asked, key=key, shards=shards, fill=0.5)
    assert relation.num_pages > 10
    relation.verify()
    wanted = table(kind, list(range(0, 190, 2)), random)
    found = relation.lookup(wanted.select(key))
    assert sorted(map(repr, tuples(found.to_batches()))) == sorted(
        repr((*k, *v)) for k, v in _matches(rows, wanted.select(key), key)
    )
    stream = table(kind, [random.randrange(190) for _ in range(120)], random, nulls=0.1, tag="s")
    batches = stream.combine_chunks().to_batches()
    for operator in (AdaptiveJoin, MeshJoin):
        got = tuples(operator(relation, on=key, memory="1MiB", how="left").run(batches))
        assert sorted(map(repr, got)) == sorted(map(repr, join(rows, batches, key, "left", PAYLOAD)))


def _matches(rows, wanted, key):
    keys = set(tuples(wanted.to_batches()))
    for row in rows.to_pylist():
        own = tuple(row[name] for name in key)
        if own in keys:
            yield own, tuple(row[name] for name in PAYLOAD)


def test_the_order_is_the_same_however_little_memory_sorting_has(tmp_path):
    rows = ints(20_000)
    asked = pa.table({"k0": np.arange(20_000), "frequency": np.random.default_rng(3).random(20_000)})
    scans = []
    for name, source, memory in (("a", rows, "64MiB"), ("b", rows.to_reader(999), "256KiB")):
        relation = popular(tmp_path / name, source, asked, memory=memory, shards=2)
        scans.append(pa.Table.from_batches(relation.scan()))
    assert scans[0].equals(scans[1])
    assert sorted(scans[0]["k0"].to_pylist()) == list(range(20_000))


def test_the_secondary_index_is_counted_and_knows_what_is_absent(tmp_path):
    relation = popular(tmp_path / "r", ints(3000), pa.table({"k0": [5], "frequency": [1]}))
    assert relation.index_bytes == 3000 * (8 + 4)
    index = relation.opened.indexes[0]
    low, high = index.locate(relation.codec.encode([pa.array([-1, 5, 2999, 3000])])[0])
    assert list(low < 0) == [True, False, False, True] and list(low) == list(high)
    assert low[1] == 0  # the one key that is asked for is in the first page


def test_an_empty_relation_and_no_frequencies_at_all(tmp_path):
    nothing = pa.table({"k0": pa.array([], pa.int64()), "frequency": pa.array([], pa.int64())})
    empty = popular(tmp_path / "e", ints(0), nothing)
    empty.verify()
    assert empty.lookup([1]).num_rows == 0 and list(empty.scan()) == []
    by_key = popular(tmp_path / "k", ints(500), nothing)
    assert pa.Table.from_batches(by_key.scan())["k0"].to_pylist() == list(range(500))


def test_damage_in_the_secondary_index_is_found(tmp_path):
    relation = popular(tmp_path / "r", ints(3000), pa.table({"k0": [5], "frequency": [1]}))
    relation.close()
    (file,) = (tmp_path / "r").glob("*.index")
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 4
    file.write_bytes(raw)
    with pytest.raises(hr.DamagedRelation, match="checksum"):
        hr.Relation.open(tmp_path / "r").lookup([1])


def test_it_opens_again_with_its_order_and_on_a_simulated_disk(tmp_path):
    popular(tmp_path / "r", ints(3000), pa.table({"k0": [5], "frequency": [1]})).close()
    again = hr.Relation.open(tmp_path / "r", disk=Disk("simulated"))
    assert again.order == "frequency"
    assert again.lookup([5, 6])["k0"].to_pylist() == [5, 6]
    assert hr.Relation.create(tmp_path / "k", ints(10), key="k0").order == "key"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"order": "frequency"}, "needs frequencies: a table with k0 and 'frequency'"),
        ({"frequencies": pa.table({"k0": [1], "frequency": [1]})}, "order='key' does not use it"),
        ({"order": "random"}, "order='random' is not supported; choose one of key, frequency"),
        ({"frequencies": [1], "order": "frequency"}, "frequencies is a list"),
        ({"frequencies": pa.table({"k0": [1]}), "order": "frequency"}, "no column 'frequency'"),
        (
            {"frequencies": pa.table({"k0": [1], "frequency": ["a"]}), "order": "frequency"},
            "type string; expected a number",
        ),
        ({"frequencies": pa.table({"k0": [1], "frequency": [-1]}), "order": "frequency"}, "a frequency of -1"),
        (
            {"frequencies": pa.table({"k0": [1], "frequency": [float("nan")]}), "order": "frequency"},
            "a frequency of nan",
        ),
        (
            {"frequencies": pa.table({"k0": [1], "frequency": pa.array([None], pa.int64())}), "order": "frequency"},
            "of None",
        ),
        ({"frequencies": pa.table({"k0": [4, 4], "frequency": [1, 2]}), "order": "frequency"}, "key 4 more than once"),
        ({"frequencies": pa.table({"k0": ["4"], "frequency": [1]}), "order": "frequency"}, "type string"),
    ],
)
def test_wrong_orders_and_frequencies_are_refused_by_name(tmp_path, given, message):
    with pytest.raises(hr.errors.BadInput, match=message):
        hr.Relation.create(tmp_path / "r", ints(10), key="k0", **given)
    assert not (tmp_path / "r").exists()


def test_the_command_line_makes_one_from_a_file_of_frequencies(tmp_path):
    pq.write_table(ints(100), tmp_path / "rows.parquet")
    pq.write_table(pa.table({"k0": [42], "frequency": [9]}), tmp_path / "asked.parquet")
    given = ["relation", "create", str(tmp_path / "rows.parquet"), str(tmp_path / "r"), "--key", "k0", "--json"]
    how = ["--order", "frequency", "--frequencies", str(tmp_path / "asked.parquet")]
    result = CliRunner().invoke(app, given + how)
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert (facts["order"], facts["shards"]) == ("frequency", 1)
    missing = CliRunner().invoke(
        app, [*given, "--overwrite", "--order", "frequency", "--frequencies", "nowhere.parquet"]
    )
    assert missing.exit_code != 0 and "--frequencies 'nowhere.parquet' is not there" in missing.output
