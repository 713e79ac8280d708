"""`hr.window_join` and `hr.approximate_join` on Spark: against DuckDB where all is kept, and the same part after every replay."""

import threading
from datetime import timedelta

import duckdb
import numpy as np
import psutil
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import headrace as hr
from headrace.errors import BadInput, MemoryRefused
from tests.support.batch_sink import Sink
from tests.support.spark_streams import counted, files, finished, naive, source
from tests.support.timed_rows import again_and_on, rows

pytestmark = pytest.mark.spark


def duck(l, r, on, columns="l.*, r.n as n_right, r.t as t_right"):
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as db:
        db.register("l", naive(l))
        db.register("r", naive(r))
        return counted(db.sql(f"select {columns} from l join r on {on}").to_arrow_table())


class NaiveSink(Sink):
    """With times as DuckDB has them."""

    def take(self, df, batch):
        self.sent.setdefault(batch, []).append(counted(naive(df.toArrow())))


def two(spark, tmp_path, lefts, rights, delay="2 hours"):
    files(tmp_path / "l", *lefts)
    files(tmp_path / "r", *rights)
    return [source(spark, tmp_path / side).withWatermark("t", delay) for side in "lr"]


def test_oracle_a_window_by_time_with_all_kept_is_the_interval_join(spark, tmp_path):
    lefts, rights = ([rows(i + j, 1500, minutes=(30 * j, 30 * j + 60)) for j in range(3)] for i in (1, 5))
    left, right = two(spark, tmp_path, lefts, rights)
    window = hr.time("10 minutes", on="T")
    out = hr.window_join(
        left, right, hr.equal("K"), window=window, method="all", memory="32MiB", shards=2, state=tmp_path / "state"
    )
    assert out.columns == ["k", "n", "t", "n_right", "t_right"]
    sink = NaiveSink()
    query = sink.run(out, tmp_path / "check")
    finished(query)
    on = "l.k = r.k and abs(epoch_us(l.t) - epoch_us(r.t)) < 600 * 1000000"
    assert sink.rows == duck(*map(pa.concat_tables, (lefts, rights)), on)
    done = hr.progress(query)
    assert sum(p.rows for p in done) == 9000 and sum(p.stats.late for p in done) == 0
    assert sum(p.stats.results for p in done) == sink.rows.total()


@pytest.mark.parametrize("how", ["window by time", "window by rows", "approximate"])
def test_a_micro_batch_that_is_run_again_gives_the_same_part(spark, tmp_path, how):
    lefts, rights = ([rows(i + j, 1500, 40) for j in range(3)] for i in (1, 5))
    left, right = two(spark, tmp_path, lefts[:2], rights[:2])
    options = {"state": tmp_path / "state", "seed": 3}
    if how == "approximate":
        out = hr.approximate_join(left, right, hr.equal("k"), tuples=400, shards=2, **options)
    elif how == "window by time":
        out = hr.window_join(
            left, right, hr.equal("k"), window=hr.time("20 minutes", on="t"), size=200, shards=2, **options
        )
    else:
        out = hr.window_join(left, right, hr.equal("k"), window=hr.rows(1000), sample=0.1, **options)

    def more():
        files(tmp_path / "l", lefts[2])
        files(tmp_path / "r", rights[2])

    sink = NaiveSink()
    first, second, third = again_and_on(sink, out, tmp_path / "check", more)
    assert first == second and third
    every = duck(*map(pa.concat_tables, (lefts, rights)), "l.k = r.k")
    assert 0 < sink.rows.total() < 0.6 * every.total()
    assert not sink.rows - every, "pairs that are none, or one twice"
    log = next((tmp_path / "state").glob("*/*/shard-0000"))
    assert len(list(log.glob("*.decision.arrow"))) <= 2 and len(list(log.glob("*.left.arrow"))) == 1


