"""GROUP BY on Spark without Spark: the groups of the embedded query, however rows come, with restarts and results owed."""

import random
from collections import Counter
from datetime import timedelta

import pyarrow as pa
import pytest

from headrace.errors import MemoryRefused
from headrace.feeds.spark import shard_groups
from headrace.feeds.spark.grouped import with_pulls
from headrace.feeds.spark.options import NUMBERED_ITEMS
from headrace.feeds.spark.shard_groups import GroupSpec, MarkRows, ShardGroups, SumRows, sums_schema
from headrace.feeds.sql import parse_query
from headrace.feeds.sql.partial_sums import PartialSums
from headrace.runlog import RunLog
from headrace.spark.pair_step import OWED
from tests.support.feed_queries import START, items

QUERY = """SELECT {window} AS w, a.title, count(*) AS n, sum(a.elev), avg(a.elev), min(a.author), max(a.pubDate)
    FROM rss('u') a WHERE a.title <> 'none' GROUP BY w, a.title HAVING count(*) > 0"""
WINDOWS = ["window(a.seen, '1 hour')", "window(a.pubDate, '90 minutes')", "date_trunc('day', a.pubDate)"]


def pulls(chance, count=40):
    """Pulls whose items are seen roughly in order, and were published at any time before, or never, or later."""
    made, minute = [], 0
    for number in range(1, count + 1):
        minute += chance.choice([0, 1, 7, 40, 300])
        rows = [
            {
                "title": chance.choice(["x", "y", "none", None]),
                "elev": chance.choice([None, 0.1, 1 / 3, 1e9]),
                "author": chance.choice("abc"),
                "pubDate": chance.choice(
                    [None, START + timedelta(minutes=minute - chance.choice([-500, 0, 30, 2000]))]
                ),
                "guid": f"{number}/{i}",
            }
            for i in range(chance.randrange(1, 5))
        ]
        made.append(items("u", *rows, minute=minute - chance.choice([0, 0, 3])))
    return made


def numbered(batch, number):
    return pa.RecordBatch.from_arrays([*batch.columns, pa.array([number] * batch.num_rows)], schema=NUMBERED_ITEMS)


def rows_of(batches):
    return Counter(tuple(map(repr, row.values())) for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize("window", WINDOWS)
def test_differential_groups_are_the_embedded_ones_in_any_division_with_restarts_and_late_joins(window):
    for seed in range(3):
        chance = random.Random(seed)
        plan = with_pulls(parse_query(QUERY.format(window=window)))
        there = pulls(chance)
        operator = parse_query(QUERY.format(window=window)).operator()
        wanted = rows_of(out.cast(pa.schema(plan.schema)) for batch in there for out in operator.insert("u", batch))
        owed, found = [False], []

        def made(plan=plan, owed=owed):
            return ShardGroups(plan, 1 << 20, lambda: owed[0])

        groups, mark, later = made(), MarkRows(sums_schema(PartialSums(plan.grouping))), []
        while there or later:
            some, there = there[:8], there[8:]
            first = 41 - len(there) - len(some)
            rows = [numbered(batch, first + i) for i, batch in enumerate(some)]
            sums = [SumRows(plan)(plan.scans[0].prepare(batch)) for batch in rows]
            # A join may give some rows in a later micro-batch: it says that it owes them.
            sums, late = [*later, *sums], []
            if there and chance.random() < 0.5:
                late = [one for one in sums if chance.random() < 0.3]
                sums = [one for one in sums if not any(one is other for other in late)]
            owed[0], later = bool(late), late
            given = [*sums, *map(mark, rows)]
            chance.shuffle(given)
            for batch in given:
                assert list(groups.insert(0, batch)) == []
            found += list(groups.end())
            if chance.random() < 0.5:
                parts = list(groups.snapshot())
                groups = made()
                groups.restore(parts)
        assert rows_of(found) == wanted, seed
        assert groups.counters().late == operator.stats.late


def test_windows_wait_while_a_join_of_the_query_owes_results(tmp_path, monkeypatch):
    class Context:
        @staticmethod
        def getLocalProperty(name):
            return {"sql.streaming.queryId": "mine"}[name]

    monkeypatch.setattr(shard_groups.TaskContext, "get", lambda: Context)
    plan = with_pulls(parse_query(QUERY.format(window=WINDOWS[0])))
    spec = GroupSpec(plan=plan, memory=1 << 20, state=str(tmp_path), joins=("join by title",))
    logs = [RunLog(tmp_path, query, "join by title", shards=2) for query in ("mine", "another")]
    for log in logs:  # what a query of another checkpoint has left does not count
        (log.path / OWED).mkdir()
        (log.path / OWED / "shard-0001").write_text("3 rows")
    groups, mark = spec.open(0), MarkRows(sums_schema(PartialSums(plan.grouping)))
    for number, minute in ((1, 0), (2, 120)):
        batch = numbered(items("u", {"title": "x"}, minute=minute), number)
        for rows in (SumRows(plan)(plan.scans[0].prepare(batch)), mark(batch)):
            list(groups.insert(0, rows))
        assert list(groups.end()) == []
    (logs[0].path / OWED / "shard-0001").unlink()
    [out] = groups.end()
    assert out.column("n").to_pylist() == [1]


def test_rows_that_do_not_fit_are_refused_with_what_to_do():
    plan = with_pulls(
        parse_query("SELECT a.title, count(*) AS n FROM rss('u') a GROUP BY a.title, window(a.seen, '1 hour')")
    )
    many = numbered(items("u", *({"title": f"title {i}"} for i in range(3000))), 1)
    groups = ShardGroups(plan, 1 << 17, lambda: False)
    with pytest.raises(MemoryRefused, match="is left"):
        for batch in (
            SumRows(plan)(plan.scans[0].prepare(many)),
            MarkRows(sums_schema(PartialSums(plan.grouping)))(many),
        ):
            list(groups.insert(0, batch))
        list(groups.end())
