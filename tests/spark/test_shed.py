"""`enrich(shed=...)` and `hr.replay`: kept and replayed are everything, once, whatever is killed or repeated."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.runlog.files import read_facts, replace_facts
from headrace.shedding import STRATEGIES
from headrace.shedding.ledger import Ledger
from headrace.spark import shed_task
from headrace.spark.plan import Plan
from tests.support.delta_tables import by_deltalake, rows
from tests.support.flipped_bytes import flipped

pytestmark = pytest.mark.spark

AVAILABLE = {"availableNow": True}
KEYS = 10


@pytest.fixture(scope="module")
def rel(tmp_path_factory):
    """Key k is there k times."""
    keys = [k for k in range(KEYS) for _ in range(k)]
    table = pa.table({"k": keys, "name": [f"n{i}" for i in range(len(keys))]})
    with hr.Relation.create(tmp_path_factory.mktemp("r") / "rel", table, key="k") as relation:
        yield relation


class Files:
    """A directory that a stream reads, one file a micro-batch; rows are there twice, and some have no key or no match."""

    def __init__(self, spark, root: Path) -> None:
        self.spark, self.root, self.sent = spark, root, []
        root.mkdir()

    def add(self, size: int) -> None:
        first = len(self.sent)
        made = [(None if i % 13 == 12 else i % (KEYS + 2), first + i) for i in range(size // 2)] * 2
        table = pa.table({"k": pa.array([k for k, _ in made], pa.int64()), "n": [n for _, n in made]})
        pq.write_table(table, self.root / f"{first:05d}.parquet", row_group_size=20)
        self.sent += made

    def stream(self):
        reader = self.spark.readStream.schema("k bigint, n bigint").option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.root))

    def results(self, rel) -> Counter:
        names = {}
        for row in rel.lookup(list(range(KEYS))).to_pylist():
            names.setdefault(row["k"], []).append(row["name"])
        return Counter(repr([k, n, name]) for k, n in self.sent for name in names.get(k, ()))


@pytest.fixture
def files(spark, tmp_path):
    files = Files(spark, tmp_path / "in")
    for _ in range(3):
        files.add(100)
    return files


def times(k: int | None) -> int:
    """How often a key is in the relation."""
    return k if k is not None and k < KEYS else 0


def found(path: Path) -> Counter:
    return rows(by_deltalake(path), ["k", "n", "name"])


def run(df, path: Path, checkpoint: Path):
    query = hr.load(df, path, checkpoint=checkpoint, trigger=AVAILABLE)
    try:
        query.awaitTermination(300)
        assert not query.isActive
    finally:
        query.stop()
    return query


def shed_rows(state: Path) -> Counter:
    """As any tool reads the shed table."""
    read = [pq.read_table(file) for file in state.glob("*/*/shed/*.parquet")]
    return Counter((r["k"], r["n"]) for table in read for r in table.to_pylist())


def test_kept_and_replayed_are_everything_once(files, rel, tmp_path):
    state, table, checkpoint = tmp_path / "state", tmp_path / "table", tmp_path / "checkpoint"
    shed = hr.Shedding(
        "topw", rate=40, target_delay="2s", state=state
    )  # with half of the target delay: 40 rows a micro-batch
    df = hr.enrich(files.stream(), rel, on="k", shed=shed)
    query = run(df, table, checkpoint)
    everything, kept, gone = files.results(rel), found(table), shed_rows(state)
    assert gone.total() == 3 * 100 - sum(p.rows for p in hr.progress(query)) and 150 < gone.total() < 210
    assert (
        max(k or 0 for k, _ in gone if k is None or k < KEYS)
        < min(k for k, n in set(files.sent) - set(gone) if k is not None) + 2
    )  # by f_R, which is k, up to ties
    assert kept.total() / everything.total() > 0.55  # 40% of the rows have far more of the results

    last = hr.progress(query)[-1]
    assert last.debt == gone.total() and last.shed + last.rows == 100
    assert abs(last.kept_share - 0.4) < 0.1 < last.results_share - last.kept_share
    assert last.as_dict()["debt"] == last.debt

    told: list[tuple[int, int | None]] = []
    done = hr.replay(state, table, progress=lambda rows, total: told.append((rows, total)))
    assert (done.rows, done.batches, done.waiting) == (gone.total(), 3, 0)
    assert told == [(0, gone.total()), (gone.total(), gone.total())]
    assert found(table) == everything and done.results == everything.total() - kept.total()
    assert shed_rows(state) == Counter()
    assert hr.replay(state, table) == type(done)(0, 0, 0, 0)

    files.add(100)  # the query goes on, and owes only what is new
    query = run(df, table, checkpoint)
    assert hr.progress(query)[-1].debt == shed_rows(state).total() > 0
    hr.replay(state, table)
    assert found(table) == files.results(rel)


def test_into_postgresql_too_the_last_micro_batch_is_known_to_be_finished(files, rel, tmp_path, database):
    database.query("CREATE TABLE kept (k bigint, n bigint, name text)")
    state = tmp_path / "state"
    shed = hr.Shedding("topw", rate=40, target_delay="2s", state=state)
    df = hr.enrich(files.stream(), rel, on="k", shed=shed)
    query = hr.load_postgresql(df, "kept", url=database.url, checkpoint=tmp_path / "checkpoint", trigger=AVAILABLE)
    assert query.awaitTermination(300)
    gone, everything = shed_rows(state), files.results(rel)
    assert 150 < gone.total() < 210
    done = hr.replay(state, tmp_path / "rest")  # all of it: nothing waits for a later micro-batch
    assert (done.rows, done.batches, done.waiting) == (gone.total(), 3, 0)
    kept = int(database.rows("SELECT count(*) FROM kept")[0][0])
    assert kept + found(tmp_path / "rest").total() == everything.total()


def test_the_rate_is_learned_and_where_all_fits_nothing_is_shed(spark, rel, tmp_path):
    files = Files(spark, tmp_path / "in")
    for size in (100, 60, 4000):
        files.add(size)
    state = tmp_path / "state"
    df = hr.enrich(files.stream(), rel, on="k", shed=hr.Shedding("sample", target_delay="1h", state=state))
    query = run(df, tmp_path / "table", tmp_path / "checkpoint")
    assert found(tmp_path / "table") == files.results(rel) and shed_rows(state) == Counter()
    assert [(p.shed, p.kept_share, p.debt) for p in hr.progress(query)] == [(0, 1.0, 0)] * 3
    assert "Exchange" not in df._jdf.queryExecution().toString()

    # One row a second is all that was ever joined, as far as the books say: a second's worth is kept of the rest.
    (ledger,) = Ledger.find(state)
    for path in (ledger.path / "took").iterdir():
        took = read_facts(path)
        replace_facts(path, took | {"seconds": took["rows"]})
    files.add(2000)
    df = hr.enrich(files.stream(), rel, on="k", shed=hr.Shedding("sample", target_delay="10s", state=state))
    query = run(df, tmp_path / "table", tmp_path / "checkpoint")
    last = hr.progress(query)[-1]
    assert last.shed == shed_rows(state).total() and last.shed + last.rows == 2000 and last.rows <= 30


def test_a_micro_batch_that_is_done_over_sheds_the_same_however_its_rows_are_divided(spark, files, rel, tmp_path):
    state, checkpoint, collected = tmp_path / "state", tmp_path / "checkpoint", []

    def attempt(fails: bool, size: str):
        def sink(df, batch):
            got = Counter((r["k"], r["n"]) for r in df.select("k", "n").collect())
            got = Counter({row: many // max(1, times(row[0])) for row, many in got.items()})
            collected.append((batch, got, shed_rows(state)))
            if fails and batch == 1:
                raise RuntimeError("killed before Spark knows that it is done")

        spark.conf.set("spark.sql.files.maxPartitionBytes", size)
        shed = hr.Shedding("cluster", rate=40, target_delay=2, state=state)
        df = hr.enrich(files.stream(), rel, "k", "left", shed=shed)
        query = (
            df.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint)).trigger(**AVAILABLE).start()
        )
        try:
            query.awaitTermination(300)
        except Exception as error:
            assert fails and "killed before" in str(error)
        finally:
            query.stop()
            spark.conf.unset("spark.sql.files.maxPartitionBytes")

    attempt(True, "400")  # several tasks
    attempt(True, "1g")  # one
    attempt(False, "700")
    assert [batch for batch, _, _ in collected] == [0, 1, 1, 1, 2]
    first, again, third = (c for c in collected if c[0] == 1)
    assert first[1:] == again[1:] == third[1:]
    assert len(list((state).glob("*/*/shed/*-0000000001-r2_p*.parquet"))) >= 1
    kept = collected[0][1] + third[1] + collected[-1][1]
    assert kept + shed_rows(state) == Counter(files.sent) and shed_rows(state).total() > 100


def test_with_a_deadline_rows_that_wait_and_rows_that_are_shed_come_to_everything(files, rel, tmp_path):
    state, table, checkpoint = tmp_path / "state", tmp_path / "table", tmp_path / "checkpoint"
    shed = hr.Shedding("topw", rate=40, target_delay="2s")  # in the state of the rows that wait
    df = hr.enrich(files.stream(), rel, on="k", shed=shed, defer=hr.Defer(deadline="1h", state=state, shards=2))
    query = run(df, table, checkpoint)
    assert shed_rows(state).total() > 60 and found(table) != files.results(rel)
    hr.finish(query)
    hr.replay(state, table)
    assert found(table) == files.results(rel)


def test_replayed_rows_without_a_match_are_dead_letters_once(files, rel, tmp_path, monkeypatch):
    state, table, checkpoint = tmp_path / "state", tmp_path / "table", tmp_path / "checkpoint"
    shed = hr.Shedding("keep", rate=40, target_delay="2s", state=state)
    defer = hr.Defer(unmatched="dead_letter", state=state, shards=2)
    df = hr.enrich(files.stream(), rel, on="k", shed=shed, defer=defer)
    run(df, table, checkpoint)

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as before, pytest.raises(KeyboardInterrupt):
        before.setattr("headrace.spark.delta.load.Sink.commit", die)
        hr.replay(state, table)
    assert hr.replay(state, table).waiting == 0
    assert found(table) == files.results(rel)
    letters = [r for f in state.rglob("*.parquet") if "dead_letter" in str(f) for r in pq.read_table(f).to_pylist()]
    assert Counter((r["k"], r["n"]) for r in letters) == Counter(row for row in files.sent if not times(row[0]))


def test_contract_a_damaged_shed_file_is_not_replayed(files, rel, tmp_path):
    """Spark's reader takes a wrong byte for a value: a row would be lost, and another be there twice."""
    state, table, checkpoint = tmp_path / "state", tmp_path / "table", tmp_path / "checkpoint"
    shed = hr.Shedding("keep", rate=40, target_delay="2s", state=state)
    run(hr.enrich(files.stream(), rel, on="k", shed=shed), table, checkpoint)
    kept = found(table)
    damaged = min(state.glob("*/*/shed/*.parquet"))
    for _ in flipped(damaged, most=100):
        with pytest.raises(hr.DamagedLog, match=rf"{damaged.name} is damaged.* restore it from a copy, or move it"):
            hr.replay(state, table)
    assert found(table) == kept
    hr.replay(state, table)
    assert found(table) == files.results(rel)


