"""LoggedJoin without Spark: micro-batches by script, attempts that die anywhere, replays; the result is that of brute force."""

import tempfile
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import OtherLog, RunLogError
from headrace.progressive.grids.keys import HashPartitioning
from headrace.progressive.grids.partitioning_for import partitioning_for, unbounded_partitioning_for
from headrace.progressive.logged.join_spec import JoinSpec, TimeBound
from headrace.progressive.logged.sharding import Sharding
from headrace.progressive.policies import POLICIES
from headrace.runlog import close_finish, unfinished
from tests.support.logged_shard import Died, Shard, no_sync

__all__ = ["no_sync"]

LEFT, RIGHT = 0, 1
KEYS = pa.schema({"k": pa.int64(), "a": pa.int64()}), pa.schema({"k": pa.int32(), "b": pa.int64()})


PARTITION_POLICIES = sorted(name for name, policy in POLICIES.items() if not policy.per_tuple)


def join_spec(condition=None, schemas=KEYS, partitions=5, **options):
    condition = condition or hr.equal("k")
    partitioning, ask = partitioning_for(condition, partitions)
    return JoinSpec(condition=condition, schemas=schemas, partitioning=partitioning, ask=ask, **options)


def batch(side, keys, first):
    numbers = np.arange(first, first + len(keys))
    return pa.RecordBatch.from_arrays(
        [pa.array(keys, KEYS[side].field("k").type), pa.array(numbers)], schema=KEYS[side]
    )


def brute(left, right):
    """By key; nulls match nothing."""
    return Counter((k, a, b) for k, a in left for j, b in right if k is not None and k == j)


KEY = st.none() | st.integers(0, 4)
CHUNK = st.tuples(st.sampled_from([LEFT, RIGHT]), st.lists(KEY, max_size=8))
FATE = st.sampled_from(["fine", "dies", "undecided", "replayed", "forgets", "replayed elsewhere"])
BATCH = st.tuples(st.lists(CHUNK, max_size=4), FATE, st.integers(0, 3))


@settings(max_examples=60)
@given(st.lists(BATCH, max_size=14), st.sampled_from(PARTITION_POLICIES), st.integers(1, 12), st.integers(0, 9))
def test_oracle_every_pair_once_whatever_dies(script, policy, capacity, seed):
    rng = np.random.default_rng(seed)
    sides, got, number = ([], []), Counter(), 0
    with tempfile.TemporaryDirectory() as directory:
        shard = Shard(directory, join_spec(capacity=capacity), policy)
        for n, (chunks, fate, point) in enumerate(script):
            rows = []
            for side, keys in chunks:
                rows.append((side, batch(side, keys, number)))
                sides[side].extend(zip(keys, range(number, number + len(keys)), strict=True))
                number += len(keys)
            if fate == "dies":
                with pytest.raises(Died):
                    shard.attempt(n, rows, dies_after=point)
                    raise Died  # it had fewer results, and ended
            elif fate == "undecided":
                with pytest.raises(Died):
                    shard.attempt(n, rows, before_decision=True)
                    raise Died  # there was nothing to decide
            elif fate == "forgets":
                shard.forget()
            rng.shuffle(rows)
            out = shard.attempt(n, rows)
            if fate.startswith("replayed"):
                if fate == "replayed elsewhere":
                    shard.forget()
                rng.shuffle(rows)
                assert shard.attempt(n, rows) == out
            got += out
        last = shard.finish()
        assert shard.finish() == last
        got += last
    assert got == brute(*sides)


# -- other conditions --------------------------------------------------------------------------------------------------

BOXES = pa.schema({"x0": pa.float64(), "y0": pa.float64(), "x1": pa.float64(), "y1": pa.float64(), "a": pa.int64()})
POINTS = pa.schema({"x": pa.float64(), "y": pa.float64(), "a": pa.int64()})
NAMED = pa.schema({"k": pa.string(), "j": pa.int64(), "a": pa.int64()})


