"""DeferredJoin: whatever attempts die or come twice, every row leaves once; deadlines, retries and dead letters."""

from collections import Counter
from itertools import pairwise
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.clock import ManualClock
from headrace.runlog import RunLog, close_finish, forget_finish, unfinished
from headrace.semistream import AdaptiveJoin, ConditionalJoin
from headrace.semistream.deferred.deferral import MARK, Deferral
from headrace.semistream.deferred.join import DeferredJoin

STREAM = pa.schema({"k": pa.int64(), "n": pa.int64()})
LATE = 1 << 62


def rows(random, n, keys, start):
    # Some twice
    return [(None if random.random() < 0.05 else random.randrange(keys), start + i // 2) for i in range(n)]


def batch(pairs):
    return pa.RecordBatch.from_arrays([pa.array([p[i] for p in pairs], pa.int64()) for i in (0, 1)], schema=STREAM)


def since(k, i):
    """From which n on the i-th row of a key is valid, where that is asked."""
    return (k * 7919 + i * 104_729) % 20_000


def relation(path, keys, each=1, **options):
    both = [(k, i) for k in range(keys) for i in range(each)]
    table = pa.table(
        {"k": [k for k, _ in both], "name": [f"{k}/{i}" for k, i in both], "since": [since(k, i) for k, i in both]}
    )
    return hr.Relation.create(path, table, key="k", page_size="4KiB", **options)


def partners(k, n, keys, each, dated):
    if k is None or k >= keys:
        return []
    return [f"{k}/{i}" for i in range(each) if not dated or n >= since(k, i)]


def joined(pairs, keys, each=1, how="inner", dated=False):
    out = Counter()
    for k, n in pairs:
        names = partners(k, n, keys, each, dated)
        out.update((k, n, name) for name in names)
        if how == "left" and not names:
            out[(k, n, None)] += 1
    return out


class Query:
    """A query of one shard: micro-batches, attempts, a clock."""

    def __init__(self, path, rel, deferral, how="inner", memory="1MiB", dated=False, whole=False):
        self.log = RunLog(path, "q", "enrich", shards=1)
        self.clock, self.deferral = ManualClock(1e9), deferral
        mark = MARK if deferral.sorts_out else None
        self.how, self.memory, self.mark, self.dated = "left" if mark else how, memory, mark, dated
        self.whole = whole
        self.use(rel)

    def use(self, rel):
        self.rel = rel
        options = {"how": self.how, "order": "any", "columns": ["name"], "whole": self.whole}
        if self.dated:
            valid = hr.compare("n", ">=", "since")
            self.op = ConditionalJoin(rel, "k", self.memory, condition=valid, flag=self.mark, **options)
        else:
            self.op = AdaptiveJoin(rel, "k", self.memory, mark=self.mark, **options)

    def attempt(self, number, pairs, parts=1, stop=None):
        """One attempt: what it gave, or None if it was stopped after some results."""
        if self.op.waiting:
            self.use(self.rel)  # what a dead attempt left in memory is gone with its process
        self.op.reset_stats()
        cut = [batch(pairs[i::parts]) for i in range(parts)]
        with self.log.shard(0) as shard:
            out = DeferredJoin(self.op, shard, self.deferral, number, run="r", clock=self.clock).join(cut, STREAM)
            given = Counter()
            for i, part in enumerate(out):
                if i == stop:
                    out.close()
                    self.use(self.rel)  # a worker keeps no operator of a task that was stopped
                    return None
                given.update(tuple(row.values()) for row in part.to_pylist())
        self.op.stats.check()
        return given

    def finish(self, how="close"):
        self.op.reset_stats()
        with self.log.shard(0) as shard:
            out = DeferredJoin(self.op, shard, self.deferral, LATE, run="r", clock=self.clock).finish(STREAM)
            given = Counter(tuple(row.values()) for part in out for row in part.to_pylist())
            if how == "close":
                close_finish(shard)
        return given

    def letters(self):
        return (
            pq.read_table(self.log.path / "dead_letter").to_pylist() if (self.log.path / "dead_letter").exists() else []
        )


@pytest.mark.parametrize("dated", [False, True], ids=["by key", "and a condition"])
@pytest.mark.parametrize("seed", range(12))
def test_oracle_every_row_once_whichever_attempts_die(tmp_path, seed, dated):
    random = Random(seed)
    keys, each = random.choice([(5, 1), (400, 3), (3000, 1)])
    unmatched = random.choice(["drop", "dead_letter", "retry"])
    how = random.choice(["inner", "left"]) if unmatched == "drop" else "inner"
    deferral = Deferral(random.choice([None, 0.1, 10.0, 1000.0]), unmatched, 3.0, 0.5)
    query = Query(
        tmp_path / "log", relation(tmp_path / "r", keys, each), deferral, how, dated=dated, whole=seed % 3 == 0
    )
    everything, given, number = [], Counter(), 0
    for _ in range(random.randint(3, 24)):
        number += random.choice([1, 1, 1, 3])  # a shard may have no rows in a micro-batch
        pairs = rows(random, random.choice([0, 1, 30, 300]), int(1.2 * keys), 1000 * number)
        everything += pairs
        done = []
        for _ in range(random.randint(1, 3)):
            random.shuffle(pairs)
            if random.random() < 0.3:
                query.use(query.rel)  # another worker: cold
            query.clock.advance(random.choice([0, 0.2, 2.0]))
            out = query.attempt(number, pairs, random.randint(1, 3), random.choice([None, None, 0, 1]))
            done += [] if out is None else [out]
        if not done:
            done = [query.attempt(number, pairs)]
        assert all(a == b for a, b in pairwise(done)), "attempts differ"
        given += done[-1]
        if random.random() < 0.1:
            given += query.finish()
        query.clock.advance(random.choice([0.1, 1.0, 4.0]))
    once, again = query.finish("no"), query.finish()  # it may be done again until it is closed
    assert once == again
    given += again
    assert query.finish() == Counter()
    assert given == joined(everything, keys, each, how, dated)
    if deferral.sorts_out:
        without = Counter(p for p in everything if not partners(*p, keys, each, dated))
        assert Counter((d["k"], d["n"]) for d in query.letters()) == without
        assert {d["_reason"] for d in query.letters() if d["k"] is None} <= {"the key is null"}
    assert len(list((query.log.path / "shard-0000").iterdir())) < 40


@pytest.mark.parametrize("dated", [False, True], ids=["by key", "and a condition"])
def test_misses_wait_and_share_reads_and_hits_leave(tmp_path, dated):
    pages = {}
    for deadline in (0.01, 3.0, 30.0):
        rel, deferral = relation(tmp_path / f"r{deadline}", 20_000), Deferral(deadline, period=0.1)
        query = Query(tmp_path / f"log{deadline}", rel, deferral, "left", dated=dated)
        random, total, given = Random(1), 0, Counter()
        for number in range(30):
            given += query.attempt(number, [(random.randrange(20_000), number) for _ in range(100)])
            total += query.op.stats.pages_read
            assert query.op.stats.late == 0
            query.clock.advance(0.5)
        given += query.finish()
        assert given.total() == 3000
        pages[deadline] = (total + query.op.stats.pages_read) / 3000
    assert pages[0.01] > 1.5 * pages[3.0] > 1.5 * pages[30.0]


def test_hits_leave_in_their_batch_and_misses_before_their_deadline(tmp_path):
    query = Query(tmp_path / "log", relation(tmp_path / "r", 20_000), Deferral(5.0, period=0.5))
    left_at, came = {}, {}
    for number in range(40):
        pairs = [(7, -number), (number * 31, number)]
        came[number] = query.clock.now()
        for k, n, _ in query.attempt(number, pairs) if number < 20 else query.attempt(number, []):
            if n > 0:
                left_at[n] = query.clock.now()
            elif number > 15:
                assert k == 7, "the hot key leaves at once"
        query.clock.advance(0.7)
    assert sorted(left_at) == list(range(1, 20))
    waits = [left_at[n] - came[n] for n in left_at]
    assert max(waits) <= 5.0
    assert max(waits) > 2.0
    assert query.finish() == Counter()


def test_missed_deadlines_are_counted(tmp_path):
    query = Query(tmp_path / "log", relation(tmp_path / "r", 2000), Deferral(5.0, period=0.1))
    assert query.attempt(0, [(k, k) for k in range(0, 1000, 10)]).total() == 0
    assert (query.op.stats.deferred, query.op.stats.waiting, query.op.stats.tuples_in) == (100, 100, 0)
    query.clock.advance(60)  # the machine was away
    assert query.attempt(1, []).total() == 100
    assert (query.op.stats.late, query.op.stats.waiting) == (100, 0)
    assert query.op.stats.longest_wait == 60


def test_a_clock_set_back_holds_nobody(tmp_path):
    query = Query(tmp_path / "log", relation(tmp_path / "r", 2000), Deferral(5.0, period=0.1))
    query.attempt(0, [(1, 1)])
    query.clock = ManualClock(1e9 - 86400)
    assert query.attempt(1, []).total() == 1


def test_retry_until_the_relation_knows_and_then_no_more(tmp_path):
    rel = relation(tmp_path / "r", 10)
    query = Query(tmp_path / "log", rel, Deferral(None, "retry", 100.0, 1.0))
    assert query.attempt(0, [(3, 0), (11, 1), (12, 2), (None, 3)]) == Counter({(3, 0, "3/0"): 1})
    assert [(d["n"], d["_reason"]) for d in query.letters()] == [(3, "the key is null")]
    before = query.op.stats.pages_read
    query.attempt(1, [])
    assert query.op.stats.pages_read == before == 0 or query.op.stats.tuples_in == 0  # no new version: not tried
    rel.apply(upserts=pa.table({"k": [11], "name": ["late"], "since": [0]}))
    query.use(rel.refresh())
    again = [query.attempt(2, []) for _ in range(2)]
    assert again == [Counter({(11, 1, "late"): 1})] * 2
    assert query.op.stats.late_matches == 1
    query.clock.advance(101)
    assert query.attempt(3, []) == Counter()
    assert query.op.stats.dead_letters == 1
    dead = [d for d in query.letters() if d["n"] == 2]
    assert dead == [{"k": 12, "n": 2, "_reason": "no match in the relation", "_batch": 0, "_relation_version": 2}]
    assert query.finish() == Counter()


def test_a_row_that_no_validity_fits_is_tried_again_when_one_comes(tmp_path):
    rel = relation(tmp_path / "r", 10)
    query = Query(tmp_path / "log", rel, Deferral(None, "retry", 100.0, 1.0), dated=True)
    first = since(3, 0)
    assert query.attempt(0, [(3, first), (3, first - 1), (3, first - 2)]) == Counter({(3, first, "3/0"): 1})
    rel.apply(upserts=pa.table({"k": [3], "name": ["earlier"], "since": [first - 1]}))
    query.use(rel.refresh())
    assert query.attempt(1, []) == Counter({(3, first - 1, "earlier"): 1})
    assert query.op.stats.late_matches == 1
    query.clock.advance(101)
    assert query.attempt(2, []) == Counter()
    assert [(d["n"], d["_reason"]) for d in query.letters()] == [
        (first - 2, "no match in the relation that satisfies the condition")
    ]


def test_a_version_that_is_gone_loses_no_row(tmp_path):
    rel = relation(tmp_path / "r", 10)
    query = Query(tmp_path / "log", rel, Deferral(None, "dead_letter"))
    assert query.attempt(0, [(3, 0), (4, 1), (11, 2)]).total() == 2
    rel.apply(deletes=pa.table({"k": [4]}), upserts=pa.table({"k": [11], "name": ["new"], "since": [0]}))
    query.use(rel.refresh())
    assert query.attempt(0, [(3, 0), (4, 1), (11, 2)]) == Counter({(3, 0, "3/0"): 1})
    assert sorted((d["n"], d["_relation_version"]) for d in query.letters()) == [(1, 2), (2, 1)]


def test_a_finish_that_was_stopped_holds_the_query_or_is_forgotten(tmp_path):
    query = Query(tmp_path / "log", relation(tmp_path / "r", 1000), Deferral(50.0, "dead_letter", period=0.1))
    query.attempt(0, [(1, 1), (2000, 2)])
    assert query.finish("no").total() == 1
    with pytest.raises(hr.RunLogError, match=r"hr\.finish was interrupted after batch 0"):
        query.attempt(1, [])
    with query.log.shard(0) as shard:
        assert unfinished(shard) == 0
        forget_finish(shard)
    assert query.attempt(1, [(2, 3)]).total() == 0
    assert query.finish().total() == 2
    assert [d["n"] for d in query.letters()] == [2]
    with query.log.shard(0) as shard:
        assert unfinished(shard) == -1
    assert query.attempt(2, [(5, 5)]).total() == 0
    assert query.finish().total() == 1


def test_a_finish_that_was_stopped_and_finds_a_match_later_leaves_no_dead_letter(tmp_path):
    rel = relation(tmp_path / "r", 10)
    query = Query(tmp_path / "log", rel, Deferral(None, "retry", 100.0, 1.0))
    query.attempt(0, [(11, 1)])
    assert query.finish("no") == Counter()
    assert [d["n"] for d in query.letters()] == [1]
    rel.apply(upserts=pa.table({"k": [11], "name": ["late"], "since": [0]}))
    query.use(rel.refresh())
    assert query.finish() == Counter({(11, 1, "late"): 1})
    assert query.letters() == [], "the row has left, and is a dead letter too"


def test_contract_rows_that_wait_are_not_joined_with_another_relation_unasked(tmp_path):
    """The relation was replaced (overwrite=True): no attempt joins with it, a replay neither, until hr.finish has."""
    pairs = [(1, 1), (2000, 2)]
    query = Query(tmp_path / "log", relation(tmp_path / "r", 1000), Deferral(50.0, "retry", 100.0, 0.1))
    assert query.attempt(0, pairs) == Counter()
    query.use(relation(tmp_path / "r", 3000, overwrite=True))
    for number, some in ((0, pairs), (1, []), (1, [(5, 5)])):
        with pytest.raises(
            hr.RelationReplaced, match=r"2 rows wait in .*/log/q/enrich .*on_replaced='join'.* begin anew"
        ):
            query.attempt(number, some)
    assert query.finish() == Counter({(1, 1, "1/0"): 1, (2000, 2, "2000/0"): 1})
    assert query.attempt(0, pairs) == Counter()
    assert query.attempt(1, [(5, 5)]) == Counter()
    assert query.finish() == Counter({(5, 5, "5/0"): 1})


def test_other_rows_in_a_replay_and_other_columns_are_refused(tmp_path):
    query = Query(tmp_path / "log", relation(tmp_path / "r", 1000), Deferral(50.0, period=0.1))
    query.attempt(0, [(1, 1)])
    with pytest.raises(hr.RunLogError, match="says that 1 rows of batch 0 stayed behind"):
        query.attempt(0, [(1, 2)])
    other = pa.schema({"k": pa.int64(), "other": pa.string()})
    query.use(query.rel)
    with (
        query.log.shard(0) as shard,
        pytest.raises(hr.OtherLog, match="holds rows with columns k, n, and the stream now has k, other"),
    ):
        query.clock.advance(100)
        list(DeferredJoin(query.op, shard, query.deferral, 1, clock=query.clock).join([], other))


def test_columns_with_needed_names_are_refused():
    with pytest.raises(hr.BadInput, match="'_batch'"):
        Deferral(None, "retry").check(pa.schema({"_batch": pa.int64()}))
    Deferral(1.0).check(pa.schema({"_batch": pa.int64()}))


def test_marks_are_for_left_joins(tmp_path):
    rel = relation(tmp_path / "r", 10)
    with pytest.raises(hr.BadInput, match="mark='m' says which rows have a match"):
        AdaptiveJoin(rel, "k", "1MiB", mark="m")
    op = AdaptiveJoin(rel, "k", "1MiB", how="left", mark="m", order="any")
    out = pa.Table.from_batches(op.run([batch([(1, 0), (11, 1), (None, 2)])])).sort_by("n")
    assert out["m"].to_pylist() == [True, False, False]
