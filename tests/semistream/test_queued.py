"""QueuedJoin: a published join keeps its queue; whatever attempts die or come twice, every row leaves once."""

import re
from collections import Counter
from contextlib import contextmanager
from itertools import pairwise
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.clock import ManualClock
from headrace.errors import OtherLog, RunLogError, VersionGone
from headrace.runlog import RunLog, close_finish
from headrace.semistream import ALGORITHMS
from headrace.semistream.deferred.deferral import Deferral
from headrace.semistream.deferred.queued_join import QueuedJoin
from headrace.semistream.deferred.waiting_now import waiting_now

STREAM = pa.schema({"k": pa.int64(), "n": pa.int64(), "text": pa.string()})
LATE = 1 << 62
SCANS = ["meshjoin", "ameshjoin", "rmeshjoin"]
JOINS = [*SCANS, "hybridjoin", "xhybridjoin", "ssij"]


def rows(random, n, keys, start):
    # Some twice
    return [(None if random.random() < 0.05 else random.randrange(keys), start + i // 2) for i in range(n)]


def batch(pairs):
    columns = [[p[0] for p in pairs], [p[1] for p in pairs], [f"text {p[1]}" for p in pairs]]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, STREAM, strict=True)], schema=STREAM
    )


def payload(keys, each, version=1):
    both = [(k, i) for k in range(keys) for i in range(each)]
    return pa.table({"k": [k for k, _ in both], "name": [f"{k}/{i} of {version}" for k, i in both]})


def relation(path, keys, each=1, popular=False):
    table, options = payload(keys, each), {}
    if popular:
        frequencies = pa.table({"k": range(keys), "frequency": range(keys, 0, -1)})
        options = {"order": "frequency", "frequencies": frequencies}
    return hr.Relation.create(path, table, key="k", page_size="4KiB", shards=2, **options)


def joined(pairs, keys, each=1, how="inner", version=1):
    out = Counter()
    for k, n in pairs:
        found = k is not None and k < keys
        row = (k, n, f"text {n}")
        if how in ("semi", "anti"):
            out[row] += found == (how == "semi")
            continue
        if found:
            out.update((*row, f"{k}/{i} of {version}") for i in range(each))
        elif how == "left":
            out[(*row, None)] += 1
    return +out


class Query:
    """A query of one shard: micro-batches, attempts, a clock."""

    def __init__(self, path, rel, algorithm, deadline=1000.0, how="inner", memory="256KiB", **options):
        self.log = RunLog(path, "q", "enrich", shards=1)
        self.clock, self.deferral = ManualClock(1e9), Deferral(deadline, period=0.5)
        self.algorithm, self.how, self.memory, self.options = algorithm, how, memory, options
        self.held = []
        self.use(rel)

    def make(self, rel):
        return ALGORITHMS[self.algorithm](rel, "k", self.memory, how=self.how, **self.options)

    def use(self, rel):
        self.rel = rel
        self.op = self.make(rel)

    @contextmanager
    def at_version(self, version):
        with hr.Relation.open(self.rel.path, version=version) as rel:
            yield self.make(rel)

    def join(self, shard, number):
        self.op.reset_stats()
        options = {"at_version": self.at_version, "hold": self.held.append, "run": "r", "clock": self.clock}
        return QueuedJoin(self.op, shard, self.deferral, number, **options)

    def attempt(self, number, pairs, parts=1, stop=None):
        """One attempt: what it gave, or None if it was stopped after some results."""
        cut = [batch(pairs[i::parts]) for i in range(parts)]
        with self.log.shard(0) as shard:
            join = self.join(shard, number)
            out = join.join(cut, STREAM)
            given = Counter()
            for i, part in enumerate(out):
                if i == stop:
                    out.close()
                    self.use(self.rel)  # what a dead attempt left in memory is gone with its process
                    return None
                given.update(tuple(row.values()) for row in part.to_pylist())
        assert not self.op.waiting
        self.op.stats.check()
        return given

    def finish(self, close=True):
        with self.log.shard(0) as shard:
            out = self.join(shard, LATE).finish(STREAM)
            given = Counter(tuple(row.values()) for part in out for row in part.to_pylist())
            if close:
                close_finish(shard)
        return given

    @property
    def waiting(self):
        return sum(shard.owed for shard in waiting_now(self.log))