def test_a_replay_that_dies_is_repeated_without_loss_or_double(files, rel, tmp_path, monkeypatch):
    state, table, checkpoint = tmp_path / "state", tmp_path / "table", tmp_path / "checkpoint"
    shed = hr.Shedding("keep", rate=40, target_delay="2s", state=state)
    df = hr.enrich(files.stream(), rel, on="k", shed=shed)
    run(df, table, checkpoint)
    kept, owed = found(table), shed_rows(state).total()

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as before, pytest.raises(KeyboardInterrupt):
        before.setattr("headrace.spark.delta.load.Sink.commit", die)  # files written, not committed
        hr.replay(state, table)
    assert found(table) == kept and shed_rows(state).total() == owed
    with monkeypatch.context() as after, pytest.raises(KeyboardInterrupt):
        after.setattr("headrace.shedding.ledger.Ledger.mark_replayed", die)  # committed, not marked
        hr.replay(state, table)
    assert found(table) == files.results(rel) and shed_rows(state).total() == owed
    assert hr.replay(state, table).rows == 0
    assert found(table) == files.results(rel) and shed_rows(state) == Counter()
    (ledger,) = Ledger.find(state)
    assert ledger.replayed() == (2, owed)


def test_a_micro_batch_that_may_run_again_is_not_replayed(spark, files, rel, tmp_path):
    state, table, checkpoint = tmp_path / "state", tmp_path / "table", tmp_path / "checkpoint"
    shed = hr.Shedding("sample", rate=40, target_delay="2s", state=state)
    df = hr.enrich(files.stream(), rel, on="k", shed=shed)
    query = df.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(**AVAILABLE).start()
    query.awaitTermination(300)
    owed = shed_rows(state)

    def joined(shed):
        return hr.enrich(shed, rel, on="k", how="left").select("n", "name")

    done = hr.replay(state, table, join=joined, session=spark)
    assert done.batches == 2 and done.waiting > 0 and done.rows + done.waiting == owed.total()
    last = hr.replay(state, table, join=joined, session=spark, checkpoint=checkpoint)
    assert last.rows == done.waiting and last.waiting == 0
    names = {k: [r["name"] for r in rel.lookup([k]).to_pylist()] or [None] for k in range(KEYS + 2)}
    expected = Counter(repr([n, name]) for (k, n), many in owed.items() for name in names.get(k, [None]) * many)
    assert rows(by_deltalake(table), ["n", "name"]) == expected


