"""Every kind of thing that Headrace keeps on disk, each made small and used as it is used: the list that damage goes through.

A new kind of file gets an entry here; nobody writes its tests again.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.clock import ManualClock
from headrace.cost.calibrate import Calibration, load_calibration, machine_facts
from headrace.feeds import items as feed_items
from headrace.feeds.desk import Desk
from headrace.feeds.file_fetcher import FileFetcher
from headrace.feeds.items import ITEM_SCHEMA
from headrace.feeds.log_identity import log_identity
from headrace.feeds.pulls import PULL_SCHEMA, Pull, moment
from headrace.feeds.result_log import ResultLog
from headrace.feeds.scanner import Scanner
from headrace.feeds.seen import pair_up
from headrace.feeds.store import Change, FeedStore
from headrace.metrics import Factors, JoinStats, Overhead
from headrace.pipeline.dead_letters import SCHEMA as LETTERS
from headrace.pipeline.dead_letters import count
from headrace.progressive.grids.partitioning_for import partitioning_for
from headrace.progressive.logged.join_spec import JoinSpec
from headrace.relation.batch_versions import batch_notes, hold_versions, versions_of_last_batches
from headrace.relation.manifest import versions
from headrace.relation.popularity import note_popularity, noted_popularity
from headrace.relation.sketch import Sketch
from headrace.runlog import RunLog
from headrace.runlog.files import read_rows
from headrace.sampling import WindowJoin
from headrace.sampling.arrival_order import FROM, ArrivalOrder
from headrace.sampling.logged import LoggedSample, WarmOperator
from headrace.sampling.shard_operators import ShardJoin
from headrace.semistream.adaptive.group import HOT_SETS, Group
from headrace.shedding import Cut
from headrace.shedding.ledger import Decision, Ledger, TaskRecord
from headrace.spark.dead_letter_file import DeadLetterFile
from headrace.spark.journal import Journal, read_log
from headrace.spark.recorded import Recorded, RecordedJoin, write_recorded
from headrace.spark.reports import TaskReport
from headrace.spark.state.choices import Chosen, noted_choice
from headrace.spark.state.versions import open_noted
from tests.support.damage import Kind
from tests.support.logged_shard import Shard

_PAGE = 4096  # bytes: the smallest
_NEVER_READ = "the lock is that of the file itself: nobody reads what is in it"

# -- relations -------------------------------------------------------------------------------------------------------------


def _table(seed: int, rows: int = 60) -> pa.Table:
    texts = [None if i % 5 == 0 else f"text {seed} " * (i % 4) for i in range(rows)]
    return pa.table({"k": np.arange(rows) * 7 + seed, "s": texts, "v": np.arange(rows) / (3 + seed)})


def _popular(table: pa.Table) -> dict[str, Any]:
    frequencies = pa.table({"k": table["k"], "frequency": np.arange(table.num_rows)[::-1]})
    return {"order": "frequency", "frequencies": frequencies}


def _create(root: Path, seed: int, **options: Any) -> hr.Relation:
    return hr.Relation.create(root / "r", _table(seed), key="k", **{"page_size": _PAGE, "shards": 2} | options)


def by_key(root: Path, seed: int) -> None:
    """Two shards of one page each."""
    _create(root, seed).close()


def by_text_key(root: Path, seed: int) -> None:
    """A key of two columns, one of them text."""
    table = _table(seed).append_column("a", pa.array([f"key {seed} {i:03}" for i in range(60)]))
    hr.Relation.create(root / "r", table, key=["a", "k"], page_size=_PAGE, shards=1).close()


def by_frequency(root: Path, seed: int) -> None:
    """The most popular rows first."""
    _create(root, seed, **_popular(_table(seed))).close()


def _changed(root: Path, seed: int, **options: Any) -> None:
    """Rows changed and removed, so that each shard has pages in two files, and the pages of an older version are left out."""
    table = _table(seed, 400)
    options |= {"page_size": _PAGE, "shards": 2}
    with hr.Relation.create(root / "r", table, key="k", **options) as rel:
        rel.apply(upserts=_table(seed + 2, 5), deletes=table["k"].slice(300, 5))


def changed_by_key(root: Path, seed: int) -> None:
    """Two versions of pages, by key."""
    _changed(root, seed)


def changed_by_frequency(root: Path, seed: int) -> None:
    """Two versions of pages, by popularity."""
    _changed(root, seed, **_popular(_table(seed, 400)))


def paged_index(root: Path, seed: int) -> None:
    """Keys so long that the index has pages of its own, on two levels."""
    keys = pa.array([f"{i:08d}{seed}" + "x" * (250 + i % 100) for i in range(200)])
    hr.Relation.create(
        root / "r", pa.table({"k": keys, "v": np.arange(200)}), key="k", page_size=_PAGE, shards=1
    ).close()


def use_relation(root: Path) -> object:
    """Read every version in every way: by key, whole, its statistics, and all that `verify` compares."""
    found: list[Any] = []
    for version in versions(root / "r"):
        with hr.Relation.open(root / "r", version=version) as rel:
            rows = pa.Table.from_batches(rel.scan())
            found += [rel.version, rel.num_rows, rel.distinct_keys, rows.to_pydict()]
            found.append(rel.lookup(rows.select(list(rel.key))).to_pydict())
            rel.verify()
            found.append(rel.key_frequencies().to_pydict())
    return found


def use_paged_index(root: Path) -> object:
    """Look up through index pages, with a budget that has no room for the index as a whole."""
    with hr.Relation.open(root / "r") as rel:
        keys = [key for batch in rel.scan() for key in batch["k"].to_pylist()]
        join = hr.semistream.AdaptiveJoin(rel, "k", "224KiB")
        out = list(join.run([pa.record_batch({"k": keys[::7]})]))
        rel.verify()
        return sorted(row["v"] for batch in out for row in batch.to_pylist())


def popularity(root: Path, seed: int) -> None:
    """Counts of keys beside a relation."""
    with _create(root, seed) as rel:
        counts = Sketch(64, 1 << 20)
        keys = np.arange(seed, seed + 30, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        counts.add(keys, np.arange(30, dtype=np.int32))
        note_popularity(rel, counts)


def use_popularity(root: Path) -> object:
    """Read the counts."""
    with hr.Relation.open(root / "r") as rel:
        found = noted_popularity(rel)
        assert found is not None
        return found.dump().tobytes()


# -- notes in a relation's directory -----------------------------------------------------------------------------------------


def batch_note(root: Path, seed: int) -> None:
    """Notes of the versions that two queries' micro-batches were joined with, and that rows wait for."""
    with _create(root, seed) as rel:
        identity = rel.identity
    for query, batch in (("one", 7), ("two", 7), ("one", 8)):
        open_noted(root / "r", identity, query, batch, f"run {seed}", "buffered", 1).close()
        with hr.Relation.open(root / "r") as rel:
            if batch == 7:
                hold_versions(batch_notes(root / "r", query), "log-0", {rel.version})
            rel.apply(upserts=_table(seed + 10 + batch, 2))
    for step in ("first", "second"):
        with hr.Relation.open(root / "r") as rel:
            noted_choice(rel, "one", step).write(Chosen("inl" if step == "first" else "adaptive", f"why {seed}"), "run")