@pytest.mark.parametrize("algorithm", JOINS)
@pytest.mark.parametrize("seed", range(6))
def test_oracle_every_row_once_whichever_attempts_die(tmp_path, seed, algorithm):
    random = Random(f"{seed} {algorithm}")
    each = random.choice([1, 3]) if algorithm in (*SCANS, "ssij") else 1
    keys, how = random.choice([5, 400, 3000]), random.choice(["inner", "left", "semi", "anti"])
    rel = relation(tmp_path / "r", keys, each, algorithm == "xhybridjoin")
    query = Query(tmp_path / "log", rel, algorithm, random.choice([0.1, 10.0, 1000.0]), how)
    everything, given, number, most = [], Counter(), 0, 0
    for _ in range(random.randint(3, 14)):
        number += random.choice([1, 1, 1, 3])  # a shard may have no rows in a micro-batch
        pairs = rows(random, random.choice([0, 1, 30, 300, 4000]), int(1.2 * keys), 10_000 * number)
        everything += pairs
        done = []
        for _ in range(random.randint(1, 3)):
            random.shuffle(pairs)
            if random.random() < 0.3:
                query.memory = random.choice(["192KiB", "256KiB", "1MiB"])
                query.use(query.rel)  # another worker, perhaps of another memory
            query.clock.advance(random.choice([0, 0.2, 2.0]))
            out = query.attempt(number, pairs, random.randint(1, 3), random.choice([None, None, 0, 1, 7]))
            done += [] if out is None else [out]
        if not done:
            done = [query.attempt(number, pairs)]
        assert all(a == b for a, b in pairwise(done)), "attempts differ"
        given += done[-1]
        most = max(most, query.waiting)
        if random.random() < 0.1:
            given += query.finish()
        query.clock.advance(random.choice([0.1, 1.0, 4.0]))
    once, again = query.finish(close=False), query.finish()  # it may be done again until it is closed
    assert once == again
    assert given + again == joined(everything, keys, each, how)
    assert most > 0 or query.deferral.deadline < 1, "nothing ever waited"


@pytest.mark.parametrize("algorithm", JOINS)
def test_rows_wait_for_those_of_later_batches_and_leave_before_their_deadline(tmp_path, algorithm):
    query = Query(tmp_path / "log", relation(tmp_path / "r", 3000, 1, algorithm == "xhybridjoin"), algorithm, 30.0)
    given, everything = Counter(), []
    for number in range(55):  # a deadline after the last row, and some
        pairs = rows(Random(number), 20 if number < 20 else 0, 3000, 1000 * number)
        everything += pairs
        given += query.attempt(number, pairs)
        if number == 2:
            assert query.waiting > 0
        query.clock.advance(1.0)
    assert given == joined(everything, 3000)
    assert not query.waiting
    assert query.attempt(56, []) == Counter()


def pages_per_tuple(path, rel, deadline, each=100, batches=64):
    """Pages read for a tuple by MESHJOIN in micro-batches a second apart, and the most of them that a tuple waited."""
    query, pages, waited = Query(path, rel, "meshjoin", deadline), 0, 0
    for number in range(batches):
        query.attempt(number, rows(Random(number), each, 3000, 1000 * number))
        pages += query.op.stats.pages_read
        waited = max(waited, query.op.stats.longest_wait_batches)
        query.clock.advance(1.0)
    left = batches * each - query.waiting
    return pages / left, waited


def test_pages_for_a_tuple_fall_with_the_micro_batches_that_it_may_wait(tmp_path):
    rel, each = relation(tmp_path / "r", 3000), 100
    found = [pages_per_tuple(tmp_path / str(d), rel, float(d), each) for d in (0.1, 8, 16, 32)]
    drained = rel.num_pages / each  # a scan for each micro-batch
    assert found[0] == (pytest.approx(drained), 0)
    for (pages, waited), (fewer, longer) in pairwise(found):
        assert fewer < pages
        assert longer > waited
    for pages, waited in found[1:]:
        # A scan is shared by the rows that come while a row waits; the first scans come earlier, while intervals are unknown.
        modelled = rel.num_pages / (each * (waited + 1))
        assert 0.99 * modelled <= pages <= 2 * modelled