def test_what_shedding_did_to_sums_is_estimated_until_the_rows_are_back(spark, rel, tmp_path):
    (tmp_path / "in").mkdir()
    rng, sent = np.random.default_rng(3), []
    for i in range(3):
        table = pa.table({"k": rng.integers(0, KEYS + 2, 3000), "n": np.arange(3000) + 3000 * i})
        pq.write_table(table, tmp_path / "in" / f"{i}.parquet")
        sent.append(table)
    stream = spark.readStream.schema("k bigint, n bigint").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    shed = hr.Shedding("sample", rate=400, target_delay="2s", state=tmp_path / "state", estimate="n")
    df = hr.enrich(stream, rel, on="k", shed=shed)
    query = run(df, tmp_path / "out", tmp_path / "check")
    truth = [
        (np.minimum(t["k"], KEYS) % KEYS, np.asarray(t["n"])) for t in sent
    ]  # keys 10 and 11 are there 0 times, as 0 is
    loaded = by_deltalake(tmp_path / "out")
    missing = {
        "count": sum(int(f.sum()) for f, _ in truth) - loaded.num_rows,
        "sum(n)": sum(int((f * n).sum()) for f, n in truth) - sum(loaded["n"].to_pylist()),
    }
    found = {row["quantity"]: row for row in hr.estimate_shed(tmp_path / "state").to_pylist()}
    assert found.keys() == missing.keys()
    for quantity, value in missing.items():
        row = found[quantity]
        assert row["shed"] == sum(p.shed for p in hr.progress(query)) > 4000 and row["shed"] + row["kept"] == 9000
        margin = row["high"] - row["estimate"]
        assert 0 < margin < 0.3 * value and abs(row["estimate"] - value) < 2 * margin  # four standard errors
        each = [p.missing[quantity] for p in hr.progress(query)]
        assert sum(one[0] for one in each) == pytest.approx(row["estimate"])
    hr.replay(tmp_path / "state", tmp_path / "out", session=spark, checkpoint=tmp_path / "check")
    assert by_deltalake(tmp_path / "out").num_rows == loaded.num_rows + missing["count"]
    assert hr.estimate_shed(tmp_path / "state").num_rows == 0


