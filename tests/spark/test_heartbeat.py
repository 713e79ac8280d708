"""The heartbeat: ticks by the clock and never back, one at the beginning of every run, and more while something is owed."""

import pytest

from headrace.spark.jvm.source import class_loader
from headrace.spark.state.heartbeat import SOURCE, heartbeat

pytestmark = pytest.mark.spark


@pytest.fixture
def streams(spark):
    """Makes the source's stream as a run of a query would, at a time in milliseconds that may change."""
    jvm = spark.sparkContext._jvm
    kind = class_loader(spark, SOURCE).loadClass("headrace.HeartbeatStream")
    (maker,) = kind.getConstructors()

    def stream(at: int, period: float = 2.5, directory: object = None):
        clock = jvm.java.time.Clock.fixed(jvm.java.time.Instant.ofEpochMilli(at), jvm.java.time.ZoneOffset.UTC)
        given = [3, period, None if directory is None else str(directory), "log", clock]
        arguments = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, len(given))
        for i, each in enumerate(given):
            arguments[i] = jvm.java.lang.Long.valueOf(each) if i == 0 else each
        return maker.newInstance(arguments)

    return stream


def ticks(stream, start: str, asked: int = 1) -> list[str]:
    """The offsets that a run would have from one on, each asked for after the last."""
    found = [stream.deserializeOffset(start)]
    for _ in range(asked):
        found.append(stream.latestOffset(found[-1], None))
    return [offset.json() for offset in found[1:]]


def test_ticks_by_the_clock_and_never_back(streams):
    assert ticks(streams(100_000), '{"tick": 0}', 2) == ['{"tick": 40}'] * 2
    later = streams(0)
    # A run begins with a tick, whatever the clock says, and then waits for the clock.
    assert ticks(later, '{"tick":40}', 3) == ['{"tick": 41}'] * 3
    with pytest.raises(Exception, match="not one of a heartbeat"):
        later.deserializeOffset('{"file": 3}')


def test_a_run_that_ends_goes_on_while_its_own_tasks_owe(streams, tmp_path):
    notes = tmp_path / "query" / "log" / "owed"
    notes.mkdir(parents=True)
    (tmp_path / "a file").touch()
    (notes / "shard-0000").write_text("5 of a query that was given up")
    stream = streams(100_000, directory=tmp_path)
    stream.prepareForTriggerAvailableNow()
    assert ticks(stream, '{"tick": 0}', 3) == ['{"tick": 40}'] * 3
    (notes / "shard-0002").write_text("7 rows")
    assert ticks(stream, '{"tick": 40}', 2) == ['{"tick": 41}', '{"tick": 42}']
    (notes / "shard-0002").unlink()
    assert ticks(stream, '{"tick": 42}') == ['{"tick": 42}']


def test_every_shard_has_a_row_of_a_tick_and_no_process_is_started_for_it(spark, tmp_path):
    rows: list[list[int]] = []
    shards = heartbeat(spark, 3, 60.0)
    for _ in range(2):
        query = (
            shards.writeStream.foreachBatch(lambda df, _: rows.append([row.shard for row in df.collect()]))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    assert rows == [[0, 1, 2]] * 2
