"""Relations stored by popularity change: where rows go, what each version holds, and how `compact` orders them anew."""

import json
import os
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.relation import Disk, Sketch
from headrace.relation.update import Change
from headrace.semistream import SSIJ, AdaptiveJoin, HybridJoin, MeshJoin, XHybridJoin
from tests.support.flipped_bytes import flipped
from tests.support.join_oracle import KEY_KINDS, table, tuples
from tests.support.malformed_pages import rewrite_sidecar


def popular(path, rows, frequencies, key="k", **given):
    return hr.Relation.create(
        path, rows, key=key, order="frequency", frequencies=frequencies, page_size="4KiB", **given
    )


def numbers(n, v=0, text=200):
    return pa.table({"k": np.arange(n), "v": np.full(n, v), "s": ["x" * text] * n})


ALONE = 2500  # bytes of text with which a row has a page of its own: then the order of pages is that of rows


def falling(n):
    """Key 0 is the most popular."""
    return pa.table({"k": np.arange(n), "frequency": np.arange(n, 0, -1)})


def pages_of(relation) -> list[list[int]]:
    """The keys of each page, the most popular page first."""
    pages = []
    for keys, _, facts in relation._scan_shard(0, ()):  # private: a public scan does not say where a page ends
        pages += [page.tolist() for page in np.split(keys.values, np.cumsum(facts.rows)[:-1])]
    return pages


# -- apply -----------------------------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**9))
def test_oracle_random_changes_hold_what_was_applied(ram_path, seed):
    random = Random(seed)
    kind, shards = random.choice(sorted(KEY_KINDS)), random.choice([1, 3])
    domain = random.choice([5, 200])

    def some(count):
        chosen = random.sample(range(domain), min(domain, count))
        return [i for i in chosen for _ in range(random.choice([1, 1, 3, 60]))]

    rows = table(kind, some(random.choice([0, 3, 80])), random, tag="r")
    key = [name for name in rows.schema.names if name.startswith("k")]
    distinct = rows.select(key).group_by(key).aggregate([])
    ranks = [random.random() for _ in range(distinct.num_rows)]
    asked = distinct.append_column("frequency", pa.array(ranks, pa.float64()))
    relation = popular(ram_path / f"{seed}", rows, asked, key=key, shards=shards, fill=random.choice([0.3, 1.0]))
    state = by_key(rows, key)
    for _ in range(random.choice([3, 40])):  # 40: more files than a shard may have
        upserts = table(kind, some(random.choice([0, 1, 20])), random, tag="u")
        new = by_key(upserts, key)
        deletes = table(kind, random.sample(range(domain), 4), random).select(key)
        deletes = deletes.filter(pa.array([k not in new for k in by_key(deletes, key)], pa.bool_()))
        relation.apply(upserts=upserts, deletes=deletes)
        gone = by_key(deletes, key)
        state = {k: found for k, found in state.items() if k not in gone} | new
        relation = relation.refresh()
    relation.verify()
    assert by_key(pa.Table.from_batches(relation.scan(), relation.schema), key) == state, f"seed {seed}, {kind}"
    wanted = table(kind, list(range(0, domain, 3)), random).select(key)
    found = {k: v for k, v in state.items() if k in by_key(wanted, key)}
    assert by_key(relation.lookup(wanted), key) == found
    assert relation.distinct_keys == len(state) and relation.order == "frequency"


def by_key(rows: pa.Table, key: list[str]) -> dict[tuple, list[str]]:
    found: dict[tuple, list[str]] = {}
    for row in rows.to_pylist():
        found.setdefault(tuple(row[k] for k in key), []).append(repr(row))
    return {k: sorted(some) for k, some in found.items()}


