"""The heartbeat: ticks by the clock, never back, and one in a run that ends by itself."""

from headrace.clock import ManualClock
from headrace.spark.state.heartbeat import HeartbeatReader


def test_ticks_by_the_clock_and_never_back():
    clock = ManualClock(100.0)
    reader = HeartbeatReader(3, 2.5, clock)
    offset = reader.latestOffset(reader.initialOffset(), None)
    assert reader.latestOffset(offset, None) == offset
    clock.advance(2.5)
    later = reader.latestOffset(offset, None)
    assert later["tick"] == offset["tick"] + 1
    reader.clock = ManualClock(0.0)
    assert reader.latestOffset(later, None) == later
    (part,) = reader.partitions(offset, later)
    (batch,) = reader.read(part)
    assert batch.to_pydict() == {"shard": [0, 1, 2]}


def test_a_run_that_ends_has_one_tick_also_right_after_another():
    clock = ManualClock(100.0)
    before = HeartbeatReader(1, 10.0, clock).latestOffset({"tick": 0}, None)
    reader = HeartbeatReader(1, 10.0, clock)
    reader.prepareForTriggerAvailableNow()
    offset = reader.latestOffset(before, None)
    assert offset != before
    clock.advance(60)
    assert reader.latestOffset(offset, None) == offset
