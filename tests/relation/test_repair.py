"""All damage is found, at a pace, and damaged shards are written anew from what the relation was made of."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.clock import ManualClock
from tests.support.relation_oracle import check_same, files_of, leftovers, named_files

ROWS, SIZE = 6000, 4096
TABLE = pa.table(
    {
        "k": np.random.default_rng(3).integers(0, 2500, ROWS),
        "name": pa.array([None if i % 13 == 0 else f"name {i}" for i in range(ROWS)]),
        "price": np.arange(ROWS) / 7,
    }
)


@pytest.fixture
def root(ram_path) -> Path:
    hr.Relation.create(ram_path / "r", TABLE, key="k", shards=3, page_size=SIZE).close()
    return ram_path / "r"


def part(root: Path, shard: int, kind: str) -> Path:
    """The newest file of a kind of a shard."""
    return max(root.glob(f"shard-{shard:04d}-*.{kind}"))


def flip(path: Path, at: int = 100) -> None:
    """Change a bit of a byte."""
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def places(damage) -> list[tuple[str, int | None]]:
    return [(Path(one.file).name, one.page) for one in damage]


def check_repaired(root: Path, table: pa.Table = TABLE) -> None:
    assert hr.verify(root) == []
    with hr.Relation.open(root) as rel:
        check_same(rel, table)
        assert files_of(root) == named_files(rel)
    assert leftovers(root) == []


# -- verify ----------------------------------------------------------------------------------------


def test_a_sound_relation_has_no_damage(root):
    calls = []
    assert hr.verify(root, progress=lambda done, total: calls.append((done, total))) == []
    with hr.Relation.open(root) as rel:
        assert hr.verify(rel) == hr.verify(str(root)) == []
        assert calls[-1] == (rel.num_pages, rel.num_pages)


def test_all_damage_is_listed(root):
    one, two = part(root, 0, "pages"), part(root, 2, "pages")
    for page in (3, 4, 9):
        flip(one, page * SIZE + 1000)
    flip(part(root, 0, "filter"))
    flip(part(root, 1, "stats"), 100)
    two.write_bytes(two.read_bytes()[:-100])
    part(root, 2, "index").unlink()
    found = hr.verify(root)
    assert places(found) == [
        (part(root, 0, "filter").name, None),
        (one.name, 3),
        (one.name, 4),
        (one.name, 9),
        (part(root, 1, "stats").name, None),
        (two.name, None),
        ("shard-0002-000001.index", None),
    ]
    assert [one.shard for one in found] == [0, 0, 0, 0, 1, 2, 2]
    with pytest.raises(hr.DamagedRelation, match="truncated"):
        hr.Relation.open(root)


def test_damage_in_index_pages_is_listed(ram_path):
    keys = pa.table({"k": np.arange(60_000), "v": np.arange(60_000)})
    hr.Relation.create(ram_path / "r", keys, key="k", shards=1, page_size=SIZE).close()
    fences = part(ram_path / "r", 0, "fences")
    flip(fences, 100)
    assert places(hr.verify(ram_path / "r")) == [(fences.name, 0)]
    assert hr.repair(ram_path / "r", keys).shards == [0]
    check_repaired(ram_path / "r", keys)


def test_parts_that_contradict_each_other_are_damage(root):
    """Each has a right checksum: the filter of another relation in the place of this one's."""
    other = root.parent / "other"
    hr.Relation.create(other, TABLE.slice(0, 10), key="k", shards=3, page_size=SIZE).close()
    shutil.copy(part(other, 1, "filter"), part(root, 1, "filter"))
    (found,) = hr.verify(root)
    assert (Path(found.file).name, found.shard) == (part(root, 1, "filter").name, 1)
    shutil.rmtree(other)
    hr.repair(root, TABLE)
    check_repaired(root)


@pytest.mark.parametrize("pace", ["40KiB/s", 10, "10"])
def test_the_pace_is_kept(root, pace):
    """40 KiB and 10 pages of 4 KiB are the same."""
    clock = ManualClock(100)
    with hr.Relation.open(root) as rel:
        nbytes = sum(file.bytes for shard in rel.opened.manifest.shards for file in shard.all_files())
        assert hr.verify(rel, pace=pace, clock=clock) == []
    assert clock.now() - 100 == pytest.approx(nbytes / 40960, abs=0.3)


@pytest.mark.parametrize("pace", [0, -1, "64MiB", "fast/s", "0/s", True, float("nan"), "inf"])
def test_a_pace_that_is_none(root, pace):
    with pytest.raises(hr.BadInput, match="pace="):
        hr.verify(root, pace=pace)


