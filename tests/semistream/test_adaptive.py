"""What is particular to AdaptiveJoin: hot set, filter, split, names."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import BadInput, DamagedRelation
from headrace.metrics import Factors
from headrace.relation import Disk
from headrace.relation.keys import IntKeys
from headrace.relation.sketch import Sketch
from headrace.semistream import AdaptiveJoin
from headrace.semistream.adaptive.workload import HitCurve
from tests.support.join_oracle import join, tuples

N = 60_000


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    where = tmp_path_factory.mktemp("adaptive") / "r"
    keys = np.arange(N) * 2
    rows = pa.table({"k": keys, "v": keys * 3, "name": [f"name of {k}" for k in keys]})
    hr.Relation.create(where, rows, key="k", shards=1, page_size="4KiB")
    return where


@pytest.fixture
def relation(path):
    return hr.Relation.open(path, disk=Disk("simulated"))


def stream(keys) -> pa.RecordBatch:
    return pa.record_batch({"k": np.asarray(keys, np.int64)})


def run(op, batches) -> int:
    return sum(out.num_rows for batch in batches for out in op.join(batch))


def zipf(rng, n, skew=1.0) -> np.ndarray:
    weights = np.cumsum(1 / np.arange(1, N + 1) ** skew)
    hot_first = np.random.default_rng(99).permutation(N)
    return hot_first[np.searchsorted(weights / weights[-1], rng.random(n))] * 2


def test_hot_tuples_are_kept_and_serve_most_of_a_skewed_stream(relation):
    op = AdaptiveJoin(relation, on="k", memory="1500KiB")
    rng = np.random.default_rng(1)
    run(op, [stream(zipf(rng, 5000)) for _ in range(20)])
    before = op.stats.as_dict()
    rows = run(op, [stream(zipf(rng, 5000)) for _ in range(20)])
    assert rows == 100_000
    hits = op.stats.hits - before["hits"]
    # Half the tuples fit: a perfect cache of the most popular would serve 94%.
    assert hits > 0.7 * rows
    assert op.stats.generations > 0
    assert op.stats.pages_read - before["pages_read"] < 0.5 * before["pages_read"] + 20_000


def test_the_hot_set_follows_a_stream_that_changes(relation):
    op = AdaptiveJoin(relation, on="k", memory="900KiB")
    rng = np.random.default_rng(2)
    ratios = []
    for phase in range(3):
        own = phase * 2000 + np.arange(1500)  # this phase's 1,500 keys, none shared with another's
        for batch in range(30):
            before = op.stats.hits
            run(op, [stream(own[rng.integers(0, own.size, 1000)] * 2)])
            if batch >= 25:
                ratios.append((op.stats.hits - before) / 1000)
    assert min(ratios) > 0.9


def test_absent_keys_cost_no_reads_while_there_is_a_filter(relation):
    op = AdaptiveJoin(relation, on="k", memory="4MiB", whole=False)
    assert run(op, [stream(np.arange(20_000) * 2 + 1)] * 3) == 0
    assert op.stats.absent > 0.99 * 60_000
    assert op.stats.pages_requested < 600
    assert "filter" not in op.stats.left_out


def test_a_filter_the_budget_is_too_small_for_is_left_out_and_said(relation):
    op = AdaptiveJoin(relation, on="k", memory="300KiB")
    assert "filter" in op.stats.left_out
    assert op.stats.left_out["filter"].startswith("it needs 88.1KiB")
    assert run(op, [stream(np.arange(1000) * 2 + 1)]) == 0
    assert op.stats.absent == 0
    assert op.stats.misses == 1000
    # An absent key that was looked for in vain is known to be absent.
    run(op, [stream(np.arange(100) * 2 + 1)])
    assert op.stats.hits > 50


def test_the_filter_goes_when_no_key_is_absent_and_comes_back_when_many_are(relation):
    op = AdaptiveJoin(relation, on="k", memory="1MiB")
    rng = np.random.default_rng(3)
    run(op, [stream(rng.integers(0, N, 2000) * 2) for _ in range(60)])
    assert "hardly a key was absent" in op.stats.left_out["filter"]
    assert "filter" not in op.budget.held()
    run(op, [stream(rng.integers(0, N, 2000) * 2 + 1) for _ in range(30)])
    assert "filter" not in op.stats.left_out
    assert op.budget.held()["filter"] > 80_000
    requested = op.stats.pages_requested
    run(op, [stream(rng.integers(0, N, 2000) * 2 + 1)])
    assert op.stats.pages_requested - requested < 30
    assert op.budget.peak <= op.budget.limit


def test_the_split_gives_a_scattered_stream_buffer_and_a_skewed_one_hot_tuples(path):
    """On a spinning disk, where reads are what costs."""
    relation = hr.Relation.open(path, disk=Disk("simulated", seek=5e-3, transfer=1e-4))
    rng = np.random.default_rng(4)
    scattered = AdaptiveJoin(relation, on="k", memory="2MiB")
    run(scattered, [stream(rng.permutation(N) * 2) for _ in range(6)])
    skewed = AdaptiveJoin(relation, on="k", memory="2MiB")
    run(skewed, [stream(zipf(rng, 2000, 1.2)) for _ in range(60)])
    assert skewed.stats.memory["hot set"] > 2 * scattered.stats.memory["hot set"]
    assert scattered.stats.memory["stream buffer"] > 2 * skewed.stats.memory["stream buffer"]


def test_neighbouring_pages_share_a_read(relation):
    op = AdaptiveJoin(relation, on="k", memory="4MiB", whole=False)
    run(op, [stream(np.arange(N) * 2)])
    # Once each, but for the page in which one slice of the batch ends and the next begins.
    assert relation.num_pages <= op.stats.pages_read < 1.05 * relation.num_pages
    assert op.stats.reads < relation.num_pages / 10


def test_name_clashes_follow_the_suffix(relation):
    batch = pa.record_batch({"k": [2, 4], "name": ["a", "b"], "v_right": [1, 2]})
    out = pa.Table.from_batches(AdaptiveJoin(relation, on="k").run([batch]))
    assert out.schema.names == ["k", "name", "v_right", "v", "name_right"]
    assert out["name_right"].to_pylist() == ["name of 2", "name of 4"]
    out = pa.Table.from_batches(AdaptiveJoin(relation, on="k", suffix="_of_r").run([batch]))
    assert out.schema.names[-1] == "name_of_r"
    with pytest.raises(BadInput, match="'name' is in the stream and in the relation"):
        list(AdaptiveJoin(relation, on="k", suffix=None).run([batch]))
    clash = pa.record_batch({"k": [2], "name": ["a"], "name_right": ["b"]})
    with pytest.raises(BadInput, match="and so is 'name_right'; use another suffix"):
        list(AdaptiveJoin(relation, on="k").run([clash]))
    out = pa.Table.from_batches(
        AdaptiveJoin(relation, on={"id": "k"}, columns=["v"]).run([batch.rename_columns(["id", "name", "w"])])
    )
    assert out.to_pydict() == {"id": [2, 4], "name": ["a", "b"], "w": [1, 2], "v": [6, 12]}


def test_streams_with_other_encodings_of_the_key_join_all_the_same(relation):
    for array in (
        pa.array([2, 4, 4, 7], pa.int16()),
        pa.array([2, 4, 4, 7], pa.uint32()),
        pa.array([2, 4, 4, 7], pa.int64()).dictionary_encode(),
        pa.chunked_array([[9, 2], [4, 4, 7]], pa.int64()).combine_chunks().slice(1),
    ):
        out = pa.Table.from_batches(AdaptiveJoin(relation, on="k", columns=["v"]).run([pa.record_batch({"k": array})]))
        assert out["v"].to_pylist() == [6, 12, 12]
    with pytest.raises(BadInput, match="uint64"):
        list(AdaptiveJoin(relation, on="k").run([pa.record_batch({"k": pa.array([2], pa.uint64())})]))


def test_damage_found_while_joining_names_the_page(tmp_path):
    keys = np.arange(5000)
    relation = hr.Relation.create(tmp_path / "d", pa.table({"k": keys, "v": keys}), key="k", shards=1, page_size="4KiB")
    file = next((tmp_path / "d").glob("*.pages"))
    data = bytearray(file.read_bytes())
    data[3 * 4096 + 100] ^= 1
    file.write_bytes(data)
    op = AdaptiveJoin(relation, on="k", memory="1MiB")
    with pytest.raises(DamagedRelation) as found:
        run(op, [stream(keys)])
    assert (found.value.shard, found.value.page) == (0, 3)
    assert found.value.file == str(file)


def test_keys_far_longer_than_the_mean_are_joined(tmp_path):
    keys = [("k" * (3000 if i % 7 == 0 else 1)) + str(i) for i in range(700)]
    relation = hr.Relation.create(tmp_path / "l", pa.table({"k": keys, "v": range(700)}), key="k", shards=1)
    op = AdaptiveJoin(relation, on="k", memory="500KiB")
    batch = pa.record_batch({"k": keys[::-1]})
    for _ in range(4):
        assert pa.Table.from_batches(list(op.join(batch)))["v"].to_pylist() == list(range(700))[::-1]
    op.stats.check()


def test_a_join_reads_its_version_to_the_end(tmp_path):
    keys = np.arange(3000)
    relation = hr.Relation.create(tmp_path / "v", pa.table({"k": keys, "v": keys}), key="k", page_size="4KiB")
    op = AdaptiveJoin(relation, on="k", memory="600KiB")
    assert run(op, [stream(keys[:10])]) == 10
    relation.apply(upserts=pa.table({"k": keys, "v": keys + 1}))
    relation.compact()
    out = pa.Table.from_batches(list(op.join(stream(keys))))
    assert out["v"].to_pylist() == keys.tolist()
    fresh = AdaptiveJoin(relation.refresh(), on="k", memory="600KiB")
    assert pa.Table.from_batches(list(fresh.join(stream(keys))))["v"].to_pylist() == (keys + 1).tolist()


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_oracle_rows_that_wait_for_pages_stored_by_popularity(tmp_path, how):
    """Keys of several pages, keys of none, and pages that are in no order of keys."""
    rng = np.random.default_rng(5)
    keys = np.repeat(np.arange(3000), rng.integers(1, 4, 3000))
    keys = np.concatenate([keys, np.full(400, 77)])
    rows = pa.table({"k0": keys, "v": np.arange(keys.size)})
    popularity = pa.table({"k0": rng.permutation(3000), "frequency": np.arange(3000)})
    path = tmp_path / "r"
    rel = hr.Relation.create(path, rows, key=["k0"], order="frequency", frequencies=popularity, page_size="4KiB")
    batches = [pa.record_batch({"k0": rng.integers(0, 3500, 4000), "n": np.arange(4000)}) for _ in range(3)]
    op = AdaptiveJoin(rel, on="k0", memory="700KiB", how=how, order="any")
    got = sorted(map(repr, tuples(op.run(batches))))
    assert got == sorted(map(repr, join(rows, batches, ["k0"], how, ["v"])))
    op.stats.check()


@pytest.mark.parametrize("seed", range(6))
def test_oracle_rows_wait_over_many_join_phases_and_all_leave(tmp_path, seed):
    """Sweeps that begin where the last one ended, pieces cut at page borders, rows that wait across batches."""
    rng = np.random.default_rng(seed)
    keys, each = int(rng.integers(2000, 20_000)), int(rng.integers(1, 4))
    rows = pa.table({"k": np.repeat(np.arange(keys) * 2, each), "v": np.arange(keys * each)})
    shards, page = int(rng.integers(1, 4)), str(rng.choice(["4KiB", "8KiB"]))
    rel = hr.Relation.create(tmp_path / "r", rows, key="k", shards=shards, page_size=page, disk=Disk("simulated"))
    op = AdaptiveJoin(rel, on="k", memory=int(rng.integers(500, 1500)) << 10, how="left", order="any")
    seen, done = [], []
    for _ in range(3):
        batches = []
        for _ in range(int(rng.integers(1, 12))):
            n = int(rng.integers(1, 30_000))
            k = rng.integers(0, 2 * keys, n) if seed % 2 else (2 * keys ** rng.random(n)).astype(np.int64)
            batches.append(pa.record_batch({"k": k, "n": np.arange(n) + sum(len(s) for s in seen)}))
            seen.append(k)
        done += list(op.run(batches)) if rng.random() < 0.5 else [out for b in batches for out in op.join(b)]
        assert op.waiting == 0
    op.stats.check()
    k, out = np.concatenate(seen), pa.Table.from_batches(done).sort_by([("n", "ascending"), ("v", "ascending")])
    times = np.where(k % 2 == 0, each, 1)
    number = np.repeat(np.arange(k.size), times)
    assert np.array_equal(out["n"].to_numpy(), number)
    assert np.array_equal(out["k"].to_numpy(), k[number])
    first = np.repeat(np.cumsum(times) - times, times)
    v = np.where(k[number] % 2 == 0, k[number] // 2 * each + np.arange(number.size) - first, -1)
    assert np.array_equal(out["v"].fill_null(-1).to_numpy(), v)


@pytest.mark.parametrize(("skewed", "share"), [(False, (0.0, 0.05)), (True, (0.3, 0.7))])
def test_a_crowded_sketch_does_not_make_strangers_popular(skewed, share):
    """Most cells are in use, and keys that never came count one or two: by that alone a hot set would seem to serve all."""
    rng = np.random.default_rng(5)

    def keys(n):
        hot = rng.integers(0, 100, n)
        return (
            np.where(rng.random(n) < 0.5, hot, rng.integers(100, 1 << 40, n)) if skewed else rng.integers(0, 1 << 40, n)
        )

    def counted(n):
        values, counts = np.unique(keys(n), return_counts=True)
        return IntKeys(values).hashes(), counts.astype(np.int32)

    sketch = Sketch(1 << 15, 1 << 20)
    for _ in range(60):
        sketch.add(*counted(1000))
    hashes, counts = counted(4000)
    before = sketch.estimate(hashes)
    assert np.median(sketch.strangers()) >= 1
    naive = HitCurve.of(before, counts, sketch.window, np.zeros(1, np.int32))
    found = HitCurve.of(before, counts, sketch.window, sketch.strangers())
    assert naive.hit_ratio(1e9) > 0.9
    assert share[0] <= found.hit_ratio(1e9) <= share[1]


def test_join_phases_sweep_over_the_relation_with_few_seeks(tmp_path):
    """A piece begins to read where the last one ended, over pages that nobody wants; requests are of the buffer's size."""
    seek, transfer, follow = 8e-3, 97e-6, 0.5e-3
    disk = Disk("simulated", seek=seek, transfer=transfer, follow=follow, factors=Factors(0, 0, 0, 0, 0, 0))
    rows = {"k": np.arange(150_000), **{f"p{i}": np.zeros(150_000) for i in range(12)}}
    rel = hr.Relation.create(tmp_path / "r", pa.table(rows), key="k", shards=1, disk=disk)
    op, rng = AdaptiveJoin(rel, on="k", memory="220KiB", order="any"), np.random.default_rng(1)

    def go_on(batches):
        for _ in range(batches):
            op.offer(pa.record_batch({"k": rng.integers(0, 150_000, 500)}))
            for _ in op.advance():
                pass

    go_on(20)
    before, then, pieces = disk.clock.now(), replace(op.stats), op.wanted
    go_on(60)
    pages, reads = op.stats.pages_read - then.pages_read, op.stats.reads - then.reads
    seeks = (disk.clock.now() - before - pages * transfer - reads * follow) / (seek - follow)
    rounds = pages / rel.num_pages
    assert rounds > 4
    assert 60 * 500 / pieces > 25 * rounds, "many pieces a round"
    # Join phases are for a quarter of the rows, and may begin on the page that the last one ended on.
    assert seeks <= 5 * rounds + 2, f"{seeks:.0f} seeks in {rounds:.1f} rounds over the relation"
    buffer = op._memory.reader.pages  # private: no counter says how many pages a read may take
    assert reads <= 1.2 * pages / buffer + 60 * 500 / pieces


def test_a_snapshot_holds_tuples_of_keys_that_got_no_entry(relation):
    """In a small budget a slice fetches more keys than the young store has entries for."""
    rng = np.random.default_rng(8)
    op = AdaptiveJoin(relation, on="k", memory="450KiB")
    run(op, [stream(rng.integers(0, N, 1500) * 2) for _ in range(12)])
    young = op._memory.hot.young  # private: nothing else tells that there are such tuples
    assert young.tuples.used > sum(young.places()[1])
    fresh = AdaptiveJoin(relation, on="k", memory="450KiB")
    fresh.restore(op.snapshot())
    assert run(fresh, [stream(np.arange(2000) * 2)]) == 2000