@pytest.mark.parametrize("algorithm", ["meshjoin", "rmeshjoin"])
def test_the_scan_goes_on_where_it_was_and_costs_what_the_model_says(tmp_path, algorithm):
    rel, each = relation(tmp_path / "r", 3000), 400
    query, pages, left, waits = Query(tmp_path / "log", rel, algorithm), [], 0, []
    for number in range(60):
        query.attempt(number, rows(Random(number), each, 3000, 1000 * number))
        stats = query.op.stats
        if number >= 30:  # the queue is full
            pages.append(stats.pages_read)
            left += stats.tuples_in
            waits.append(stats.longest_wait_batches)
    sizes = query.op.sizes
    modelled = rel.num_pages / sizes.tuples  # b pages for w tuples: N_R for as many as H holds
    # R-MESHJOIN reads b pages ahead of its steps, and drops what is left of them at the end of a micro-batch.
    again = sizes.b * len(pages) / left if algorithm == "rmeshjoin" else 0.0
    assert 0.9 * modelled <= sum(pages) / left <= 1.1 * modelled + again
    assert sum(pages) / left < 0.5 * rel.num_pages / each, "no better than a scan for each micro-batch"
    # The delay: a cycle of R by the pages of a micro-batch.
    (shard,) = waiting_now(query.log)
    assert shard.delay == pytest.approx(sizes.tuples / each, rel=0.15)
    assert max(waits) == pytest.approx(shard.delay, abs=1.5)
    assert shard.first_batch == pytest.approx(59 - shard.delay, abs=1.5)
    assert shard.for_deadline == query.waiting > 0


@pytest.mark.parametrize("algorithm", ["meshjoin", "ameshjoin", "rmeshjoin", "hybridjoin", "ssij"])
def test_a_row_is_joined_with_one_version(tmp_path, algorithm):
    keys = 2000
    query = Query(tmp_path / "log", relation(tmp_path / "r", keys), algorithm, how="left", memory="192KiB")
    before, after = rows(Random(1), 500, 2400, 0), rows(Random(2), 500, 2400, 1000)
    given = query.attempt(0, before)
    assert query.waiting
    assert query.held[-1] == ({1} if algorithm in SCANS else set())
    query.rel.apply(upserts=payload(keys, 1, version=2))
    query.use(query.rel.refresh())
    new = query.attempt(1, after)
    assert query.attempt(1, after[::-1]) == new
    assert query.held[-1] == ({1, 2} if algorithm in SCANS else set()), "a replay needs both"
    given += new + query.finish()
    assert Counter(row[:3] for row in given.elements()) == Counter((k, n, f"text {n}") for k, n in before + after)
    assert all((row[3] is None) == (row[0] is None or row[0] >= keys) for row in given)
    of = {n: {row[3][-1] for row in given if row[3] and (row[1] >= 1000) == n} for n in (False, True)}
    assert of[True] == {"2"}
    # Rows that a scan has begun with finish it; those that wait for a page of their own see the new one.
    assert "1" in of[False] if algorithm in SCANS else "2" in of[False]


@pytest.mark.parametrize("each", [1, 2])
def test_a_version_that_is_gone_loses_no_row_and_mixes_none(tmp_path, each, monkeypatch):
    keys = 2000
    query = Query(tmp_path / "log", relation(tmp_path / "r", keys, each), "meshjoin", memory="192KiB", how="left")
    before = rows(Random(1), 1500, 2400, 0)
    given = query.attempt(0, before)
    query.rel.apply(upserts=payload(keys, each, version=2))
    query.use(query.rel.refresh())

    def gone(version):
        raise VersionGone(f"version {version}")

    monkeypatch.setattr(query, "at_version", gone)
    if each > 1:  # a row may have had one of its matches
        with pytest.raises(VersionGone, match=r"rows wait in .* that have met a part of version 1 of .* which is gone"):
            query.attempt(1, [])
        return
    given += query.attempt(1, [])
    assert query.waiting
    given += query.finish()
    texts = Counter(row[:3] for row in given.elements())
    assert texts == Counter((k, n, f"text {n}") for k, n in before)
    assert {row[3][-4:] for row in given if row[3]} == {"of 1", "of 2"}, "rows without a match began anew"
    assert all((row[3] is None) == (row[0] is None or row[0] >= keys) for row in given)


def test_a_silent_stream_decides_nothing_until_a_deadline_is_near(tmp_path):
    query = Query(tmp_path / "log", relation(tmp_path / "r", 3000), "meshjoin", 60.0)
    query.attempt(0, pairs := rows(Random(1), 50, 3000, 0))
    for number in range(1, 10):
        query.clock.advance(1.0)
        assert query.attempt(number, []) == Counter()
        assert query.op.stats.pages_read == 0
    assert query.log.describe()["state"]["decision"]["files"] == 1
    query.clock.advance(60.0)
    assert query.attempt(10, []) == joined(pairs, 3000)
    assert query.op.stats.late == sum(k is not None for k, _ in pairs)
    assert query.op.stats.longest_wait_batches == 10