def use_batch_notes(root: Path) -> object:
    """What a restarted query is joined with, by which algorithm, and what a writer keeps for it."""
    with hr.Relation.open(root / "r") as rel:
        identity = rel.identity
        chosen = [noted_choice(rel, "one", step).read() for step in ("first", "second")]
    found = []
    for query, batch in (("one", 7), ("two", 7), ("one", 8)):
        with open_noted(root / "r", identity, query, batch, "another run", "buffered", 1) as rel:
            found.append(rel.version)
    return found, chosen, *sorted(versions_of_last_batches(root / "r", versions(root / "r")))


def _holds_as_much(sound: Any, found: Any) -> bool:
    return found[:2] == sound[:2] and {*found[2:]} >= {*sound[2:]}


# -- run logs ----------------------------------------------------------------------------------------------------------------


def _rows(seed: int, n: int = 12) -> pa.Table:
    return pa.table(
        {"k": pa.array(np.arange(n) + seed, pa.int64()), "t": [f"{seed}" * (i % 5) or None for i in range(n)]}
    )


def run_log(root: Path, seed: int) -> None:
    """State of two shards and two micro-batches, of two kinds, one of them compacted, and rows that were kept."""
    log = RunLog(root, f"q{seed}", "enrich", shards=2)
    for number in range(2):
        with log.shard(number) as shard:
            for batch in range(4):
                rows = _rows(100 * seed + 10 * number + batch)
                shard.write("waiting", batch, rows.schema, rows.to_batches(), {"since": batch + seed})
                if batch > 1:
                    rows = _rows(100 * seed + 10 * number + batch + 50)
                    shard.write("other", batch, rows.schema, rows.to_batches(), {"since": batch + seed})
                    shard.keep(
                        "dead_letter", batch, rows.schema, rows.to_batches(), {"why": f"{seed} {number} {batch}"}
                    )
            shard.compact("waiting", before=2)


