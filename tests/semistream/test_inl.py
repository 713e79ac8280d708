"""IndexNestedLoop: exact, in stream order, and charged for exactly the pages that an LRU pool misses."""

from collections import OrderedDict
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.kernels.cache import copy_pages, lru, spell_out
from headrace.metrics import Factors
from headrace.relation import Disk
from headrace.relation.columns import address
from headrace.semistream import IndexNestedLoop
from tests.support.join_oracle import join, make_case, table, tuples

HOWS = ["inner", "left", "semi", "anti"]
FREE = Factors(0, 0, 0, 0, 0, 0)


class Pool:
    """The kernel's arrays, and calls until a sequence is served."""

    def __init__(self, frames: int, table_size: int) -> None:
        self.table = np.full(table_size, -1, np.int32)
        self.place_of = np.full(frames, -1, np.int64)
        self.older, self.younger = np.full(frames, -1, np.int32), np.full(frames, -1, np.int32)
        self.ends = np.array([-1, -1, 0])

    def serve(self, places):
        """Per access its frame and whether it missed, and where each call of the kernel ended."""
        frames, misses, cuts = [], [], []
        places = np.array(places, np.int64)
        while places.size:
            frame, miss = np.empty(places.size, np.int32), np.empty(places.size, np.uint8)
            scratch = np.empty(self.place_of.size, np.int64)
            args = self.table, self.place_of, self.older, self.younger, self.ends, scratch
            n = lru(places, *args, frame, miss)
            assert n > 0
            frames += frame[:n].tolist()
            misses += miss[:n].tolist()
            cuts.append(n)
            places = places[n:]
        return frames, misses, cuts


@settings(max_examples=300, deadline=None)
@given(
    places=st.lists(st.integers(-1, 30) | st.sampled_from([1 << 48, (1 << 48) + 7, 1 << 52]), max_size=200),
    frames=st.integers(1, 12),
    spare=st.integers(1, 3),
)
def test_oracle_lru_kernel_does_what_an_ordered_dict_does(places, frames, spare):
    pool = Pool(frames, 1 << (spare * frames).bit_length())
    frame, miss, cuts = pool.serve(places)
    model: OrderedDict[int, int] = OrderedDict()
    for place, f, missed in zip(places, frame, miss, strict=True):
        if place < 0:
            assert (f, missed) == (-1, 0)
            continue
        assert missed == (place not in model)
        if missed:
            if len(model) == frames:
                model.popitem(last=False)
            assert f not in model.values()
            model[place] = f
        model.move_to_end(place)
        assert model[place] == f
    at = 0
    for n in cuts:  # the pages of one call are in the pool together: no frame serves two places
        together = {(f, place) for f, place in zip(frame[at : at + n], places[at : at + n], strict=True) if place >= 0}
        assert len({f for f, _ in together}) == len(together)
        at += n


@given(spans=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20), most=st.integers(1, 7))
def test_oracle_spell_out_gives_every_row_once_in_order(spans, most):
    low = np.array([a for a, _ in spans], np.int32)
    high = low + np.array([n for _, n in spans], np.int32)
    stop, got = np.zeros(2, np.int64), []
    while stop[0] < low.size:
        which, row = np.empty(most, np.int32), np.empty(most, np.int32)
        n = spell_out(low, high, stop, which, row)
        got += zip(which[:n].tolist(), row[:n].tolist(), strict=True)
    assert got == [(i, r) for i, (a, n) in enumerate(spans) for r in range(a, a + n)]


def test_copy_pages_moves_the_bytes():
    source, target = np.arange(64, dtype=np.uint8), np.zeros(64, np.uint8)
    copy_pages(address(source) + np.array([16, 0]), address(target) + np.array([0, 48]), 16)
    assert target.tolist() == [*range(16, 32), *[0] * 32, *range(16)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**9))
def test_oracle_random_cases_give_the_brute_force_result_in_stream_order(ram_path, seed):
    case = make_case(seed)
    random = case.random
    relation = hr.Relation.create(
        ram_path / "r",
        case.rows,
        key=case.key,
        shards=random.choice([1, 2, 3]),
        page_size="4KiB",
        fill=random.choice([0.3, 0.8, 1.0]),
        overwrite=True,
    )
    rows = case.rows
    if random.random() < 0.5:  # pages moved by an update must not change anything
        relation.apply(upserts=table(case.kind, [random.randrange(30) for _ in range(20)], random, tag="u"))
        relation = relation.refresh()
        scanned = list(relation.scan())
        rows = pa.Table.from_batches(scanned) if scanned else rows.slice(0, 0)
    how, columns = random.choice(HOWS), random.choice([None, ["s"], [], ["b", "v"]])
    op = IndexNestedLoop(
        relation, on=case.key, memory=random.choice(["60KiB", "100KiB", "1MiB"]), how=how, columns=columns
    )
    got = tuples(op.run(case.batches))
    expected = join(rows, case.batches, case.key, how, ["v", "s", "b"] if columns is None else columns)
    assert len(got) == len(expected), f"seed {seed}, {case.kind}, {how}"
    assert got == expected, f"seed {seed}, {case.kind}, {how}"
    op.stats.check()
    assert op.stats.results == len(expected)
    assert op.budget.peak <= op.budget.limit