def test_a_changed_row_keeps_its_rank_and_a_new_key_comes_last(tmp_path):
    relation = popular(tmp_path / "r", numbers(200), falling(200), fill=0.8)
    before = pages_of(relation)
    changed = pa.table({"k": [before[0][3], 7000], "v": [1, 1], "s": ["y", "y"]})
    relation.apply(upserts=changed, deletes=[before[2][0]])
    after = pages_of(relation.refresh())
    assert after[0] == before[0] and after[1] == before[1] and after[2] == before[2][1:]
    assert after[-1] == [*before[-1], 7000] and len(after) == len(before)
    assert relation.refresh().lookup([before[0][3], 7000])["v"].to_pylist() == [1, 1]


def test_only_the_pages_of_changed_keys_are_written(tmp_path):
    relation = popular(tmp_path / "r", numbers(5000), falling(5000))
    relation.apply(upserts=numbers(1, 1))
    (file,) = (tmp_path / "r").glob("shard-0000-000002.pages")
    assert file.stat().st_size == 4096
    relation.refresh().verify()


def test_a_page_that_has_no_room_left_is_split_where_it_is(tmp_path):
    relation = popular(tmp_path / "r", numbers(200), falling(200), fill=1.0)
    before = pages_of(relation)
    long = pa.table({"k": before[1][:6], "v": [1] * 6, "s": ["y" * 600] * 6})
    relation.apply(upserts=long)
    after = pages_of(relation.refresh())
    parts = len(after) - len(before) + 1
    assert parts > 1 and sorted(np.concatenate(after[1 : 1 + parts])) == before[1]
    assert after[:1] + after[1 + parts :] == before[:1] + before[2:]


def test_an_earlier_release_refuses_a_changed_one_and_reads_one_that_is_as_it_was_made(tmp_path):
    """The places of pages are an array that formats up to 3 do not have."""

    def written(version):
        return json.loads((tmp_path / "r" / f"manifest-{version:06d}.json").read_text())["format"]

    relation = popular(tmp_path / "r", numbers(200), falling(200))
    assert written(1) == 2
    relation.apply(deletes=[5])
    assert written(2) == 4
    relation.refresh().compact()
    assert written(3) == 2


@pytest.mark.parametrize("wrong", [lambda at: at + (1 << 20), lambda at: at[:-1], lambda at: at + (7 << 32)])
def test_an_index_of_a_changed_one_that_leads_elsewhere_is_refused(tmp_path, wrong):
    relation = popular(tmp_path / "r", numbers(200), falling(200))
    relation.apply(deletes=[5])
    rewrite_sidecar(tmp_path / "r", 0, "index", lambda arrays: arrays.update(places=wrong(arrays["places"])))
    with pytest.raises(hr.DamagedRelation, match="pages that are not there"):
        hr.Relation.open(tmp_path / "r").lookup([1])


def test_revise_decides_on_the_latest_version(tmp_path):
    relation = popular(tmp_path / "r", numbers(50), falling(50))
    relation.apply(deletes=[5])

    def decide(latest):
        assert latest.lookup([5]).num_rows == 0
        return Change(upserts=pa.table({"k": [5], "v": [7], "s": ["back"]}))

    assert relation.revise(decide) == 3
    assert relation.refresh().lookup([5])["v"].to_pylist() == [7]


def test_every_join_reads_a_changed_one(tmp_path):
    relation = popular(tmp_path / "r", numbers(2000), falling(2000), shards=2)
    relation.apply(upserts=pa.table({"k": [3, 9000], "v": [1, 1], "s": ["y", "y"]}), deletes=[4])
    relation = relation.refresh()
    stream = pa.record_batch({"k": [3, 4, 5, 9000, 9001, 1999] * 20})
    expected = sorted([(3, 1), (5, 0), (9000, 1), (1999, 0)] * 20)
    for operator in (AdaptiveJoin, MeshJoin, HybridJoin, XHybridJoin, SSIJ):
        got = tuples(operator(relation, on="k", memory="1MiB").run([stream]))
        assert sorted(row[:2] for row in got) == expected, operator.__name__


