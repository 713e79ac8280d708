"""The index in pages of its own: it answers as the whole index does, and damage to it is found."""

import json

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.metrics import JoinStats
from headrace.relation import Disk
from headrace.relation.index_memory import IndexLevels, IndexMemory
from headrace.relation.manifest import FORMAT
from headrace.relation.paged_index import open_index
from headrace.relation.writer import INDEX_PIECE, index_layout
from tests.support.flipped_bytes import one_wrong
from tests.support.malformed_pages import ROWS, data_of, rewrite_manifest, rewrite_page
from tests.support.paged_relations import PAGE, by_frequency, by_key, integer_rows, long_keys, text_rows


def fences(rel):
    return sorted(rel.path.glob("*.fences"))


def without_index_pages(rel):
    """Make it a relation of an earlier format."""
    with rel:
        for path in fences(rel):
            path.unlink()
        rewrite_manifest(rel.path, lambda manifest: [setattr(s, "fences", None) for s in manifest.shards])
    return hr.Relation.open(rel.path)


def paged(rel, level, frames=3, keys=100, stats=None):
    memory = IndexMemory(nbytes=0, level=level, frames=frames, read_pages=2, keys=keys)
    counters = stats or JoinStats()
    return open_index(rel.opened, memory, lambda: counters)


def check_same(rel, wanted, ranges=False):
    """For every level that can be in memory, and pools small and large: the same pages, in the same places."""
    whole = rel.opened
    keys, _ = rel.codec.encode([wanted])
    hashes, every = keys.hashes(), np.arange(len(keys))
    expected = whole.pairs(keys, hashes, every)
    for level in range(len(rel.index_levels.pages)):
        for frames, together in ((2, 64), (7, 1000), (500, 4096)):
            found = paged(rel, level, frames, together)
            for _ in range(2):  # forwards and backwards
                pairs = found.pairs(keys, hashes, every)
                assert pairs.key.tolist() == expected.key.tolist()
                assert pairs.place.tolist() == expected.place.tolist()
            for shard in range(rel.num_shards):
                assert found.places(shard).tolist() == whole.places(shard).tolist()


def changed(rel, table, rng):
    """Some rows replaced, some gone, some new: data pages move."""
    some = rng.choice(table.num_rows, 60, replace=False)
    upserts = table.take(some[:40]).set_column(1, "v", pa.array(np.arange(40)))
    rel.apply(upserts, deletes=table["k"].take(pa.array(some[40:])))
    return rel.refresh()


@pytest.mark.parametrize("order", ["key", "frequency"])
@pytest.mark.parametrize("kind", ["integers", "texts"])
def test_oracle_the_same_pages_as_the_whole_index(tmp_path, order, kind):
    rng = np.random.default_rng(7)
    if kind == "texts":
        table, wanted = text_rows(4000), long_keys(np.unique(rng.integers(0, 8100, 700)))
    else:
        table, wanted = integer_rows(100_000), pa.array(np.unique(rng.integers(-5, 200_100, 900)))
    if order == "key" and kind == "integers":  # one row a page: an entry for each
        table = table.slice(0, 2500).append_column("text", pa.array(["x" * 3900] * 2500))
    options = {"order": order, "shards": 2 if order == "key" else 1}
    if order == "frequency":
        options["frequencies"] = pa.table({"k": table["k"].slice(0, 500), "frequency": np.arange(500)})
    rel = hr.Relation.create(tmp_path / "r", table, key="k", page_size=PAGE, **options)
    assert len(rel.index_levels.pages) >= 2
    rel.verify()
    check_same(rel, wanted)
    if order == "key":
        new = changed(rel, table, rng)
        new.verify()
        assert any(shard.fences.moved for shard in new.opened.manifest.shards)
        check_same(new, wanted)
        new.compact()
        with new.refresh() as compacted:
            compacted.verify()
            assert not any(shard.fences.moved for shard in compacted.opened.manifest.shards)
            check_same(compacted, wanted)