def value(rng, many):
    """Few different ones, on and between the lines of the grid, some none."""
    return rng.choice([None, float("nan"), *(i / 4 - 1 for i in range(17))], many, p=[0.03, 0.03, *([0.94 / 17] * 17)])


def boxes(rng, many, first):
    low, size = rng.integers(-4, 12, (many, 2)) / 4, rng.integers(0, 9, (many, 2)) / 4
    corners = np.concatenate([low, low + size], axis=1).astype(object)
    corners[rng.random(many) < 0.05, 2] = None
    columns = [pa.array(list(corners[:, i]), pa.float64()) for i in range(4)]
    return pa.RecordBatch.from_arrays([*columns, pa.array(np.arange(first, first + many))], schema=BOXES)


def points(rng, many, first):
    columns = [pa.array(list(value(rng, many)), pa.float64()) for _ in range(2)]
    return pa.RecordBatch.from_arrays([*columns, pa.array(np.arange(first, first + many))], schema=POINTS)


def named(rng, many, first):
    k = pa.array([None if x == 4 else f"key {x}" for x in rng.integers(0, 5, many)], pa.string())
    columns = [k, pa.array(rng.integers(0, 6, many)), pa.array(np.arange(first, first + many))]
    return pa.RecordBatch.from_arrays(columns, schema=NAMED)


def meet(l, r):
    return all(v is not None for v in (*l[:4], *r[:4])) and all(l[i] <= r[i + 2] and r[i] <= l[i + 2] for i in (0, 1))


def near(l, r, metric):
    if any(v is None for v in (*l[:2], *r[:2])):
        return False
    gaps = [abs(l[i] - r[i]) for i in (0, 1)]
    return {"euclidean": np.hypot(*gaps), "manhattan": sum(gaps), "chebyshev": max(gaps)}[metric] <= 0.5