# -- repair ----------------------------------------------------------------------------------------


def test_nothing_is_written_of_a_sound_relation(root):
    done = hr.repair(root, TABLE)
    assert (done.version, done.damage, done.shards) == (1, [], [])
    assert len(list(root.glob("manifest-*"))) == 1


@pytest.mark.parametrize("kind", ["pages", "index", "filter", "stats"])
@pytest.mark.parametrize("gone", [False, True])
def test_a_damaged_file_is_written_anew_and_others_are_kept(root, kind, gone):
    before = {path.name: path.read_bytes() for path in root.glob("shard-*")}
    path = part(root, 1, kind)
    path.unlink() if gone else flip(path)
    done = hr.repair(root, TABLE)
    assert (done.version, done.shards, [one.shard for one in done.damage]) == (2, [1], [1])
    kept = {path.name: path.read_bytes() for path in root.glob("shard-*") if not path.name.startswith("shard-0001")}
    assert kept == {name: data for name, data in before.items() if not name.startswith("shard-0001")}
    check_repaired(root)


@pytest.mark.parametrize("source", ["parquet", "csv", "relation", "table"])
def test_two_damaged_shards_and_any_source(root, source, ram_path):
    whole: object = TABLE
    if source == "parquet":
        pq.write_table(TABLE, whole := ram_path / "source.parquet")
    elif source == "csv":
        pa.csv.write_csv(TABLE, whole := ram_path / "source.csv")
    elif source == "relation":
        hr.Relation.create(whole := ram_path / "copy", TABLE, key="k").close()
    for shard in (0, 2):
        flip(part(root, shard, "pages"), 5 * SIZE + 99)
        flip(part(root, shard, "index"))
    assert hr.repair(root, whole, memory="1MiB").shards == [0, 2]
    for beside in ram_path.iterdir():
        if beside != root:
            shutil.rmtree(beside) if beside.is_dir() else beside.unlink()
    check_repaired(root)


def test_readers_of_the_damaged_version_keep_it(root):
    with hr.Relation.open(root) as reader:
        flip(part(root, 0, "pages"), 2 * SIZE + 99)
        assert hr.repair(root, TABLE).version == 2
        with pytest.raises(hr.DamagedRelation):
            reader.verify()
        assert named_files(reader) < files_of(root)
        assert hr.Relation.open(root, version=1).num_rows == ROWS
        check_same(reader.refresh(), TABLE)
    assert hr.verify(root) == []


def test_a_relation_that_was_changed_is_repaired_and_keeps_its_notes(root):
    """Its pages have moved, and a change may have left more than one file of pages."""
    changed = pa.table({"k": [7, 8, 9999], "name": ["x", None, "z"], "price": [1.0, 2.0, 3.0]})
    with hr.Relation.open(root) as rel:
        rel.revise(lambda latest: hr.relation.update.Change(changed, [11], {"highest": {"k": 5}, "batch": 3}))
    with hr.Relation.open(root) as rel:
        now, notes = rel.to_arrow(), rel.notes
    flip(part(root, 0, "pages"), 99)
    flip(root / "shard-0001-000001.pages", 8 * SIZE + 99)
    flip(part(root, 2, "index"))
    hr.repair(root, now)
    check_repaired(root, now)
    with hr.Relation.open(root) as rel:
        assert rel.notes == notes and rel.notes["batch"] == 3


def without(table: pa.Table, row: int) -> pa.Table:
    return pa.concat_tables([table.slice(0, row), table.slice(row + 1)])


def in_shard(root: Path, shard: int, page: int) -> int:
    """A row of the table that lies in a page of a shard."""
    with hr.Relation.open(root) as rel:
        rows = next(facts.rows for _, _, facts in rel._scan_shard(shard, ()))  # no public name leads to pages
        keys = pa.concat_arrays([rel.codec.decode(keys)[0] for keys, _, _ in rel._scan_shard(shard, ())])
    key = keys[int(rows[:page].sum()) + 5].as_py()
    return TABLE["k"].to_pylist().index(key)


def other_value(table: pa.Table, row: int) -> pa.Table:
    prices = table["price"].to_pylist()
    prices[row] = -1.0
    return table.set_column(2, "price", pa.array(prices))


