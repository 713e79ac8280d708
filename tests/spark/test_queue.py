"""Published joins on Spark that keep their queue: rows leave in later micro-batches, once, after restarts and retries too."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import BadInput
from headrace.relation.batch_versions import versions_of_last_batches
from headrace.runlog import RunLog
from headrace.semistream.deferred.waiting_now import waiting_now
from headrace.spark.defer import QUEUEING
from tests.support.batch_sink import Sink, collected
from tests.support.delta_tables import by_deltalake
from tests.support.spark_streams import counted, files, finished, source

pytestmark = pytest.mark.spark

KEYS = 4000


def relation(path, popular=False):
    table = pa.table({"k": np.arange(KEYS), "name": [f"name {k}" for k in range(KEYS)]})
    options = {}
    if popular:
        options = {"order": "frequency", "frequencies": pa.table({"k": np.arange(9), "frequency": np.arange(9, 0, -1)})}
    return hr.Relation.create(path, table, key="k", page_size="4KiB", **options)


@pytest.fixture
def rel(tmp_path):
    return relation(tmp_path / "r")


def sales(seed, n):
    rng = np.random.default_rng(seed)
    return pa.table(
        {"k": pa.array(rng.integers(0, KEYS + 400, n), mask=rng.random(n) < 0.05), "n": np.arange(n) + 10_000 * seed}
    )


def joined(*tables, name="name", beside=()):
    """The rows of a left join."""
    return Counter(
        (k, n, f"{name} {k}" if k is not None and k < KEYS else None, *beside)
        for t in tables
        for k, n in zip(*t.to_pydict().values(), strict=True)
    )


class TwiceSink(Sink):
    """Takes every micro-batch twice, as after a task that failed when its results were there."""

    def take(self, df, batch):
        first, again = counted(df.toArrow()), counted(df.toArrow())
        assert first == again, "a retried task gave other rows"
        self.sent.setdefault(batch, []).append(first)


@pytest.mark.parametrize("algorithm", ["meshjoin", "ssij"])
def test_oracle_the_queue_outlives_retries_restarts_and_a_replay(spark, tmp_path, rel, algorithm):
    parts = [sales(i, 400) for i in range(6)]
    files(tmp_path / "in", *parts[:4])
    defer = hr.Defer(deadline="1h", state=tmp_path / "state", shards=2)
    out = hr.enrich(
        source(spark, tmp_path / "in"),
        rel,
        on="k",
        how="left",
        memory="512KiB",
        workers=2,
        algorithm=algorithm,
        defer=defer,
    )
    sink = TwiceSink()
    query = sink.run(out, tmp_path / "check")
    finished(query)
    done = hr.progress(query)
    assert {p.algorithm for p in done} == {algorithm}
    assert done[-1].stats.waiting > 0
    assert sink.rows < joined(*parts[:4])
    if algorithm == "meshjoin":
        assert max(p.stats.longest_wait_batches for p in done) > 0, "no row left in a later micro-batch"
    # The last micro-batch is not known to be done: Spark sends it again.
    commits = sorted(int(p.name) for p in (tmp_path / "check" / "commits").iterdir() if p.name.isdigit())
    (tmp_path / "check" / "commits" / str(commits[-1])).unlink()
    (tmp_path / "check" / "commits" / f".{commits[-1]}.crc").unlink(missing_ok=True)
    files(tmp_path / "in", *parts[4:])
    query = sink.run(out, tmp_path / "check")
    finished(query)
    first, again = sink.sent[commits[-1]]
    assert first == again
    (log,) = RunLog.find(tmp_path / "state")
    shards = waiting_now(log)
    assert sum(shard.for_deadline for shard in shards) == hr.progress(query)[-1].stats.waiting > 0
    assert all((shard.delay is not None) == (algorithm == "meshjoin") for shard in shards)
    left = collected(out, query)
    assert sink.rows + left == joined(*parts)
    assert collected(out, query) == Counter()


def test_oracle_every_published_join(spark, tmp_path):
    parts = [sales(i, 300) for i in range(2)]
    files(tmp_path / "in", *parts)
    assert set(QUEUEING) == {"meshjoin", "ameshjoin", "rmeshjoin", "hybridjoin", "xhybridjoin", "ssij"}
    for algorithm in ("ameshjoin", "xhybridjoin"):
        rel = relation(tmp_path / algorithm, algorithm == "xhybridjoin")
        defer = hr.Defer(deadline="1h", state=tmp_path / f"state {algorithm}", shards=1)
        stream = source(spark, tmp_path / "in")
        out = hr.enrich(stream, rel, on="k", how="left", memory="1MiB", algorithm=algorithm, defer=defer)
        sink = Sink()
        query = sink.run(out, tmp_path / f"check {algorithm}")
        finished(query)
        waiting = hr.progress(query)[-1].stats.waiting
        assert waiting > 0, algorithm
        left = collected(out, query)
        assert left.total() == waiting
        assert sink.rows + left == joined(*parts), algorithm


def test_a_row_of_a_scan_sees_the_version_that_it_began_with(spark, tmp_path, rel):
    first, second = sales(1, 800), sales(2, 800)
    files(tmp_path / "in", first)
    table = tmp_path / "table"

    def run():
        out = hr.enrich(
            source(spark, tmp_path / "in"),
            rel,
            on="k",
            how="left",
            algorithm="meshjoin",
            memory="512KiB",
            workers=2,
            defer=hr.Defer(deadline="1h", state=tmp_path / "state", shards=2),
            version_column="v",
        )
        query = hr.load(out, table, checkpoint=tmp_path / "check", trigger={"availableNow": True})
        finished(query)
        return query

    query = run()
    assert hr.progress(query)[-1].stats.waiting > 0
    for number in range(2, 5):  # versions in between are removed; the one that rows wait for is not
        with hr.Relation.open(rel.path) as latest:
            latest.apply(upserts=pa.table({"k": np.arange(KEYS), "name": [f"{number} {k}" for k in range(KEYS)]}))
    files(tmp_path / "in", second)
    query = run()
    assert versions_of_last_batches(rel.path) == {1, 4}, "the micro-batch may be replayed"
    hr.finish(query)
    loaded = by_deltalake(table)
    assert Counter(zip(*(loaded[c].to_pylist() for c in "kn"), strict=True)) == Counter(
        pair for part in (first, second) for pair in zip(*part.to_pydict().values(), strict=True)
    )
    texts = {1: "name", 4: "4"}
    for row in loaded.to_pylist():
        assert row["name"] == (f"{texts[row['v']]} {row['k']}" if row["k"] is not None and row["k"] < KEYS else None)
    versions = Counter((row["n"] >= 20_000, row["v"]) for row in loaded.to_pylist())
    assert versions[False, 1] > 400
    assert versions[True, 4] == 800


def test_a_condition_alone_is_kept_too(spark, tmp_path):
    table = pa.table({"id": range(300), "low": [10 * i for i in range(300)], "high": [10 * i + 3 for i in range(300)]})
    rel = hr.Relation.create(tmp_path / "spans", table, key="id", page_size="4KiB")
    files(tmp_path / "in", pa.table({"at": range(1500)}), pa.table({"at": range(1500, 3000)}))
    out = hr.enrich(
        source(spark, tmp_path / "in"),
        rel,
        condition=hr.between("at", "low", "high"),
        memory="1MiB",
        defer=hr.Defer(deadline="1h", state=tmp_path / "state", shards=2),
    )
    sink = Sink()
    query = sink.run(out, tmp_path / "check")
    finished(query)
    left = collected(out, query)
    assert left
    assert sink.rows + left == Counter(
        (at, at // 10, at // 10 * 10, at // 10 * 10 + 3) for at in range(3000) if at % 10 < 4
    )


def test_what_cannot_be_is_refused(spark, tmp_path, rel):
    stream = source(spark, files(tmp_path / "in", sales(1, 5)))

    def refused(message, defer, **options):
        with pytest.raises(BadInput, match=message):
            hr.enrich(stream, rel, on="k", defer=hr.Defer(state=tmp_path, **defer), **options)

    kept = {"deadline": "1s"}
    refused(
        r"deadline='1s' works with algorithm='auto' and with joins whose rows wait \(.*meshjoin.*\); algorithm='inl'",
        kept,
        algorithm="inl",
    )
    refused("order='stream' cannot be kept", kept, algorithm="meshjoin", order="stream")
    for unmatched in ("dead_letter", "retry"):
        refused(
            f"unmatched='{unmatched}' works with algorithm='auto'; algorithm='meshjoin' keeps its queue",
            kept | {"unmatched": unmatched},
            algorithm="meshjoin",
        )
    refused("works with algorithm='auto'", {"unmatched": "retry"}, algorithm="ssij")
    with pytest.raises(BadInput, match="'__headrace_left', a name that is needed"):
        hr.enrich(
            stream.withColumnRenamed("n", "__headrace_left"),
            rel,
            on="k",
            algorithm="meshjoin",
            defer=hr.Defer(state=tmp_path, **kept),
        )