CASES = {
    "boxes": (hr.intersects(("x0", "y0", "x1", "y1")), boxes, BOXES, meet, lambda l, r: (*l, *r)),
    **{
        metric: (
            hr.within(("x", "y"), eps=0.5, metric=metric),
            points,
            POINTS,
            lambda l, r, m=metric: near(l, r, m),
            lambda l, r: (*l, *r),
        )
        for metric in ("euclidean", "manhattan", "chebyshev")
    },
    "strings and a comparison": (
        hr.all_of(hr.equal("k"), hr.compare("j", "<", "j")),
        named,
        NAMED,
        lambda l, r: l[0] is not None and l[0] == r[0] and l[1] < r[1],
        lambda l, r: (*l, *r[1:]),
    ),
    "two keys": (
        hr.all_of(hr.equal("k"), hr.equal("j")),
        named,
        NAMED,
        lambda l, r: l[0] is not None and l[:2] == r[:2],
        lambda l, r: (*l, *r[2:]),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shards", [1, 3])
def test_oracle_conditions_in_shards(tmp_path, name, shards):
    condition, make, schema, matches, out = CASES[name]
    rng = np.random.default_rng(len(name))

    def fresh():
        partitioning, ask = unbounded_partitioning_for(
            condition, 4, 1.0 if "intersects" in repr(condition).lower() else None
        )
        return JoinSpec(condition=condition, schemas=(schema, schema), partitioning=partitioning, ask=ask, capacity=12)

    by_key = isinstance(fresh().partitioning, HashPartitioning)
    parts = [
        Shard(tmp_path / str(n), fresh(), "rrpj", **({} if by_key else {"shards": shards, "shard": n}))
        for n in range(1 if by_key else shards)
    ]
    rows, got = ([], []), Counter()
    for n in range(10):
        chunks = []
        for _ in range(rng.integers(0, 3)):
            side = int(rng.integers(0, 2))
            batch = make(rng, int(rng.integers(0, 12)), sum(map(len, rows)))
            rows[side].extend(tuple(None if v != v else v for v in r.values()) for r in batch.to_pylist())
            chunks.append((side, batch))
        for shard in parts:
            if rng.random() < 0.3:
                shard.forget()
            mine = shard.attempt(n, chunks)
            if rng.random() < 0.3:
                assert shard.attempt(n, chunks) == mine
            got += mine
    for shard in parts:
        got += shard.finish()
    wanted = Counter(out(l, r) for l in rows[0] for r in rows[1] if matches(l, r))
    assert got == wanted
    assert sum(stats.deferred for shard in parts for stats in shard.stats) > 0


def test_a_row_goes_to_the_shards_of_its_cells_and_to_no_other(tmp_path):
    condition = hr.intersects(("x0", "y0", "x1", "y1"))
    partitioning, _ = unbounded_partitioning_for(condition, 4, 1.0)
    made = JoinSpec(condition=condition, schemas=(BOXES, BOXES), partitioning=partitioning)
    batch = boxes(np.random.default_rng(1), 50, 0)
    rows, shards = Sharding(made.partitioning, 3).shards_of(LEFT, batch)
    for shard in range(3):
        kept = Sharding(made.partitioning, 3, shard).assign(LEFT, batch)
        assert set(kept.rows["a"].to_pylist()) == set(rows[shards == shard].tolist())


# -- event time --------------------------------------------------------------------------------------------------------

TIMED = pa.schema({"k": pa.int64(), "t": pa.timestamp("us", "UTC"), "a": pa.int64()})
SECOND = 10**6


def timed(rng, many, first, now):
    times = [None if rng.random() < 0.03 else int((now + rng.integers(-8, 9)) * SECOND) for _ in range(many)]
    columns = [pa.array(rng.integers(0, 3, many)), pa.array(times, TIMED.field("t").type)]
    return pa.RecordBatch.from_arrays([*columns, pa.array(np.arange(first, first + many))], schema=TIMED)


@pytest.mark.parametrize("capacity", [20, 10_000])
@pytest.mark.parametrize("seed", range(3))
def test_oracle_rows_expire_and_late_ones_are_dropped(tmp_path, seed, capacity):
    rng = np.random.default_rng(seed)
    bound = TimeBound(("t", "t"), 10 * SECOND, (5 * SECOND, 6 * SECOND))
    shard = Shard(tmp_path, join_spec(schemas=(TIMED, TIMED), bound=bound, capacity=capacity), idle=5.0)
    kept, latest, got, late, first = ([], []), [None, None], Counter(), 0, 0
    for n in range(60):
        mark = None if None in latest else min(latest[0] - 5 * SECOND, latest[1] - 6 * SECOND)
        chunks = [(side, timed(rng, 6, first + 6 * side, 3 * n)) for side in (LEFT, RIGHT)] if n % 5 else []
        first += 12
        for side, batch in chunks:
            columns = batch["k"], batch["t"].cast(pa.int64()), batch["a"]
            for k, t, a in zip(*(column.to_pylist() for column in columns), strict=True):
                if t is None:
                    continue
                if mark is not None and t < mark:
                    late += 1
                    continue
                kept[side].append((k, t, a))
                latest[side] = t if latest[side] is None else max(latest[side], t)
        if n % 7 == 3:
            shard.forget()
        out = shard.attempt(n, chunks)
        if n % 4 == 1:
            assert shard.attempt(n, chunks) == out
            shard.stats.pop()
        got += out
    got += shard.finish()
    wanted = Counter((l[2], r[2]) for l in kept[0] for r in kept[1] if l[0] == r[0] and abs(l[1] - r[1]) <= 10 * SECOND)
    assert Counter((row[2], row[4]) for row in got.elements()) == wanted
    assert sum(s.late for s in shard.stats) == late > 0
    # the log keeps little more than the rows that may still match
    state = shard.log.describe()["state"]
    assert state["left"]["rows"] + state["right"]["rows"] < 0.5 * sum(map(len, kept))
    assert state["left"]["files"] + state["right"]["files"] < 60


# -- the log -----------------------------------------------------------------------------------------------------------


def test_the_log_has_few_files_and_memory_is_as_it_says(tmp_path):
    shard = Shard(tmp_path, join_spec(), memory=1 << 18)
    rng, sides, got = np.random.default_rng(3), ([], []), Counter()
    for n in range(150):
        keys = rng.integers(0, 50, 5).tolist()
        sides[n % 2].extend(zip(keys, range(5 * n, 5 * n + 5), strict=True))
        got += shard.attempt(n, [(n % 2, batch(n % 2, keys, 5 * n))])
    assert got == brute(*sides)  # all was in memory
    assert shard.log.describe()["state"]["left"]["files"] < 30
    shard.forget()
    assert shard.attempt(150, [(LEFT, batch(LEFT, [1], 750))]) == brute([(1, 750)], sides[RIGHT])


def test_contract_memory_is_bounded_and_can_be_made_smaller(tmp_path):
    shard = Shard(tmp_path, join_spec(), memory=1 << 20)
    rng, sides = np.random.default_rng(3), (Counter(), Counter())
    out = 0
    for n in range(12):
        if n == 6:
            shard.memory = 1 << 18
            shard.forget()
        keys = rng.integers(0, 200_000, 20_000)
        sides[n % 2].update(keys.tolist())
        out += shard.attempt(n, [(n % 2, batch(n % 2, keys, n))]).total()
        held = sum(shard.stats[-1].memory.values())
        assert held <= shard.memory
    assert shard.stats[-1].waiting > 0
    out += shard.finish().total()
    assert out == sum(many * sides[RIGHT][k] for k, many in sides[LEFT].items())


def test_finish_once_and_go_on(tmp_path):
    shard = Shard(tmp_path, join_spec(capacity=2), idle=0.0)
    rows = [(side, batch(side, [1, 1, 2, 2], 4 * n)) for n, side in enumerate([LEFT, RIGHT] * 3)]
    got = shard.attempt(0, rows)
    left = shard.finish()
    assert left
    with shard.log.shard(0) as held:
        assert unfinished(held) == 0
    with pytest.raises(RunLogError, match="was interrupted after batch 0"):
        shard.attempt(1, [])
    with shard.log.shard(0) as held:
        close_finish(held)
        assert unfinished(held) == -1
    shard.forget()
    got += left + shard.attempt(1, [(LEFT, batch(LEFT, [2], 100))]) + shard.finish()
    wanted = [
        [(k, 4 * n + i) for n in range(6) if n % 2 == side for i, k in enumerate([1, 1, 2, 2])] for side in (0, 1)
    ]
    assert got == brute([*wanted[0], (2, 100)], wanted[1])


def test_another_source_and_another_join_are_refused(tmp_path):
    shard = Shard(tmp_path, join_spec())
    shard.attempt(0, [(LEFT, batch(LEFT, [1, 2], 0))])
    with pytest.raises(RunLogError, match="batch 0 had 2 rows of the left side in shard 0, and now it has 1"):
        shard.attempt(0, [(LEFT, batch(LEFT, [1], 0))])
    other = join_spec(schemas=(KEYS[0].set(1, pa.field("a", pa.string())), KEYS[1]))
    with pytest.raises(OtherLog, match="columns k int64, a int64, and they are now k int64, a string"):
        Shard(tmp_path, other).attempt(1, [])
    with pytest.raises(OtherLog, match="with 5 partitions, and partitions=6 is asked for"):
        Shard(tmp_path, join_spec(partitions=6)).attempt(1, [])


def test_an_attempt_that_comes_after_a_later_decision_is_refused_and_changes_nothing(tmp_path):
    shard = Shard(tmp_path, join_spec())
    rows = {n: [(LEFT, batch(LEFT, [1, 2], 10 * n)), (RIGHT, batch(RIGHT, [2, 1], 10 * n))] for n in range(30)}
    for n in range(30):  # so many that decisions are compacted
        shard.attempt(n, rows[n])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.arrow")}
    shard.forget()
    for late in (0, 15, 28):
        with pytest.raises(
            RunLogError, match=f"batch 29 of .* is decided, so an attempt at batch {late} comes too late"
        ):
            shard.attempt(late, rows[late])
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.arrow")} == before