# -- compact ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 2])
def test_compact_keeps_the_order_that_it_has(tmp_path, shards):
    asked = pa.table({"k": np.arange(500), "frequency": np.random.default_rng(1).permutation(500)})
    relation = popular(tmp_path / "r", numbers(500), asked, shards=shards)
    before = pa.Table.from_batches(relation.scan())
    relation.apply(upserts=numbers(500, 0))
    relation.compact()
    now = relation.refresh()
    now.verify()
    assert now.order == "frequency" and pa.Table.from_batches(now.scan()).equals(before)
    assert len(now.opened.manifest.shards[0].files) == 1


def test_compact_orders_by_a_table_and_leaves_the_rest_as_it_was(tmp_path):
    asked = pa.table({"k": [3, 1, 4, 0], "frequency": [9, 8, 7, 6]})
    relation = popular(tmp_path / "r", numbers(6, text=ALONE), asked)
    assert pages_of(relation) == [[3], [1], [4], [0], [2], [5]]
    relation.apply(upserts=pa.table({"k": [4, 7], "v": [1, 1], "s": ["y" * ALONE] * 2}))
    assert pages_of(relation.refresh()) == [[3], [1], [4], [0], [2], [5], [7]]
    relation.compact(order="frequency", popularity=pa.table({"k": [0, 5], "frequency": [1, 2]}))
    assert pages_of(relation.refresh()) == [[5], [0], [3], [1], [4], [2], [7]]


def test_a_relation_by_key_becomes_one_by_popularity_and_back(tmp_path):
    rows = numbers(300)
    relation = hr.Relation.create(tmp_path / "r", rows, key="k", page_size="4KiB", shards=2)
    relation.compact(order="frequency", popularity=pa.table({"k": [250, 251], "frequency": [9, 9]}))
    now = relation.refresh()
    now.verify()
    assert (now.order, now.identity) == ("frequency", relation.identity)
    assert XHybridJoin(now, on="k", memory="1MiB").relation is now
    now.compact(order="key")
    back = now.refresh()
    back.verify()
    assert back.order == "key"
    assert sorted(map(repr, tuples(back.scan()))) == sorted(map(repr, tuples(rows.to_batches())))


def test_what_is_spilled_and_what_a_killed_writer_left_is_removed(tmp_path):
    relation = popular(tmp_path / "r", numbers(20_000), falling(20_000))
    (left := tmp_path / "r" / "scratch-of-another").mkdir()
    os.utime(left, (0, 0))  # of another host it may be at work for an hour
    relation.compact(order="frequency", popularity=falling(10), memory="300KiB")
    assert not list((tmp_path / "r").glob("scratch-*"))
    now = relation.refresh()
    now.verify()
    assert sorted(k for page in pages_of(now) for k in page) == list(range(20_000))


def test_ssij_by_ranges_refuses_a_version_that_is_not_by_key_and_xhybridjoin_one_that_is(tmp_path):
    relation = hr.Relation.create(tmp_path / "k", numbers(300), key="k", page_size="4KiB")
    op = SSIJ(relation, condition=hr.between("k", "low", "high", of="right"), memory="1MiB")
    relation.compact(order="frequency", popularity=falling(300))
    with pytest.raises(hr.errors.BadInput, match="stored by popularity"):
        list(op.refresh())
    assert len(tuples(op.run([pa.record_batch({"low": [3], "high": [5]})]))) == 3
    relation = popular(tmp_path / "f", numbers(300), falling(300))
    op = XHybridJoin(relation, on="k", memory="1MiB")
    relation.compact(order="key")
    with pytest.raises(hr.errors.BadInput, match="is stored by key"):
        list(op.refresh())