def test_oracle_boxes_and_vectors_by_cells_of_shards(spark, tmp_path):
    rng = np.random.default_rng(4)

    def boxes(n, first):
        low = rng.integers(0, 200, (n, 2)) / 10
        high = low + rng.integers(0, 20, (n, 2)) / 10
        corners = dict(zip(("x0", "y0", "x1", "y1"), np.concatenate([low, high], axis=1).T, strict=True))
        return pa.table({**corners, "n": np.arange(first, first + n)})

    lefts, rights = [boxes(150, 0), boxes(150, 500)], [boxes(150, 1000), boxes(150, 1500)]
    files(tmp_path / "l", *lefts)
    files(tmp_path / "r", *rights)
    left, right = (source(spark, tmp_path / side) for side in "lr")
    options = {"window": hr.rows(2000), "method": "all", "shards": 2, "state": tmp_path / "state"}
    for name, condition, cell, on in (
        (
            "boxes",
            hr.intersects(("x0", "y0", "x1", "y1")),
            2.0,
            "l.x0 <= r.x1 and r.x0 <= l.x1 and l.y0 <= r.y1 and r.y0 <= l.y1",
        ),
        ("vectors", hr.within(("x0", "y0"), eps=0.5), None, "(l.x0 - r.x0) ** 2 + (l.y0 - r.y0) ** 2 <= 0.25"),
    ):
        out = hr.window_join(left, right, condition, cell=cell, **options)
        sink = Sink()
        finished(sink.run(out, tmp_path / f"check {name}"))
        columns = "l.*, " + ", ".join(f"r.{c} as {c}_r" for c in ("x0", "y0", "x1", "y1", "n"))
        assert sink.rows == duck(*map(pa.concat_tables, (lefts, rights)), on, columns)
        assert sink.rows.total() > 50


def test_late_rows_are_left_out_counted_and_said(spark, tmp_path):
    early, late = rows(1, 300, 20, minutes=(60, 90)), rows(2, 200, 20, minutes=(0, 90))
    left, right = two(spark, tmp_path, [early, late], [rows(3, 300, 20, minutes=(60, 90))], "10 minutes")
    out = hr.window_join(
        left, right, hr.equal("k"), window=hr.time("1h", on="t"), method="all", shards=1, state=tmp_path / "state"
    )
    sink = NaiveSink()
    query = sink.run(out, tmp_path / "check")
    finished(query)
    times = [
        [t.replace(tzinfo=None) for t in table["t"].to_pylist()]
        for table in (early, late, rows(3, 300, 20, minutes=(60, 90)))
    ]
    mark = max(max(times[0]), max(times[2])) - timedelta(minutes=10)
    kept = late.filter(pa.array([t >= mark for t in times[1]]))
    assert 0 < kept.num_rows < 100
    on = "l.k = r.k and abs(epoch_us(l.t) - epoch_us(r.t)) < 3600000000"
    assert sink.rows == duck(pa.concat_tables([early, kept]), rows(3, 300, 20, minutes=(60, 90)), on)
    stats = [p.stats for p in hr.progress(query)]
    assert sum(s.late for s in stats) == 200 - kept.num_rows
    assert f"{200 - kept.num_rows} rows came after the watermark" in stats[-1].warnings["late"]


def test_oracle_batch_data_frames_and_a_batch_side(spark, tmp_path):
    l, r = rows(1, 800, 50), rows(2, 800, 50)
    left, right = (spark.createDataFrame(table) for table in (l, r))
    on = "l.k = r.k and abs(epoch_us(l.t) - epoch_us(r.t)) < 300 * 1000000"
    window = hr.time("5m", on="t")
    out = hr.window_join(left, right, hr.equal("k"), window=window, method="all", shards=2)
    assert counted(naive(out.toArrow())) == duck(l, r, on)
    out = hr.approximate_join(left, right, hr.equal("k"), method="exact")
    assert counted(naive(out.toArrow())) == duck(l, r, "l.k = r.k")
    files(tmp_path / "r", r.slice(0, 400), r.slice(400))
    stream = source(spark, tmp_path / "r").withWatermark("t", "2 hours")
    out = hr.window_join(left, stream, hr.equal("k"), window=window, method="all", state=tmp_path / "state")
    sink = NaiveSink()
    finished(sink.run(out, tmp_path / "check"))
    assert sink.rows == duck(l, r, on)


def test_two_steps_that_would_share_a_log_are_refused(spark, tmp_path):
    left, right = two(spark, tmp_path, [rows(1, 200, 20)], [rows(2, 200, 20)])
    options = {"window": hr.rows(100_000), "method": "all", "state": tmp_path / "state"}
    first = hr.window_join(left, right.select("k", "n"), hr.equal("k"), **options)
    second = hr.window_join(first.where("n > 0"), right.selectExpr("k", "n as m"), hr.equal("k"), **options)
    with pytest.raises(StreamingQueryException, match="need a state= directory each"):
        finished(Sink().run(second, tmp_path / "check"))
    chained = hr.window_join(first, right.selectExpr("k", "n as m"), hr.equal("k"), **options)
    sink = NaiveSink()
    finished(sink.run(chained, tmp_path / "other check"))
    columns = "l.k, l.n, l.t, r.n as n_right, s.n as m"
    wanted = duck(rows(1, 200, 20), rows(2, 200, 20), "l.k = r.k join r as s on l.k = s.k", columns)
    assert sink.rows == wanted