@pytest.mark.parametrize("repeats", [1, 40, 9000])
def test_oracle_keys_that_span_pages_and_index_pages(tmp_path, repeats):
    """With 9,000 rows of 500 bytes a key has more than a thousand pages, and so fills leaves of the index by itself."""
    numbers = np.repeat(np.arange(max(3, 12_000 // repeats)) * 3, repeats)
    table = pa.table({"k": numbers, "v": np.arange(numbers.size), "text": ["y" * 500] * numbers.size})
    rel = hr.Relation.create(tmp_path / "r", table, key="k", page_size=PAGE, shards=1)
    wanted = pa.array(np.arange(-2, int(numbers[-1]) + 3, max(1, numbers[-1] // 500)))
    check_same(rel, wanted)
    rel.apply(table.slice(0, 1), deletes=[3])
    check_same(rel.refresh(), wanted)


def test_composite_keys_and_an_empty_shard(tmp_path):
    n = 3000
    table = pa.table({"a": np.arange(n) % 7, "b": [f"{i:05d}" + "z" * 300 for i in range(n)], "v": np.arange(n)})
    rel = hr.Relation.create(tmp_path / "r", table, key=["a", "b"], page_size=PAGE, shards=1)
    whole = rel.opened
    keys, _ = rel.codec.encode([table["a"], table["b"]])
    expected = whole.pairs(keys, keys.hashes(), np.arange(n))
    for level in range(len(rel.index_levels.pages)):
        found = paged(rel, level).pairs(keys, keys.hashes(), np.arange(n))
        assert found.place.tolist() == expected.place.tolist()
    one = pa.table({"k": ["q" * 900] * 3000, "v": np.arange(3000)})  # all rows fall on one of eight shards
    lonely = hr.Relation.create(tmp_path / "lonely", one, key="k", page_size=PAGE, shards=8)
    assert sum(shard.fences is None for shard in lonely.opened.manifest.shards) == 7
    lonely.verify()
    check_same(lonely, pa.array(["a", "q" * 900, "r"]))


def test_a_level_of_several_pieces(tmp_path):
    """The entries of a level are made into pages a piece at a time, and no page is cut where a piece ends."""
    rows = INDEX_PIECE + 3 * index_layout(PAGE, integer=True).most_rows
    with by_frequency(tmp_path / "r", rows) as rel:
        rel.verify()
        each = (PAGE - index_layout(PAGE, integer=True).overhead) // 17
        assert rel.index_levels.pages[0] == -(-rows // each)


def test_small_indexes_have_no_pages_and_the_format_of_before(tmp_path):
    with hr.Relation.create(tmp_path / "r", integer_rows(1000), key="k") as rel:
        assert fences(rel) == [] and rel.index_levels is None
        assert json.loads(next(rel.path.glob("manifest*")).read_text())["format"] == 1
    with by_key(tmp_path / "s", 2000) as rel:
        assert len(fences(rel)) == 2
        assert json.loads(next(rel.path.glob("manifest*")).read_text())["format"] == FORMAT


def test_keys_too_long_for_index_pages_have_none(tmp_path):
    table = pa.table({"k": [f"{i:03d}" + "x" * 2500 for i in range(200)], "v": np.arange(200)})
    with hr.Relation.create(tmp_path / "r", table, key="k", page_size=PAGE) as rel:
        assert fences(rel) == [] and rel.index_levels is None
        rel.verify()


def test_a_relation_of_an_earlier_format_opens_changes_and_gets_index_pages(tmp_path):
    rel = without_index_pages(by_key(tmp_path / "r", 2000))
    assert rel.index_levels is None
    rel.verify()
    assert rel.lookup([long_keys([20])[0].as_py()])["v"].to_pylist() == [10]
    rel.apply(pa.table({"k": long_keys([21]), "v": [99]}))
    with rel.refresh() as new:
        assert new.lookup([long_keys([21])[0].as_py()])["v"].to_pylist() == [99]
        new.verify()
        new.compact()
        with new.refresh() as compacted:
            assert compacted.index_levels is not None
            compacted.verify()


def test_the_size_of_the_index_is_known_without_reading_it(tmp_path):
    with by_key(tmp_path / "r", 2000) as rel:
        said = rel.index_bytes
        assert rel.opened._indexes is None  # private: that nothing was loaded cannot be seen otherwise
        assert said == sum(index.nbytes for index in rel.opened.indexes)


# -- damage ------------------------------------------------------------------------------------------------------------


def everything(rel, version):
    for shard in range(rel.num_shards):
        version.places(shard)
    keys, _ = rel.codec.encode([long_keys(np.arange(0, 4000, 3))])
    return version.pairs(keys, keys.hashes(), np.arange(len(keys)))


def test_every_damaged_index_page_is_found_by_verify_and_by_lookups(tmp_path):
    rel = by_key(tmp_path / "r", 2000)
    path = fences(rel)[1]
    for page in range(path.stat().st_size // PAGE):
        with one_wrong(path, page * PAGE + 777, 0x20):
            with pytest.raises(hr.DamagedRelation, match="checksum") as found:
                rel.verify()
            assert (found.value.file, found.value.shard, found.value.page) == (str(path), 1, page)
            with pytest.raises(hr.DamagedRelation, match="checksum") as found:
                # All of the tree is read when the page of the top level is found first.
                everything(rel, paged(rel, len(rel.index_levels.pages) - 1))
            assert (found.value.file, found.value.shard, found.value.page) == (str(path), 1, page)


def test_after_a_damaged_page_the_pool_has_no_page_that_was_not_read(tmp_path):
    rel = by_key(tmp_path / "r", 2000)
    expected = everything(rel, rel.opened)
    version = paged(rel, 0, frames=500)
    with one_wrong(fences(rel)[0], 5 * PAGE + 100, 1), pytest.raises(hr.DamagedRelation):
        everything(rel, version)
    assert everything(rel, version).place.tolist() == expected.place.tolist()


@pytest.mark.parametrize("how", ["truncated", "missing", "swapped"])
def test_files_of_index_pages_that_are_not_as_written(tmp_path, how):
    with by_key(tmp_path / "r", 2000) as rel:
        a, b = fences(rel)
    raw = a.read_bytes()
    if how == "truncated":
        a.write_bytes(raw[:-PAGE])
    elif how == "missing":
        a.unlink()
    else:
        size = min(len(raw), b.stat().st_size)  # the same size, so that only the shard in the pages tells
        a.write_bytes(b.read_bytes()[:size] + raw[size:])
    with pytest.raises(hr.DamagedRelation) as found, hr.Relation.open(tmp_path / "r") as rel:
        rel.verify()
    assert found.value.file == str(a)


WRONG = {
    "a key": lambda words: words.view(np.uint8).__setitem__(int(words[data_of(0)]) + 4 * (int(words[ROWS]) + 1), 0x7F),
    "a number": lambda words: words.__setitem__(int(words[data_of(1)]) // 4, 9),
    "a flag": lambda words: words.view(np.uint8).__setitem__(int(words[data_of(2)]), 1),
    "a row less": lambda words: words.__setitem__(ROWS, words[ROWS] - 1),
    "no rows": lambda words: words.__setitem__(ROWS, 0),
}


@pytest.mark.parametrize("wrong", sorted(WRONG))
@pytest.mark.parametrize("upper", [False, True])
def test_verify_compares_index_pages_with_the_index(tmp_path, wrong, upper):
    rel = by_key(tmp_path / "r", 2000)
    path = fences(rel)[0]
    page = rel.opened.manifest.shards[0].fences.pages - 1 if upper else 0
    rewrite_page(path, PAGE, page, WRONG[wrong])
    with pytest.raises(hr.DamagedRelation, match=r"not those of the index|no rows|level has|lie outside") as found:
        rel.verify()
    assert found.value.file == str(path)


def lead_away(words):
    """Make the first number of an index page one that leads nowhere."""
    at = int(words[data_of(1)])
    words.view(np.uint8)[at : at + 6] = 0x77


@pytest.mark.parametrize("level", [0, 1])
def test_index_pages_that_lead_outside_are_never_followed(tmp_path, level):
    rel = by_key(tmp_path / "r", 2000)
    rel.apply(pa.table({"k": long_keys([10]), "v": [1]}), deletes=long_keys([12]))  # pages have moved
    rel = rel.refresh()
    page = {0: 0, 1: rel.opened.manifest.shards[0].fences.levels[0]}[level]
    path = rel.path / rel.opened.manifest.shards[0].fences.name
    rewrite_page(path, PAGE, page, lead_away)
    with pytest.raises(hr.DamagedRelation, match=r"not there|do not lead") as found:
        for top in range(2):
            everything(rel, paged(rel, top))
    assert found.value.file == str(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("levels", [3, 1]),
        ("levels", []),
        ("levels", [1, 1]),
        ("levels", "x"),
        ("moved", 3),
        ("name", "../r.fences"),
        ("pages", -1),
    ],
)
def test_a_manifest_that_is_wrong_about_index_pages_is_refused(tmp_path, field, value):
    with by_key(tmp_path / "r", 2000):
        pass
    rewrite_manifest(tmp_path / "r", lambda manifest: setattr(manifest.shards[0].fences, field, value))
    with pytest.raises(hr.DamagedRelation, match=rf"fences\.({field}|bytes)|fences"):
        hr.Relation.open(tmp_path / "r")


# -- sizes and reads ---------------------------------------------------------------------------------------------------


def test_the_whole_index_is_in_memory_where_it_fits(tmp_path):
    with by_key(tmp_path / "r", 4000) as rel:
        whole, levels = rel.index_bytes, rel.index_levels
        assert IndexMemory.of(whole, levels, whole) == IndexMemory(nbytes=whole)
        for room in (whole - 1, whole // 2, whole // 10):
            memory = IndexMemory.of(whole, levels, room)
            assert memory.paged and memory.nbytes <= max(room // 4, 60_000)
        assert IndexMemory.of(whole, None, 10) == IndexMemory(nbytes=whole)


def test_a_page_is_read_once_for_a_batch_and_in_runs(tmp_path):
    disk = Disk("simulated", seek=9e-3, transfer=1e-4)
    with by_key(tmp_path / "r", 4000, disk=disk, shards=1) as rel:
        stats = JoinStats()
        version = open_index(
            rel.opened, IndexMemory(nbytes=0, level=0, frames=4, read_pages=64, keys=4096), lambda: stats
        )
        keys, _ = rel.codec.encode([long_keys(np.arange(0, 8000, 2))])
        begun = disk.clock.now()
        version.pairs(keys, keys.hashes(), np.arange(len(keys)))
        assert stats.index_pages_read == rel.index_levels.pages[0]  # each leaf once, though the pool has four pages
        assert stats.pages_read == stats.reads == 0
        assert disk.clock.now() - begun == pytest.approx(stats.index_reads * 9e-3 + stats.index_pages_read * 5e-5)


def test_sizes_are_estimated_as_they_are_written(tmp_path):
    with by_frequency(tmp_path / "r", 60_000) as rel:
        assert IndexLevels.of_entries(60_000, PAGE).pages == rel.index_levels.pages
