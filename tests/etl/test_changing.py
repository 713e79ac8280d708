"""A relation that changes under the stream: every micro-batch sees one version, and never an old one."""

import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import headrace as hr
from headrace.relation.manifest import versions, writing
from headrace.spark import daemon
from tests.support.spark_streams import files, source

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KEYS = 5_000
ROWS = 150_000  # of a micro-batch
BATCHES = 16
LEAST_VERSIONS = 200


class Writer(threading.Thread):
    """Applies upserts and deletes as fast as it can, and remembers what every version holds.

    A row of the relation is marked with the version that wrote it; state[v][k] is the mark of key k in version v, -1 where v does
    not have it. Popular keys change in every version, so that what a hot set holds is out of date at once.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.state = {1: np.ones(KEYS, np.int32)}
        self.last = 1
        self.stop = threading.Event()
        self.asked, self.holds, self.released = (threading.Event() for _ in range(3))
        self.error: BaseException | None = None
        hr.Relation.create(path, pa.table({"k": np.arange(KEYS), "mark": self.state[1]}), key="k").close()

    def run(self) -> None:
        rng = np.random.default_rng(3)
        try:
            with hr.Relation.open(self.path) as rel:
                while not self.stop.is_set():
                    self.change(rel, rng)
                    if self.asked.is_set() and not self.holds.is_set():
                        with writing(self.path):  # a change under way, for as long as a micro-batch takes
                            self.holds.set()
                            self.released.wait()
        except BaseException as error:
            self.error = error

    def change(self, rel: hr.Relation, rng) -> None:
        version, now = self.last + 1, self.state[self.last].copy()
        gone = rng.choice(KEYS, 10, replace=False)
        changed = np.setdiff1d(np.union1d(np.arange(20), rng.choice(KEYS, 100)), gone)
        now[changed], now[gone] = version, -1
        self.state[version] = now  # before others can see it
        made = rel.apply(
            pa.table({"k": changed, "mark": np.full(changed.size, version, np.int32)}), deletes=pa.array(gone)
        )
        assert made == version
        self.last = version


def test_no_row_is_joined_with_a_version_it_must_not_see(spark, tmp_path):
    """2.4 million joined rows while a writer makes hundreds of versions.

    Each stream row carries the version that was committed when its file was written, which is before its micro-batch began.
    """
    writer = Writer(tmp_path / "r")
    found: list[int] = []
    rng = np.random.default_rng(9)
    keys = np.minimum(rng.zipf(1.3, (2, BATCHES, ROWS // 2)), KEYS + 500) - 1  # a few popular ones, some absent

    def feed(batch: int) -> None:
        # The next micro-batch finds a version that the one before cannot have had, however little the writer gets of the machine.
        while batch and writer.last <= found[-1] and writer.error is None:
            time.sleep(0.005)
        floor = pa.array(np.full(ROWS // 2, versions(tmp_path / "r")[-1], np.int32))
        if batch == BATCHES // 2:
            writer.asked.set()
            assert writer.holds.wait(500)
        files(tmp_path / "in", *(pa.table({"k": keys[i, batch], "floor": floor}) for i in range(2)))

    feed(0)
    writer.start()
    rows = 0
    failures: list[str] = []
    over = threading.Event()

    def check(df, batch: int) -> None:
        nonlocal rows
        table = df.toArrow()
        k, mark = np.asarray(table["k"]), np.asarray(table["mark"].fill_null(-1))
        floor, rows = int(np.max(np.asarray(table["floor"]))), rows + k.size
        known = k < KEYS
        if not (mark[~known] == -1).all():
            failures.append(f"batch {batch}: a key that never was has a match")
        k, mark = k[known], mark[known]
        # The newest mark tells the version, or at least that it is no older; the state of one of them must fit all rows.
        newest = [v for v in sorted(writer.state) if v >= max(floor, int(mark.max()))]
        fits = [v for v in newest if (writer.state[v][k] == mark).all()]
        if table.num_rows != ROWS:
            failures.append(f"batch {batch}: {table.num_rows} rows of {ROWS}")
        if not fits:
            failures.append(f"batch {batch}: no one version from {floor} on has these rows")
        found.append(fits[0] if fits else -1)
        if batch == BATCHES // 2:
            # No stall: it came through while the writer was not done. How long each took says nothing on a busy machine.
            assert writer.holds.is_set() and not writer.released.is_set()
            writer.released.set()
        if batch + 1 < BATCHES:
            feed(batch + 1)
        else:
            over.set()

    with hr.Relation.open(tmp_path / "r") as rel:
        out = hr.enrich(source(spark, tmp_path / "in", per_trigger=2), rel, on="k", how="left", memory="8MiB")
        query = out.writeStream.foreachBatch(check).option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        assert over.wait(500), query.exception()
        while writer.last < LEAST_VERSIONS and writer.error is None:
            time.sleep(0.05)
        runs = {p["runId"] for p in query.recentProgress}
    finally:
        query.stop()
        writer.stop.set()
        writer.released.set()
        writer.join(30)
    assert writer.error is None
    assert failures == []
    assert rows == ROWS * BATCHES == 2_400_000
    assert writer.last >= LEAST_VERSIONS
    assert found == sorted(set(found)), "each micro-batch has a later version than the one before"
    told = {p.batch: p.version for p in hr.progress(query)}
    assert [told[b] for b in range(BATCHES)] == found
    assert len(runs) == 1  # no restart
    with hr.Relation.open(tmp_path / "r") as rel:
        rel.verify()
    assert len(versions(tmp_path / "r")) < 10  # the others are gone


def command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has just ended
        return []


def test_a_replay_sees_the_same_version_though_all_workers_were_killed(spark, tmp_path):
    """Nobody has that version open any more, and writers went on; what some tasks had handed to the sink stays right."""

    def marked(version: int) -> pa.Table:
        return pa.table({"k": np.arange(100), "mark": np.full(100, version)})

    hr.Relation.create(tmp_path / "r", marked(1), key="k").close()
    files(tmp_path / "in", pa.table({"k": np.arange(100)}))
    seen: list[set[int]] = []

    def broken(df, batch):
        seen.append({row.mark for row in df.collect()})
        if len(seen) == 1:
            raise RuntimeError("the sink is not there")

    def run():
        with hr.Relation.open(tmp_path / "r") as rel:
            out = hr.enrich(source(spark, tmp_path / "in"), rel, on="k", memory="4MiB")
            query = out.writeStream.foreachBatch(broken).option("checkpointLocation", str(tmp_path / "c"))
            return query.trigger(availableNow=True).start()

    with pytest.raises(StreamingQueryException, match="the sink is not there"):
        run().awaitTermination()
    daemons = [p for p in psutil.Process().children(recursive=True) if daemon.__name__ in command(p)]
    workers = [p for p in daemons if p.ppid() in {d.pid for d in daemons}]
    assert workers
    for worker in workers:
        worker.kill()
    psutil.wait_procs(workers, 60)
    for version in range(2, 6):
        with hr.Relation.open(tmp_path / "r") as rel:
            assert rel.apply(upserts=marked(version)) == version
    assert versions(tmp_path / "r") == [1, 4, 5]
    run().awaitTermination()
    assert seen == [{1}, {1}]