def use_run_log(root: Path) -> object:
    """Read all of it, and count it."""
    (log,) = RunLog.find(root)
    found: list[Any] = [log.query, log.operator, log.shards, {**log.describe(), "path": ""}]
    for number in range(2):
        with RunLog(root, "q1", "enrich", shards=2).shard(number) as shard:
            for kind in ("waiting", "other"):
                found += [(f.facts, f.table().to_pydict()) for f in shard.read(kind, before=9)]
            for batch in (2, 3):
                table, facts = read_rows(shard.kept("dead_letter", batch))
                found.append((table.to_pydict(), facts))
    return found


def ledger(root: Path, seed: int) -> None:
    """Decisions, timings, shed rows, estimates and marks of two operators."""
    for operator in ("shed 0", "shed 1"):
        one = Ledger(root, f"query {seed}", operator)
        extra = int(operator[-1])
        for batch in (0, 1, 2):
            one.decide(batch, "run a", Decision(Cut(1.5 + seed + extra, 7), 0.5, 7 + batch, 9 + seed + batch))
            one.decided(batch, "run b")
            rows = _rows(seed + 10 * batch + 100 * extra, 5 + batch + extra)
            with_rows = one.draft(batch, 1, 0, rows.schema)
            with_rows.add(rows.to_batches()[0])
            with_rows.commit()
            one.record_task(batch, 1, 0, TaskRecord(100 + seed + batch, 5 + batch, 1.0 + extra, "x", 4))
            one.record_estimate(batch, 1, 0, {"sums": [seed, batch, extra]})
        one.mark_replayed(0)
        one.finish(1 + extra)
        write_recorded(one.path, json.dumps({"fields": []}), [replace(_JOIN, path=f"r{seed}{extra}")])


_JOIN = RecordedJoin(
    path="r", on="k", how="inner", algorithm="auto", order="any", memory=1, columns=None, suffix=None, version_column=None,
    condition=None, unmatched=None,
)  # fmt: skip


def use_ledger(root: Path) -> object:
    """What is decided, owed and estimated; and the rows that a replay would load."""
    found: list[Any] = []
    for one in Ledger.find(root):
        assert one.log.operator in ("shed 0", "shed 1")
        found += [one.decided(batch, "run b") for batch in (0, 1, 2)]
        found += [asdict(one.history(3, workers=2)), one.replayed(), one.finished(), one.debt(), one.estimates()]
        for paths in one.owed(2).values():
            found += [read_rows(path)[0].to_pydict() for path in paths]
        found.append(Recorded.read(one.path))
    return found


_SIDES = pa.schema({"k": pa.int64(), "a": pa.int64()}), pa.schema({"k": pa.int64(), "b": pa.int64()})


def _joined(root: Path, seed: int) -> Shard:
    partitioning, ask = partitioning_for(hr.equal("k"), 3)
    spec = JoinSpec(condition=hr.equal("k"), schemas=_SIDES, partitioning=partitioning, ask=ask)
    return Shard(root, spec, query=f"q{seed}")


