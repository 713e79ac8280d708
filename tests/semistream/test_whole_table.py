"""AdaptiveJoin with a relation that fits its budget: it is held whole, once for a group, and nothing is read for a batch."""

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.clock import ManualClock
from headrace.errors import DamagedRelation, RelationError
from headrace.relation import Disk
from headrace.semistream import AdaptiveJoin
from headrace.semistream.adaptive.group import Group
from tests.support.group_workers import Workers, check, numbered, private, stream
from tests.support.join_oracle import join, table, tuples

KEYS = 40_000
HOWS = ["inner", "left", "semi", "anti"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    where = tmp_path_factory.mktemp("whole") / "r"
    hr.Relation.create(where, numbered(KEYS), key="k", page_size="4KiB", shards=2).close()
    return where


@pytest.fixture(scope="module")
def workers():
    some = Workers()
    yield some
    some.close()


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", ["int64", "string", "composite", "wide_decimal"])
def test_oracle_a_relation_held_whole_gives_the_brute_force_result_in_stream_order(ram_path, kind, how):
    """Keys that occur many times, null keys, absent keys, rows that an update moved; more rows than are looked up together."""
    random = Random(f"{kind} {how}")
    rows = table(kind, [min(9, i % 13) * i for i in range(2500)], random, tag="r")
    key = [name for name in rows.schema.names if name.startswith("k")]
    relation = hr.Relation.create(ram_path / "r", rows, key=key, page_size="4KiB", shards=2, fill=0.5)
    relation.apply(upserts=table(kind, [random.randrange(3000) for _ in range(300)], random, tag="u"))
    relation = relation.refresh()
    rows = pa.Table.from_batches(relation.scan())
    numbers = [[random.randrange(4000) for _ in range(n)] for n in (1, 0, 1700)]
    numbers[2][:2] = [0, 0]  # a key with a fifth of the rows
    batches = [table(kind, some, random, nulls=0.1, tag="s").combine_chunks().to_batches() for some in numbers]
    batches = [batch for some in batches for batch in some]
    for order in ("stream", "any"):
        op = AdaptiveJoin(relation, on=key, memory="2MiB", how=how, order=order)
        got = tuples(op.run(batches))
        assert got == join(rows, batches, key, how, ["v", "s", "b"]), order
        assert {"table", "output"} < op.stats.memory.keys()
        op.stats.check()
        assert op.stats.hits == op.stats.matched and op.stats.misses == 0
        assert op.stats.pages_requested == relation.num_pages
        assert op.budget.peak <= op.budget.limit


def test_the_relation_is_read_once_when_the_first_rows_come(path):
    relation = hr.Relation.open(path)
    op = AdaptiveJoin(relation, on="k", memory="8MiB")
    assert list(op.join(pa.record_batch({"k": pa.array([], pa.int64()), "seq": pa.array([], pa.int64())}))) == []
    assert op.stats.pages_read == 0
    rng = np.random.default_rng(0)
    for rows in (5, 40_000, 100):
        batch = stream(rng, rows, KEYS, skewed=False)
        check(batch, pa.Table.from_batches(op.join(batch), op.output_schema(batch.schema)))
        assert op.stats.pages_requested == relation.num_pages
    assert "loading" not in op.stats.memory
    relation.close()
    with pytest.raises(RelationError, match="is closed"):
        list(op.join(batch))


def test_rows_that_had_to_wait_for_the_table_are_late_and_those_after_them_are_not(path):
    disk = Disk("simulated", seek=0.01, transfer=0.001, clock=ManualClock())
    op = AdaptiveJoin(hr.Relation.open(path, disk=disk), on="k", memory="8MiB", order="any")
    batch = stream(np.random.default_rng(0), 300, KEYS, skewed=False)
    for late in (300, 300):
        check(batch, pa.Table.from_batches(op.run([batch], deadline="100ms")))
        assert op.stats.late == late


def test_a_budget_that_is_a_little_too_small_has_a_hot_set(path):
    """And it may take over the snapshot of a join that holds the relation whole, in which nothing is warm."""
    relation = hr.Relation.open(path)
    whole, limit = AdaptiveJoin(relation, on="k", memory="8MiB"), 8 << 20
    while "table" in AdaptiveJoin(relation, on="k", memory=limit).budget.held():
        limit -= 32 << 10
    assert limit < 3 << 20
    batch = stream(np.random.default_rng(1), 3000, KEYS, skewed=True)
    for memory in (limit, limit + (32 << 10)):
        op = AdaptiveJoin(relation, on="k", memory=memory)
        op.restore(whole.snapshot())
        check(batch, pa.Table.from_batches(op.join(batch)))
        assert op.budget.peak <= memory
        assert ("hot set" in op.stats.memory) == (memory == limit)
        AdaptiveJoin(relation, on="k", memory="8MiB").restore(op.snapshot())


def test_rows_of_a_key_that_popularity_has_scattered_are_not_held_whole(tmp_path):
    rows = pa.table({"k": np.arange(4000) % 1000, "v": np.arange(4000)})
    frequencies = pa.table({"k": np.arange(1000), "frequency": np.arange(1000) % 7})
    by = {"key": "k", "order": "frequency", "frequencies": frequencies, "page_size": "4KiB"}
    batch = pa.record_batch({"k": np.arange(1500) % 1100})
    for name, some, held in (("many", rows, "hot set"), ("one", rows.slice(0, 1000), "table")):
        relation = hr.Relation.create(tmp_path / name, some, **by)
        op = AdaptiveJoin(relation, on="k", memory="2MiB")
        got = Counter(tuples(op.join(batch)))
        assert got == Counter(join(some, [batch], ["k"], "inner", ["v"]))
        assert held in op.stats.memory
        assert op.popularity.window > 0, "what the stream asks for is measured, for Relation.compact"


def test_a_damaged_page_is_named_before_anything_is_joined(tmp_path):
    relation = hr.Relation.create(tmp_path / "r", numbered(2000), key="k", page_size="4KiB", shards=1)
    (file,) = (tmp_path / "r").glob("**/*.pages")
    whole = bytearray(file.read_bytes())
    whole[3 * 4096 + 200] ^= 1
    file.write_bytes(whole)
    op = AdaptiveJoin(hr.Relation.open(tmp_path / "r"), on="k", memory="4MiB")
    with pytest.raises(DamagedRelation, match="checksum"):
        list(op.join(stream(np.random.default_rng(0), 10, 2000, skewed=False)))
    relation.close()


# -- in a group --------------------------------------------------------------------------------------------------------


def test_oracle_versions_that_alternate_in_a_group_never_mix(tmp_path):
    relation = hr.Relation.create(tmp_path / "r", numbered(3000), key="k", page_size="4KiB")
    relation.apply(upserts=numbered(3000, 1))
    ops = [
        AdaptiveJoin(version, on="k", memory="2MiB", group=Group(tmp_path / "g", 2))
        for version in (relation, relation.refresh())
    ]
    rng = np.random.default_rng(3)
    for turn in range(6):
        add = turn % 2
        batch = stream(rng, 2000, 3000, skewed=False)
        assert ops[add].enter()
        assert not ops[1 - add].enter(), "another version is in use"
        check(batch, pa.Table.from_batches(ops[add].join(batch)), add)
        ops[add].leave()
        ops[add].stats.check()
        assert "table" in ops[add].stats.memory


def test_contract_processes_share_one_table_within_the_budget(workers, path, tmp_path):
    limit, count = 6 << 20, 3
    some = [workers.start() for _ in range(count)]
    for worker in some:  # what Python, Arrow and Numba take for the first time is not the join's
        worker.do("make", "warm", path, tmp_path / "w", count, {"memory": limit})
        worker.do("prepare", 0, 3, KEYS, 20_000, True)
        worker.do("burden", "warm")
        worker.do("drop", "warm")
        worker.do("make", "op", path, tmp_path / "g", count, {"memory": limit})
    before = {worker.pid: worker.do("prepare", seed, 20, KEYS, 20_000, False) for seed, worker in enumerate(some)}
    for worker in some:
        worker.tell("burden", "op")
    most, done = 0, False
    while not done:
        done = all(worker.answered(0.003) for worker in some)
        most = max(most, sum(private(pid) - had for pid, had in before.items()))
    for worker in some:
        worker.answer()
    facts = [worker.do("stats", "op") for worker in some]
    with hr.Relation.open(path) as relation:
        assert sum(fact["pages_requested"] for fact in facts) == relation.num_pages, "loaded once, by one of them"
    memories = {worker.do("shared_memory", "op")["name"]: worker.do("shared_memory", "op")["bytes"] for worker in some}
    assert len(memories) == 1
    (shared,) = memories.values()
    table = facts[0]["memory"]["table"]
    assert 0.8 * table < shared <= table + (64 << 10)
    assert shared + most < 1.15 * limit + (count << 20), (shared, most)
    # One that is killed while it loads leaves nothing that others take for the table.
    batch = stream(np.random.default_rng(5), 3000, KEYS, skewed=True)
    victim, other = some[:2]
    for worker in (victim, other):
        worker.do("make", "anew", path, tmp_path / "anew", count, {"memory": limit})
    victim.tell("join", "anew", batch)
    victim.kill()
    check(batch, other.do("join", "anew", batch))