CHANGES = {
    "a row less": (lambda row, other: without(TABLE, row), r"shard 1 has [\d,]+ rows where [\d,]+ were written"),
    "a row more": (lambda row, other: pa.concat_tables([TABLE, TABLE.slice(row, 1)]), r"shard 1 has [\d,]+ rows where"),
    "another value": (lambda row, other: other_value(TABLE, row), r"a row of key \S+ was not in a page that is sound"),
    "a row in the place of another": (
        lambda row, other: pa.concat_tables([without(TABLE, row), TABLE.slice(other, 1)]),
        r"a row of key \S+ (was not in|is in) a page that is sound",
    ),
    "nothing": (lambda row, other: TABLE.slice(0, 0), r"shard 1 has 0 rows where"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("damaged", ["pages", "index"])
def test_a_source_with_other_rows_is_refused_unless_it_is_accepted(root, change, damaged):
    make, words = CHANGES[change]
    source = make(in_shard(root, 1, 10), in_shard(root, 1, 12))
    flip(part(root, 1, damaged), 3 * SIZE + 99 if damaged == "pages" else 99)
    before = files_of(root)
    with pytest.raises(hr.BadInput, match=words) as refused:
        hr.repair(root, source)
    assert "accept_changes=True" in str(refused.value)
    assert files_of(root) == before
    assert hr.repair(root, source, accept_changes=True).version == 2
    assert hr.verify(root) == []
    with hr.Relation.open(root) as rel:

        def of_shard_1(table: pa.Table) -> pa.Array:
            return pa.array(rel.opened.shards_of(rel.codec.encode([table["k"]])[0].hashes()) == 1)

        others = TABLE.filter(pa.compute.invert(of_shard_1(TABLE)))
        check_same(rel, pa.concat_tables([others, source.filter(of_shard_1(source))]))


def test_a_change_in_the_damaged_page_alone_is_not_seen_but_its_counts_are(root):
    """What was in a page that is lost nobody knows: its rows, keys, nulls and bytes are counted."""
    row = in_shard(root, 1, 3)
    flip(part(root, 1, "pages"), 3 * SIZE + 99)
    names = TABLE["name"].to_pylist()
    names[row] = "a name of another length"
    with pytest.raises(hr.BadInput, match=r"column 'name' has [\d,]+ bytes where|a row of key"):
        hr.repair(root, TABLE.set_column(1, "name", pa.array(names)))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (TABLE.drop_columns(["price"]), "the source's rows have no column 'price'"),
        (TABLE.append_column("more", TABLE["k"]), "have a column 'more' that the relation does not"),
        ("nowhere.parquet", "there are no source at|nowhere.parquet"),
    ],
)
def test_a_source_that_is_another(root, source, words):
    flip(part(root, 1, "pages"))
    with pytest.raises(hr.BadInput, match=words):
        hr.repair(root, source)
    assert leftovers(root) == [] and not list(root.glob("scratch-*")) and not list(root.glob("*-000002*"))


def test_a_damaged_manifest_cannot_be_repaired(root):
    flip(root / "manifest-000001.json", 40)
    (found,) = hr.verify(root)
    assert Path(found.file).name == "manifest-000001.json"
    with pytest.raises(hr.DamagedRelation, match="No source can replace a manifest"):
        hr.repair(root, TABLE)


def test_a_relation_stored_by_popularity_is_refused_by_name(ram_path):
    frequencies = pa.table({"k": [1, 2], "frequency": [5, 3]})
    hr.Relation.create(ram_path / "p", TABLE, key="k", order="frequency", frequencies=frequencies).close()
    flip(part(ram_path / "p", 0, "pages"))
    assert len(hr.verify(ram_path / "p")) == 1
    with pytest.raises(hr.BadInput, match="stored by popularity"):
        hr.repair(ram_path / "p", TABLE)


def test_a_writer_at_work_is_not_disturbed(root):
    from headrace.relation.manifest import writing

    flip(part(root, 1, "pages"))
    with writing(root), pytest.raises(hr.VersionConflict, match="another writer"):
        hr.repair(root, TABLE)


def test_oracle_any_damage_is_found_and_repaired(ram_path):
    """Bytes anywhere in any file, in relations with repeated keys that span pages and texts as keys."""
    rng = np.random.default_rng(8)
    for n in range(12):
        keys = rng.integers(0, [3, 40, 2000][n % 3], 3000)
        table = pa.table(
            {"k": keys if n % 2 else pa.array([f"key {k:05d}" for k in keys]), "v": rng.integers(0, 9, 3000)}
        )
        root = ram_path / str(n) / "r"
        hr.Relation.create(root, table, key="k", shards=2, page_size=SIZE).close()
        paths = sorted(root.glob("shard-*"))
        struck = [paths[i] for i in rng.choice(len(paths), 2, replace=False)]
        for path in struck:
            flip(path, int(rng.integers(path.stat().st_size)))
        found = hr.verify(root)
        assert {Path(one.file).name for one in found} == {path.name for path in struck}
        hr.repair(root, table)
        check_repaired(root, table)
