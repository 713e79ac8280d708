"""Outer, semi and anti joins across micro-batches, without Spark: attempts that die, replays, restarts, little memory."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import BadInput, OtherLog, RunLogError
from headrace.progressive.grids.partitioning_for import partitioning_for, unbounded_partitioning_for
from headrace.progressive.logged.join_spec import JoinSpec, TimeBound
from headrace.progressive.logged.outer_output import numbered_schemas
from headrace.runlog import close_finish
from tests.support.logged_shard import Died, Shard, no_sync

__all__ = ["no_sync"]
LEFT, RIGHT = 0, 1
TIME = pa.timestamp("us", "UTC")
SCHEMAS = (
    pa.schema({"k": pa.int64(), "t": TIME, "a": pa.int64()}),
    pa.schema({"k": pa.int64(), "u": TIME, "b": pa.int64()}),
)
OUTER = ("left", "right", "full", "semi", "anti")
WITHIN = 40


def spec(how, within=None, condition=None, **options):
    condition = condition or hr.equal("k")
    partitioning, ask = partitioning_for(condition, 5)
    bound = None if within is None else TimeBound(("t", "u"), within, (10, 10))
    return JoinSpec(
        condition=condition, schemas=numbered_schemas(SCHEMAS, how), partitioning=partitioning, ask=ask, bound=bound, how=how,
        **options,
    )  # fmt: skip


def rows(rng, side, many, first, now):
    """Rows around a time: few keys, so that a row has no partner, one or several; nulls in keys and times; some come late."""
    keys = [None if rng.random() < 0.1 else int(k) for k in rng.integers(0, 40, many)]
    times = [None if rng.random() < 0.05 else int(t) for t in now + rng.integers(-12, 30, many)]
    columns = [pa.array(keys, pa.int64()), pa.array(times, TIME), pa.array(range(first, first + many))]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMAS[side])


def tuples(batches):
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def oracle(how, lefts, rights, within):
    """Brute force over rows that were not late."""

    def meet(a, b):
        near = within is None or (None not in (a[1], b[1]) and abs((a[1] - b[1]).total_seconds() * 1e6) <= within)
        return a[0] is not None and a[0] == b[0] and near

    found = Counter((*a, *b[1:]) for a in lefts for b in rights if meet(a, b))
    alone = [a for a in lefts if not any(meet(a, b) for b in rights)]
    if how == "anti":
        return Counter(alone)
    if how == "semi":
        return Counter(lefts) - Counter(alone)
    if how in ("left", "full"):
        found += Counter((*a, None, None) for a in alone)
    if how in ("right", "full"):
        found += Counter((b[0], None, None, *b[1:]) for b in rights if not any(meet(a, b) for a in lefts))
    return found


class InTime:
    """The rows that are not late, by the watermark of all rows that came before a micro-batch."""

    def __init__(self, within):
        self.within, self.latest = within, [None, None]
        self.kept = ([], [])

    def add(self, batches):
        known = self.within is not None and None not in self.latest
        mark = min(self.latest) - 10 if known else None
        for side, batch in batches:
            micros = batch.column(1).cast(pa.int64()).to_pylist()
            there = [
                row for row, t in zip(tuples([batch]), micros, strict=True) if t is None or mark is None or t >= mark
            ]
            self.kept[side].extend(there)
        for side, batch in batches:
            # A row without a key is in no partition, and says nothing of the time.
            seen = [
                t
                for k, t in zip(batch.column(0).to_pylist(), batch.column(1).cast(pa.int64()).to_pylist(), strict=True)
                if k is not None and t is not None
            ]
            self.latest[side] = max([*seen, *([] if self.latest[side] is None else [self.latest[side]])], default=None)


@pytest.mark.parametrize("how", OUTER)
@pytest.mark.parametrize(("within", "capacity"), [(None, 60), (WITHIN, None), (WITHIN, 60)])
def test_oracle_rows_leave_alone_once_whatever_dies(tmp_path, how, within, capacity):
    rng = np.random.default_rng([len(how), capacity or 0])
    shard, expected, got = Shard(tmp_path, spec(how, within, capacity=capacity)), InTime(within), Counter()
    early = 0
    for number in range(11):
        batches = [
            (side, rows(rng, side, int(rng.integers(1, 60)), 1000 * number, 20 * number)) for side in (LEFT, RIGHT)
        ]
        batches = [] if number % 5 == 4 else batches
        fate = rng.integers(0, 4)
        if fate == 1:
            with pytest.raises(Died):
                shard.attempt(number, batches, dies_after=0 if rng.random() < 0.5 else 2)
                raise Died
            shard.forget()
        elif fate == 2 and batches:
            with pytest.raises(Died):
                shard.attempt(number, batches, before_decision=True)
        first = shard.attempt(number, batches)
        if fate == 3:
            shard.forget()
            assert shard.attempt(number, [(side, batch) for side, batch in reversed(batches)]) == first
        got += first
        early += sum(first.values())
        expected.add(batches)
    last = shard.finish()
    assert shard.finish() == last
    assert got + last == oracle(how, *expected.kept, within)
    if within is not None and capacity is None and how != "semi":
        assert early > sum(last.values())  # rows leave as time goes on, and not at the end
    with shard.log.shard(0) as held:
        close_finish(held)
    assert shard.attempt(11, []) == Counter()
    if how == "semi":
        return  # no row has left alone
    with pytest.raises(RunLogError, match=r"hr\.finish has ended this join"):
        shard.attempt(12, [(LEFT, rows(rng, LEFT, 5, 0, 300))])


def test_a_condition_beside_the_key_decides_who_is_alone(tmp_path):
    shard = Shard(tmp_path, spec("full", condition=hr.all_of(hr.equal("k"), hr.compare("a", "<", "b"))))
    left = pa.RecordBatch.from_pylist([{"k": 1, "a": 5}, {"k": 1, "a": 7}], schema=SCHEMAS[LEFT])
    right = pa.RecordBatch.from_pylist([{"k": 1, "b": 6}, {"k": 1, "b": 3}], schema=SCHEMAS[RIGHT])
    got = shard.attempt(0, [(LEFT, left), (RIGHT, right)])
    assert got == Counter({(1, None, 5, None, 6): 1})
    assert shard.finish() == Counter({(1, None, 7, None, None): 1, (1, None, None, None, 3): 1})


def test_what_cannot_hold_is_refused(tmp_path):
    near = hr.within(("a",), right=("b",), eps=1.0)
    partitioning, ask = unbounded_partitioning_for(near, 5, None)
    with pytest.raises(BadInput, match="needs an equality in the condition"):
        JoinSpec(condition=near, schemas=SCHEMAS, partitioning=partitioning, ask=ask, how="left")
    other = (SCHEMAS[LEFT], SCHEMAS[RIGHT].set(0, pa.field("k", pa.int32())))
    partitioning, ask = partitioning_for(hr.equal("k"), 5)
    with pytest.raises(BadInput, match="cast one of them"):
        JoinSpec(
            condition=hr.equal("k"),
            schemas=numbered_schemas(other, "full"),
            partitioning=partitioning,
            ask=ask,
            how="full",
        )
    batch = rows(np.random.default_rng(1), LEFT, 20, 0, 0)
    Shard(tmp_path, spec("left")).attempt(0, [(LEFT, batch)])
    with pytest.raises(OtherLog, match="how='left', and how='anti' is asked for"):
        Shard(tmp_path, spec("anti")).attempt(1, [(LEFT, batch)])