def test_what_cannot_be_is_refused(spark, files, rel, tmp_path):
    stream, state = files.stream(), tmp_path / "state"
    with pytest.raises(hr.BadInput, match="did you mean 'topw'"):
        hr.enrich(stream, rel, on="k", shed="top")
    with pytest.raises(hr.BadInput, match=r"give shed=hr\.Shedding\(\.\.\., state="):
        hr.enrich(stream, rel, on="k", shed="topw")
    with pytest.raises(hr.BadInput, match="target_delay='soon'"):
        hr.Shedding("topw", state=state, target_delay="soon")
    keep = hr.Shedding("keep", state=state)
    with pytest.raises(hr.BadInput, match="is for a streaming DataFrame"):
        hr.enrich(spark.range(3).toDF("k"), rel, on="k", shed=keep)
    with pytest.raises(hr.BadInput, match="column 'a' is there twice"):
        hr.enrich(stream.selectExpr("k", "n as a", "n as A"), rel, on="k", shed=keep)
    with pytest.raises(hr.BadInput, match="rate=0"):
        hr.Shedding("keep", rate=0)
    with pytest.raises(hr.BadInput, match="needs rows that are shed at random, and shed='topw' chooses them"):
        hr.enrich(stream, rel, on="k", shed=hr.Shedding("topw", state=state, estimate=True))
    with pytest.raises(hr.BadInput, match="no column 'zz'"):
        hr.enrich(stream, rel, on="k", shed=hr.Shedding("sample", state=state, estimate="zz"))
    with pytest.raises(hr.BadInput, match="here rows may wait"):
        hr.enrich(
            stream,
            rel,
            on="k",
            defer=hr.Defer(deadline="5s", state=state),
            shed=hr.Shedding("sample", state=state, estimate=True),
        )
    with pytest.raises(hr.BadInput, match="is not a directory"):
        hr.replay(tmp_path / "nowhere", tmp_path / "table")
    with pytest.raises(hr.BadInput, match="nothing was shed"):
        state.mkdir()
        hr.replay(state, tmp_path / "table")