def _pairs(seed: int, batch: int) -> list[tuple[int, pa.RecordBatch]]:
    rng = np.random.default_rng(10 * seed + batch)
    columns = [[pa.array(rng.integers(0, 4, 6)), pa.array(rng.integers(0, 99, 6))] for _ in _SIDES]
    return [(side, pa.RecordBatch.from_arrays(columns[side], schema=_SIDES[side])) for side in (0, 1)]


def progressive(root: Path, seed: int) -> None:
    """Rows of two sides and checkpoints of a logged join, three micro-batches."""
    shard = _joined(root, seed)
    for batch in range(3):
        shard.attempt(batch, _pairs(seed, batch))


def use_progressive(root: Path) -> object:
    """Repeat the last micro-batch in a process that knows nothing: it gives what it gave, from the log."""
    return sorted(_joined(root, 1).attempt(2, _pairs(1, 2)).items())


def _sampled(root: Path, seed: int, batch: int) -> list[Any]:
    rng = np.random.default_rng(10 * seed + batch)
    sides = []
    for side in (0, 1):
        rows = {"k": rng.integers(0, 5, 12), "n": np.arange(12) + 100 * batch, FROM: pa.array(np.zeros(12), pa.int32())}
        sides.append((side, pa.record_batch(rows)))
    log = RunLog(root, f"q{seed}", "sample", shards=1)
    with log.shard(0) as held:
        make = lambda: ShardJoin(WindowJoin(hr.equal("k"), window=hr.rows(30), sample=0.6, seed=1, suffix="_r"))  # noqa: E731
        sample = LoggedSample(make, held, WarmOperator(), batch, order=ArrivalOrder(hr.rows(30), (0.0, 0.0)), step="k")
        return [row for out in sample.run(iter(sides)) for row in out.to_pylist()]


def sampler(root: Path, seed: int) -> None:
    """Snapshots of a join that samples, and the rows of its last micro-batch."""
    for batch in range(3):
        _sampled(root, seed, batch)


def use_sampler(root: Path) -> object:
    """Repeat the last micro-batch in a process that knows nothing, from the snapshot of the one before."""
    return _sampled(root, 1, 2)


# -- files for people, and for the console -----------------------------------------------------------------------------------


def dead_letters(root: Path, seed: int) -> None:
    """Records that could not be read, of two tasks."""
    for batch, part in ((3, "part-00000"), (4, "part-00000")):
        with DeadLetterFile(root / "dead", batch, part, LETTERS) as file:
            letters = [[f"no number {i}" for i in range(seed + batch)], ["{"] * (seed + batch), ["x"] * (seed + batch)]
            file.write(pa.RecordBatch.from_arrays([pa.array(column) for column in letters], schema=LETTERS))


def use_dead_letters(root: Path) -> object:
    """Count them."""
    return count(root / "dead")


def journal(root: Path, seed: int) -> None:
    """What tasks reported."""
    stats = JoinStats()
    stats.tuples_in = 10 * seed
    reports = [
        TaskReport(
            step=f"step{seed}", relation="r", version=seed, query=f"q{seed}", batch=batch, partition=0, executor="e", seconds=1.5,
            stats=stats, algorithm="inl", why="",
        )
        for batch in range(4)
    ]  # fmt: skip
    Journal(root).take(reports)


def use_journal(root: Path) -> object:
    """The micro-batches that the console shows."""
    return [json.dumps(progress.as_dict(), sort_keys=True) for progress in read_log(root / "q1.jsonl")]


def _some_of(sound: Any, found: Any) -> bool:
    return not Counter(found) - Counter(sound)


_MEASURED = datetime(2026, 11, 1, tzinfo=UTC)


def calibration(root: Path, seed: int) -> None:
    """Costs measured on a machine."""
    Calibration(
        seek=1e-4 * seed, transfer=2e-6, follow=1e-5, seek_in_flight=1e-5, transfer_in_flight=1e-6, reads={1: 1e-4, 8: 2e-4},
        disk="direct", factors=Factors(), overheads={"inl": Overhead()},
        machine=machine_facts(None) | ({"cores": -1} if seed > 1 else {}), date=_MEASURED.isoformat(),
    ).save(root / "calibration.json")  # fmt: skip