def test_wrong_orders_and_popularities_are_refused_by_name(tmp_path):
    relation = popular(tmp_path / "r", numbers(30), falling(30))
    with pytest.raises(hr.errors.BadInput, match=r"no join has noted it for .* give popularity=join.popularity"):
        relation.compact(order="frequency")
    with pytest.raises(hr.errors.BadInput, match="popularity is given and order=None does not use it"):
        relation.compact(popularity=falling(30))
    with pytest.raises(hr.errors.BadInput, match="order='rank' is not supported; choose one of key, frequency"):
        relation.compact(order="rank")
    with pytest.raises(hr.errors.BadInput, match="no column 'frequency'"):
        relation.compact(order="frequency", popularity=pa.table({"k": [1]}))
    with pytest.raises(hr.errors.BadInput, match="make it with measure=True"):
        relation.note_popularity(MeshJoin(relation, on="k", memory="1MiB").popularity)
    assert relation.refresh().version == 1


# -- measured popularity -----------------------------------------------------------------------------------------------------


def reads_a_tuple(relation, keys, **given):
    """Pages read for each stream tuple, once the join is under way; and the join."""
    op = XHybridJoin(relation, on="k", memory="400KiB", k=1, l=30, **given)
    batches = [pa.record_batch({"k": some}) for some in np.split(keys, 20)]
    list(op.run(batches[:4]))
    before = op.stats.pages_read
    got = sum(out.num_rows for out in op.run(batches[4:]))
    assert got == sum(batch.num_rows for batch in batches[4:])
    return (op.stats.pages_read - before) / got, op


def test_xhybridjoin_reads_less_once_a_relation_is_ordered_by_what_it_measured(tmp_path):
    """The keys that were popular when the relation was made are not those that the stream asks for now."""
    n = 8000
    relation = popular(tmp_path / "r", numbers(n), falling(n), disk=Disk("simulated"))
    random = np.random.default_rng(4)
    weight = 1 / np.arange(1, n + 1)
    moved = random.permutation(n)[np.searchsorted(np.cumsum(weight) / weight.sum(), random.random(20_000))]
    before, op = reads_a_tuple(relation, moved, measure=True)
    assert op.budget.held()["key counts"] == op.popularity.nbytes and op.budget.peak <= op.budget.limit
    relation.note_popularity(op.popularity)
    relation.compact(order="frequency")
    now = relation.refresh()
    now.verify()
    after, _ = reads_a_tuple(now, moved)
    assert after < 0.6 * before, f"{before:.3f} pages a tuple became {after:.3f}"
    # What waits goes over to it too
    list(op.refresh())
    hits = op.stats.hits
    assert sum(out.num_rows for out in op.run([pa.record_batch({"k": moved[:2000]})])) == 2000
    assert op.stats.hits - hits > 1000


@pytest.mark.parametrize("operator", [AdaptiveJoin, HybridJoin, XHybridJoin, SSIJ])
def test_what_a_join_measures_puts_the_keys_first_that_its_stream_asked_for(tmp_path, operator):
    relation = popular(tmp_path / "r", numbers(2000), falling(2000))
    op = operator(relation, on="k", memory="2MiB", **({} if operator is AdaptiveJoin else {"measure": True}))
    wanted = np.arange(1990, 2000)
    list(op.run([pa.record_batch({"k": np.repeat(wanted, 50)}), pa.record_batch({"k": np.arange(1000)})]))
    relation.compact(order="frequency", popularity=op.popularity)
    assert set(wanted.tolist()) < set(pages_of(relation.refresh())[0])


def test_noted_counts_are_checked_and_replaced(tmp_path):
    relation = popular(tmp_path / "r", numbers(100, text=ALONE), falling(100))
    hashes = relation.codec.encode([pa.array([77, 5])])[0].hashes()
    for counts in ([3, 9], [9, 3]):
        sketch = Sketch(1 << 12, 1 << 20)
        sketch.add(hashes, np.array(counts, np.int32))
        relation.note_popularity(sketch)
    relation.compact(order="frequency")
    assert pages_of(relation.refresh())[:4] == [[77], [5], [0], [1]]
    file = tmp_path / "r" / "popularity.counts"
    for _ in flipped(file, most=20):
        with pytest.raises(hr.DamagedRelation, match=r"popularity\.counts"):
            relation.refresh().compact(order="frequency")
    assert relation.refresh().version == 2