def make(path, disk, n=4000, shards=1):
    rows = pa.table({"k": np.arange(n), "v": np.arange(n) * 10})
    return hr.Relation.create(path / "r", rows, key="k", shards=shards, page_size="4KiB", disk=disk)


@pytest.mark.parametrize("shards", [1, 3])
def test_every_miss_of_the_pool_is_one_request_of_one_page_and_nothing_else_is_read(tmp_path, shards):
    disk = Disk("simulated", seek=5e-3, transfer=1e-4, factors=FREE)
    relation = make(tmp_path, disk, shards=shards)
    op = IndexNestedLoop(relation, on="k", memory="60KiB")
    assert 1 < op.frames < relation.num_pages
    random = Random(5)
    keys = [int(random.paretovariate(0.3)) % 4000 for _ in range(3000)]
    out = pa.Table.from_batches(op.run([pa.record_batch({"k": keys[:1000]}), pa.record_batch({"k": keys[1000:]})]))
    assert out["v"].to_pylist() == [10 * k for k in keys]
    codec, pool, misses = relation.codec, OrderedDict(), 0
    for key in keys:
        encoded, _ = codec.encode([pa.array([key])])
        (page,) = relation.opened.pairs(encoded, encoded.hashes(), np.zeros(1, np.int64)).place.tolist()
        if page not in pool:
            misses += 1
            if len(pool) == op.frames:
                pool.popitem(last=False)
        pool[page] = None
        pool.move_to_end(page)
    stats = op.stats
    assert stats.misses == stats.reads == stats.pages_read == stats.pages_requested == misses
    assert stats.hits == 3000 - misses
    assert disk.clock.now() == pytest.approx(misses * (5e-3 + 1e-4 / 2))  # transfer is of 8 KiB


def test_steps_of_tuples_and_results_are_charged(tmp_path):
    disk = Disk("simulated", seek=0, transfer=0, factors=Factors(c_S=1, c_X=10, c_O=100))
    op = IndexNestedLoop(make(tmp_path, disk), on="k", memory="1MiB", how="left")
    tuples(op.run([pa.record_batch({"k": pa.array([3, None, 9999, 3], pa.int64())})]))
    assert disk.clock.now() == 4 * 1 + 3 * 10 + 4 * 100


def test_a_pool_as_large_as_the_relation_reads_each_page_once(tmp_path):
    relation = make(tmp_path, Disk("simulated"))
    op = IndexNestedLoop(relation, on="k", memory="1MiB")
    assert op.frames == relation.num_pages
    for _ in range(3):
        tuples(op.join(pa.record_batch({"k": np.arange(4000)})))
    assert op.stats.pages_read == relation.num_pages


def test_a_restored_pool_is_warm_and_in_the_same_order(tmp_path):
    relation = make(tmp_path, Disk("simulated"))
    batches = [pa.record_batch({"k": np.random.default_rng(i).integers(0, 4000, 300)}) for i in range(4)]
    whole = IndexNestedLoop(relation, on="k", memory="60KiB")
    for batch in batches:
        tuples(whole.join(batch))
    op = IndexNestedLoop(relation, on="k", memory="60KiB")
    for batch in batches[:2]:
        tuples(op.join(batch))
    other = IndexNestedLoop(relation, on="k", memory="60KiB")
    other.restore(op.snapshot())
    warm = other.stats.pages_read
    for batch in batches[2:]:
        tuples(other.join(batch))
    assert warm == other.frames
    assert op.stats.pages_read + other.stats.pages_read - warm == whole.stats.pages_read


def test_a_damaged_page_is_noticed(tmp_path):
    relation = make(tmp_path, "buffered")
    (file,) = (tmp_path / "r").rglob("*.pages")
    data = bytearray(file.read_bytes())
    data[4096 + 200] ^= 1
    file.write_bytes(data)
    op = IndexNestedLoop(hr.Relation.open(tmp_path / "r"), on="k", memory="1MiB")
    with pytest.raises(hr.errors.DamagedRelation, match="page 1"):
        tuples(op.run([pa.record_batch({"k": np.arange(4000)})]))
    del relation