def use_calibration(root: Path) -> object:
    """Read it."""
    return asdict(load_calibration(root / "calibration.json", now=_MEASURED))


# -- feeds -----------------------------------------------------------------------------------------------------------------------

_URL = "https://example.org/feed"


def _change(store: FeedStore, url: str, texts: list[str], at: float) -> Change:
    batch = pa.RecordBatch.from_pylist([{"guid": text, "title": text} for text in texts], ITEM_SCHEMA)
    hashes = feed_items.identities(batch), feed_items.contents(batch)
    rows = pa.RecordBatch.from_arrays([*batch.columns, *hashes, pa.array([False] * len(texts))], schema=PULL_SCHEMA)
    state = replace(store.state(url), etag=f'"{at}"', pulled=at, outcome="items", items=len(texts))
    return Change(
        state, store.seen(url).after(pair_up(*hashes), at, store.horizon), Pull(url, moment(at), "items", rows)
    )


def feeds(root: Path, seed: int) -> None:
    """The list of feeds, a snapshot, and groups of pulls before and after it."""
    store = FeedStore(root / "state", clock=ManualClock(start=100.0))
    store.add([_URL, f"https://example.org/{seed}"], interval=f"{seed}m")
    with suppress(InterruptedError), store.held():
        store.commit([_change(store, _URL, [f"a{seed}", "b"], 1.0 + seed)])
        store.compact()
        store.commit([_change(store, _URL, [f"c{seed}"], 2.0 + seed)])
        raise InterruptedError  # before the end, which would write a snapshot of the last group too
    log_identity(root / "state")


def use_feeds(root: Path) -> object:
    """What a scanner goes on with, and what a query reads."""
    store = FeedStore(root / "state", clock=ManualClock(start=100.0))
    pulls = [(pull.number, pull.url, pull.at, pull.items.to_pydict()) for pull in store.pulls()]
    states = store.states()
    seen = [store.seen(url).pairs.tolist() for url in sorted(states)]
    return store.feeds(), sorted(states.items()), seen, pulls, store.newest, log_identity(root / "state")


_RESULT = pa.schema({"title": pa.string(), "n": pa.int64()})


def feed_results(root: Path, seed: int) -> None:
    """Results of a query, in two files."""
    log = ResultLog(root / f"query {seed}" / "results", _RESULT)
    for first in (1, 3):
        rows = pa.record_batch([pa.array([f"t{seed}{first}", "u"]), pa.array([seed, first])], schema=_RESULT)
        log.append(first, first + 1, [rows], datetime(2026, 1, 1, tzinfo=UTC))


def use_feed_results(root: Path) -> object:
    """Read them."""
    log = ResultLog(root / "query 1" / "results", _RESULT)
    return log.pull, log.first, log.last, log.produced, log.read().to_pydict()


_SQL = "SELECT title FROM RSS('https://example.org/feed') WHERE title LIKE '%x%'"


def _desk(root: Path) -> Desk:
    clock = ManualClock(start=100.0)
    return Desk(
        root / "state", Scanner(FileFetcher(), FeedStore(root / "state", clock=clock), listed=False), clock=clock
    )


def desk(root: Path, seed: int) -> None:
    """Two queries that a desk runs."""
    one = _desk(root)
    for name in ("one", "two"):
        one.subscribe(f"{name} {seed}", _SQL.replace("x", f"{name}{seed}"))


def use_desk(root: Path) -> object:
    """The queries that a desk goes on with."""
    return [(query.name, query.sql, query.state, query.results) for query in _desk(root).queries()]


# -- caches ----------------------------------------------------------------------------------------------------------------------

_NUMBERS = 20_000  # a hot set is saved when it has changed often enough, which takes some keys