def test_wrong_arguments_are_refused_by_name_at_the_call(spark, tmp_path):
    left, right = two(spark, tmp_path, [rows(1, 10)], [rows(2, 10)])
    bare = source(spark, tmp_path / "r")
    state = {"state": tmp_path / "state"}
    window = hr.time("5m", on="t")
    for refused, match in (
        (
            lambda: hr.window_join(left, bare, hr.equal("k"), window=window, size=9, **state),
            "right side has no watermark on 't'",
        ),
        (
            lambda: hr.window_join(left, right, hr.equal("k"), window=hr.time("5m", on="u"), size=9, **state),
            "no column 'u'",
        ),
        (
            lambda: hr.window_join(left, right, hr.equal("k"), window=hr.time("5m", on="n"), size=9, **state),
            "no watermark on 'n'",
        ),
        (
            lambda: hr.window_join(left, right, hr.equal("k"), window=hr.rows(10), size=11, **state),
            "larger than the window",
        ),
        (lambda: hr.window_join(left, right, hr.equal("k"), window=hr.rows(0), size=1, **state), "not a window"),
        (
            lambda: hr.window_join(left, right, hr.equal("k"), window=hr.rows(10), **state),
            "takes one of sample=, size= and memory=",
        ),
        (lambda: hr.window_join(left, right, hr.equal("z"), window=hr.rows(10), size=3, **state), "no column 'z'"),
        (lambda: hr.window_join(left, right, hr.equal("k"), window=hr.rows(10), size=3, shards=0, **state), "shards=0"),
        (
            lambda: hr.window_join(
                left, right, hr.equal("k"), window=hr.time("5m", on="t", late="1s"), size=3, **state
            ),
            "late=1.0",
        ),
        (lambda: hr.window_join(left, right, hr.equal("k"), window="5m", size=3, **state), "not a window"),
        (lambda: hr.approximate_join(left, right, hr.within("n", eps=1.0), **state), "equal"),
        (lambda: hr.approximate_join(left, right, hr.equal("k"), method="rpj", **state), "method='rpj'"),
        (lambda: hr.approximate_join(left, right, hr.equal("k"), memory=-1, **state), "memory=-1"),
    ):
        with pytest.raises(BadInput, match=match):
            refused()
    with pytest.raises(MemoryRefused, match="for each of"):
        hr.approximate_join(left, right, hr.equal("k"), memory="10KiB", **state)


def test_contract_workers_grow_by_no_more_than_the_budget_and_a_sixth(spark, tmp_path):
    rng, budget = np.random.default_rng(8), 24 << 20
    for side in "lr":
        tables = [
            pa.table({"k": rng.integers(0, 1 << 30, n), "a": rng.integers(0, 1 << 40, n), side: rng.random(n)})
            for n in (300, 300, *[60_000] * 3)
        ]
        files(tmp_path / side, *tables)
    out = hr.window_join(
        *(source(spark, tmp_path / side) for side in "lr"),
        hr.equal("k"),
        window=hr.rows(10_000_000),
        memory=budget,
        shards=2,
        state=tmp_path / "state",
    )
    before, grown, over = {}, [0], threading.Event()

    def resident(worker):
        try:
            return worker.memory_info().rss
        except (psutil.Error, OSError):
            return 0

    def watch():
        while not over.wait(0.02):
            grown.append(sum(resident(worker) - had for worker, had in list(before.items())))

    def take(df, batch):
        df.write.format("noop").mode("overwrite").save()
        if batch < 2:
            workers = [p for p in psutil.Process().children(recursive=True) if p.name().startswith("python")]
            before.update({worker: resident(worker) for worker in workers})

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        check = str(tmp_path / "check")
        finished(
            out.writeStream.foreachBatch(take).option("checkpointLocation", check).trigger(availableNow=True).start()
        )
    finally:
        over.set()
        watcher.join()
    assert budget / 4 < max(grown) <= 1.15 * budget, f"{max(grown) / 2**20:.1f} MiB"
