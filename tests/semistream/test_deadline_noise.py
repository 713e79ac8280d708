"""Deadlines are kept with the noise of a real machine: on a clock that moves when told, micro-batches and phases jitter."""

from collections import Counter
from random import Random

import pyarrow as pa
import pytest

import headrace as hr
from headrace.clock import ManualClock
from headrace.runlog import RunLog
from headrace.semistream import AdaptiveJoin
from headrace.semistream.deferred.batch_times import WINDOW, BatchTimes, high_quantile
from headrace.semistream.deferred.deferral import Deferral
from headrace.semistream.deferred.join import DeferredJoin

STREAM = pa.schema({"k": pa.int64(), "n": pa.int64()})
KEYS = 20_000
EACH = 40  # rows of a micro-batch
DEADLINE = 5.0


class Machine:
    """A query of one shard on a machine whose every time is given by the test."""

    def __init__(self, path, *, row_seconds=0.0):
        table = pa.table({"k": range(KEYS), "name": [f"{k:040d}" for k in range(KEYS)]})
        self.op = AdaptiveJoin(
            hr.Relation.create(path / "r", table, key="k", page_size="4KiB"), "k", "256KiB", how="left", order="any"
        )
        self.log, self.clock = RunLog(path / "log", "q", "enrich", shards=1), ManualClock(1e9)
        self.row_seconds = row_seconds  # that a result takes on its way out
        self.take_seconds = 0.0  # until the rows of a micro-batch have come
        self.late = self.left = 0
        self.longest, self.warnings, self.random = 0.0, [], Random(7)

    def rows(self, number):
        self.clock.advance(self.take_seconds)
        keys = [self.random.randrange(KEYS) for _ in range(EACH)]
        yield pa.RecordBatch.from_arrays([pa.array(keys), pa.array([number] * EACH, pa.int64())], schema=STREAM)

    def batch(self, number, interval):
        """One micro-batch; the next one begins so many seconds after it began, or when it has ended."""
        begun = self.clock.now()
        self.op.reset_stats()
        with self.log.shard(0) as shard:
            join = DeferredJoin(self.op, shard, Deferral(DEADLINE, period=0.5), number, run="r", clock=self.clock)
            for part in join.join(self.rows(number), STREAM):
                self.clock.advance(self.row_seconds * part.num_rows)
                self.left += part.num_rows
        stats = self.op.stats
        self.late += stats.late
        self.longest = max(self.longest, stats.longest_wait)
        self.warnings.append(stats.warnings.get("deadline", ""))
        self.clock.advance(max(0.0, begun + interval - self.clock.now()))


def recurring(random, count):
    """Half a second each, give or take; every tenth takes almost two, as when Delta writes a checkpoint."""
    return [1.9 if i % 10 == 9 else random.uniform(0.4, 0.6) for i in range(count)]


def rare(random, count):
    """Half a second each, give or take, and one in twenty at random is three to five times as long."""
    return [random.uniform(1.5, 2.5) if random.random() < 0.05 else random.uniform(0.4, 0.6) for _ in range(count)]


@pytest.mark.parametrize("intervals", [recurring, rare])
@pytest.mark.parametrize("row_seconds", [0.0, 0.002], ids=["fast joins", "slow joins"])
def test_rows_leave_in_time_whatever_micro_batches_take(tmp_path, intervals, row_seconds):
    machine = Machine(tmp_path, row_seconds=row_seconds)
    for number, interval in enumerate(intervals(Random(1), 80)):
        machine.batch(number, interval)
    assert machine.late == 0
    assert machine.left > 60 * EACH
    assert DEADLINE / 4 < machine.longest <= DEADLINE  # they do wait, to share reads
    assert not any(machine.warnings)


def test_a_micro_batch_that_takes_long_lets_nobody_wait_for_the_next(tmp_path):
    machine, number = Machine(tmp_path), 0
    while number < 12 or machine.op.stats.waiting:
        machine.batch(number, 0.5)
        number += 1
    for later in range(number, number + 5):  # after a join phase rows begin to wait anew
        machine.batch(later, 0.5)
    machine.take_seconds = 2.5  # nothing like it was seen before, but it is seen when the rows have come
    machine.batch(number + 5, 3.0)
    machine.take_seconds = 0.0
    machine.batch(number + 6, 0.5)
    assert machine.late == 0
    assert machine.longest > 4.0