def test_a_deadline_shorter_than_a_scan_is_said(tmp_path):
    query = Query(tmp_path / "log", relation(tmp_path / "r", 3000), "meshjoin", 1000.0)
    query.attempt(0, rows(Random(1), 50, 3000, 0))
    assert not query.op.stats.warnings
    query.deferral = Deferral(1e-6, period=0.5)
    query.attempt(1, rows(Random(2), 50, 3000, 100))
    assert not query.waiting  # every row leaves at once
    assert re.match(
        r"a deadline of .* cannot be kept in 256KiB of memory: what waits", query.op.stats.warnings["deadline"]
    )
    (shard,) = waiting_now(query.log)
    assert shard.warning == query.op.stats.warnings["deadline"]


def test_what_cannot_go_on_is_refused(tmp_path):
    rel = relation(tmp_path / "r", 3000)
    query = Query(tmp_path / "log", rel, "meshjoin", memory="192KiB")
    query.attempt(0, pairs := rows(Random(1), 1500, 3000, 0))
    with pytest.raises(RunLogError, match=re.escape("rows of batch 0 stayed behind that are not among its rows now")):
        query.attempt(0, rows(Random(2), 1500, 3000, 5000))
    query.use(rel)
    query.algorithm = "hybridjoin"
    query.use(rel)
    with pytest.raises(OtherLog, match=r"rows wait in .* for a scan of .*, and HybridJoin does not scan"):
        query.attempt(1, [(1, 1)])
    query.algorithm = "rmeshjoin"  # scans as well
    query.use(rel)
    more = rows(Random(3), 10, 3000, 9000)
    with (
        query.log.shard(0) as shard,
        pytest.raises(OtherLog, match="holds rows with columns k, n, text, and the stream"),
    ):
        list(query.join(shard, 1).join([batch(more).select(["k", "n"])], pa.schema([*STREAM][:2])))
    query.use(rel)
    got = query.attempt(0, pairs) + query.attempt(1, more) + query.finish()
    assert got == joined([*pairs, *more], 3000)


@pytest.mark.parametrize("algorithm", SCANS)
def test_oracle_a_condition_beside_the_key_or_alone(tmp_path, algorithm):
    table = pa.table({"k": range(500), "low": [3 * i for i in range(500)], "high": [3 * i + 4 for i in range(500)]})
    rel = hr.Relation.create(tmp_path / "r", table, key="k", page_size="4KiB")
    query = Query(tmp_path / "log", rel, algorithm, condition=hr.between("n", "low", "high"), columns=["low"])
    query.make = lambda rel: ALGORITHMS[algorithm](rel, None, "256KiB", **query.options)
    query.use(rel)
    everything, given = [], Counter()
    for number in range(6):
        pairs = rows(Random(number), 200, 500, 250 * number)
        everything += pairs
        first = query.attempt(number, pairs)
        assert query.attempt(number, pairs[::-1]) == first
        given += first
    assert query.waiting
    given += query.finish()
    wanted = Counter(
        (k, n, f"text {n}", low) for k, n in everything for low in range(0, 1500, 3) if low <= n <= low + 4
    )
    assert given == wanted


def test_contract_the_queue_is_taken_out_and_put_back_within_the_budget(tmp_path):
    rel = relation(tmp_path / "r", 3000)
    for algorithm in JOINS[:4] + JOINS[5:]:
        op = ALGORITHMS[algorithm](rel, "k", "256KiB")
        op.offer(batch(rows(Random(1), 900, 3000, 0)))
        list(op.advance())
        list(op.settle())
        waiting = op.waiting
        kept = list(op.take_out())
        assert sum(len(some) for some in kept) == waiting > 0
        assert op.waiting == 0
        op.stats.check()
        other = ALGORITHMS[algorithm](rel, "k", "256KiB")
        other.go_to(op.position)
        for some in kept:
            assert other.put_back(some, np.full(len(some), other.clock.now())) == len(some)
        assert other.waiting == waiting
        list(other.drain())
        other.stats.check()
        assert other.stats.memory_peak <= other.budget.limit