def test_what_a_log_cannot_repeat_is_said(files, rel, tmp_path):
    state, table = tmp_path / "state", tmp_path / "table"
    shed = hr.Shedding("sample", rate=40, target_delay="2s", state=state)
    df = hr.enrich(files.stream(), rel, on="k", columns=[], shed=shed)
    run(hr.find_duplicates(df, rel, on="k", columns=[]), table, tmp_path / "checkpoint")
    assert shed_rows(state)
    with pytest.raises(hr.BadInput, match="has surrogate keys or duplicates after the join that sheds"):
        hr.replay(state, table)


def test_many_rows_held_until_it_is_decided_go_to_a_file():

    held = shed_task._Held(100)
    batches = [pa.record_batch({"k": list(range(i, i + 10))}) for i in range(0, 100, 10)]
    for batch in batches:
        held.add(batch)
    assert list(held.batches()) == batches


@pytest.mark.parametrize("name", ["keep", "sample", "topw", "cluster"])
def test_a_cut_is_found_with_bounded_memory_and_keeps_the_share(name):
    """With more rows than fit, some of them stand for all; with fewer, the cut is the exact one."""
    strategy, random = STRATEGIES[name], np.random.default_rng(1)
    words, f = random.integers(0, 1 << 63, 200_000).astype(np.uint64), random.integers(1, 1000, 200_000).astype(float)
    sample = shed_task._CutSample(shed_task.cut_rows(1 << 20))
    for at in range(0, words.size, 7001):  # no multiple of the stride
        sample.add(f[at : at + 7001], words[at : at + 7001])
        assert sum(some.size for some in sample._words) <= sample.most == 8192
    assert sample.rows == words.size
    kept = sample.cut(strategy, 0.3).kept(strategy.scores(f, words), words)
    assert kept.mean() == pytest.approx(0.3, abs=0.03)
    few = shed_task._CutSample(8192)
    few.add(f[:5000], words[:5000])
    assert few.cut(strategy, 0.3) == strategy.cut(f[:5000], words[:5000], 1500)


def test_what_shedding_holds_is_taken_from_the_budget(spark, tmp_path):
    with hr.Relation.create(tmp_path / "rel", pa.table({"k": range(100), "v": range(100)}), key="k") as rel:
        stream = spark.readStream.format("rate").load().selectExpr("value AS k")
        plain = hr.enrich(stream, rel, "k", memory="8MiB", workers=2)
        shed = hr.enrich(stream, rel, "k", memory="8MiB", workers=2, shed=hr.Shedding(state=tmp_path / "state"))
        (without,), (step,) = Plan.of(plain).steps, Plan.of(shed).steps
        assert without.join.memory == 8 << 20
        assert step.join.memory + 2 * step.shed.held == 8 << 20
        assert step.worker_memory == without.worker_memory == 4 << 20
        assert step.recorded().memory == 8 << 20  # a replay sheds nothing, and has all of it