def _join_hot(root: Path, batches: int) -> list[int]:
    """Join in a group of its own, and return the values that the last micro-batch found."""
    clock, rng = ManualClock(), np.random.default_rng(5)
    found: list[int] = []
    with hr.Relation.open(root / "r") as rel, tempfile.TemporaryDirectory() as place:
        join = hr.semistream.AdaptiveJoin(
            rel, on="k", memory="1MiB", group=Group(Path(place), 1), whole=False, clock=clock
        )
        for _ in range(batches):
            clock.advance(60.0)
            keys = (_NUMBERS ** rng.random(3000)).astype(np.int64) * 7919 % _NUMBERS
            assert join.enter()
            found = sorted(v for out in join.join(pa.record_batch({"k": keys})) for v in out["v"].to_pylist())
            join.leave()
    return found


def hot_set(root: Path, seed: int) -> None:
    """The hot set that a group of joins has saved."""
    rows = pa.table({"k": np.arange(_NUMBERS), "v": np.arange(_NUMBERS) * seed})
    hr.Relation.create(root / "r", rows, key="k", page_size=_PAGE, shards=1).close()
    _join_hot(root, 20)
    assert list((root / "r" / HOT_SETS).iterdir()), "no hot set was saved"


def use_hot_set(root: Path) -> object:
    """Begin with the hot set, or without: the rows are the same."""
    return _join_hot(root, 1)


_LOCKS = {"*locks/*": _NEVER_READ, "*.lock": _NEVER_READ}
_UNSUMMED = {
    "*": "earlier releases wrote no checksum, so a damaged mark of it is that of such a file; the count is the same"
}
_PIPELINE = {"*": "nothing says of which pipeline a dead letter is: its directory is the user's"}
_WAITING = {"*waiting-*": "while nobody can read which versions are waited for, all are kept"}
_FILES = {
    "*shard-*": "an intact manifest of another relation contradicts the files: the first that is not the one it names is named"
}

KINDS = {
    kind.name: kind
    for kind in (
        Kind("relation-by-key", by_key, use_relation, redundant=_LOCKS, beside=_FILES),
        Kind("relation-by-text-key", by_text_key, use_relation, redundant=_LOCKS, beside=_FILES),
        Kind("relation-by-frequency", by_frequency, use_relation, redundant=_LOCKS, beside=_FILES),
        Kind("relation-changed", changed_by_key, use_relation, redundant=_LOCKS, beside=_FILES),
        Kind("relation-changed-by-frequency", changed_by_frequency, use_relation, redundant=_LOCKS, beside=_FILES),
        Kind("index-pages", paged_index, use_paged_index, files=("*.fences",)),
        Kind("popularity", popularity, use_popularity, files=("*popularity*",)),
        Kind(
            "batch-notes",
            batch_note,
            use_batch_notes,
            files=("*batches/*",),
            redundant=_LOCKS | _WAITING,
            accepts=_holds_as_much,
        ),
        Kind("run-log", run_log, use_run_log, redundant=_LOCKS),
        Kind("ledger", ledger, use_ledger, redundant=_LOCKS),
        Kind("progressive-join", progressive, use_progressive, redundant=_LOCKS),
        Kind("sampler", sampler, use_sampler, redundant=_LOCKS),
        Kind("dead-letters", dead_letters, use_dead_letters, redundant=_UNSUMMED, anonymous=_PIPELINE),
        Kind(
            "journal", journal, use_journal, accepts=_some_of, redundant={"*": "a line that is damaged is passed over"}
        ),
        Kind("calibration", calibration, use_calibration),
        Kind(
            "feeds",
            feeds,
            use_feeds,
            redundant={"*lock": _NEVER_READ},
            beside={"*.arrow": "they say which state they are of: an intact log-id of another one contradicts them"},
        ),
        Kind("feed-results", feed_results, use_feed_results),
        Kind("feed-queries", desk, use_desk, files=("*queries/*",)),
        Kind(
            "hot-set",
            hot_set,
            use_hot_set,
            files=(f"*{HOT_SETS}/*",),
            redundant={"*": "one that does not fit is passed over"},
        ),
    )
}