def test_when_micro_batches_slow_down_the_next_is_expected_to_be_slower_yet():
    times = BatchTimes()
    for _ in range(10):
        times.add_batch(0.2, 0.2, 10, idle=False)
    times.add_batch(0.8, 0.2, 10, idle=False)
    assert times.interval(5.0) == pytest.approx(1.6)
    assert times.slowdown() == 1.0  # one alone is no trend
    for _ in range(4):
        times.add_batch(0.8, 0.2, 10, idle=False)
    assert times.interval(5.0) == pytest.approx(1.0)
    assert times.slowdown() == pytest.approx(2.5)


def test_what_is_learned_outlives_a_restart(tmp_path):
    machine = Machine(tmp_path, row_seconds=0.002)
    for number, interval in enumerate(recurring(Random(1), 30)):
        machine.batch(number, interval)
    with machine.log.shard(0) as shard:
        facts = shard.last("decision", before=1 << 62).facts
    assert len(facts["batches"]) == 28  # neither the first of the run nor the one that is under way
    assert high_quantile(spent + rest for spent, rest, _ in facts["batches"]) == pytest.approx(1.9)
    assert facts["joins"] and all(0.002 * pages <= seconds for pages, seconds in facts["joins"])
    assert (facts["deadline"], facts["warning"]) == (DEADLINE, "")


def test_a_deadline_that_cannot_be_kept_is_said_beforehand(tmp_path):
    machine = Machine(tmp_path)
    for number in range(60):
        machine.row_seconds = 0.002 * 1.12**number
        machine.batch(number, 0.5)
        if machine.late:
            break
    assert machine.late, "in the end it cannot be kept"
    warned = [i for i, text in enumerate(machine.warnings) if text]
    assert warned and warned[0] <= number - 3, "some micro-batches before"
    text = machine.warnings[warned[0]]
    assert (
        "a deadline of 5s cannot be kept at " in text
        and " rows a second in 256KiB of memory: a micro-batch needs " in text
    )
    with machine.log.shard(0) as shard:
        assert shard.last("decision", before=1 << 62).facts["warning"] == machine.warnings[-1]


def test_one_freak_is_forgotten_and_what_recurs_is_not():
    times = BatchTimes()
    for i in range(4 * WINDOW):
        times.add_batch(0.3, 30.0 if i == 3 * WINDOW else 0.2, 10, idle=False)
    assert times.interval(5.0) == pytest.approx(0.5)
    for i in range(WINDOW):
        times.add_batch(0.3, 1.7 if i % 16 == 0 else 0.2, 10, idle=False)
    assert times.interval(5.0) == pytest.approx(2.0)
    assert len(times.batches) == WINDOW


def test_a_quiet_stream_is_not_a_slow_one():
    times = BatchTimes()
    for i in range(20):
        times.add_batch(0.1, 0.4 if i < 10 else 3600.0, 10, idle=i >= 10)
    assert times.interval(5.0) == pytest.approx(0.5)


def test_before_micro_batches_are_known_a_part_of_the_deadline_is_assumed():
    times = BatchTimes()
    assert times.interval(8.0) == 2.0
    for _ in range(8):
        times.add_batch(0.1, 0.1, 10, idle=False)
    assert times.interval(8.0) == pytest.approx(0.2)


def test_phases_are_measured_and_not_only_modelled():
    times = BatchTimes()
    assert times.join(100, 0.01) == 0.01
    times.add_join(90, 0.8)
    assert times.join(100, 0.01) == pytest.approx(0.8 * 100 / 90)
    for seconds in (0.2, 0.3, 0.9):
        times.add_join(100, seconds)
    assert times.join(100, 5.0) == pytest.approx(0.9)
    assert times.join(200, 5.0) == pytest.approx(1.8)
    assert times.join(4000, 0.1) == 0.9  # none of that size: no less than a smaller one
    assert Counter(n for n, _ in times.joins) == {90: 1, 100: 3}
