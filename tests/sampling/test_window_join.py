"""WindowJoin: against brute force and DuckDB, in any division into batches, on from snapshots, and what it refuses."""

from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import BadInput
from headrace.sampling import WindowJoin
from headrace.sampling.snapshot import SNAPSHOT
from tests.support.sample_streams import words

METHODS = ["fair", "expire", "winres", "reservoir", "fifo", "all"]
LATE = 10


def rows_of(side, n, seed, keys=6, nulls=True):
    """Rows with a number, a key that is often null, a point, a box and a time that may go back."""
    rng = np.random.default_rng([seed, side])
    key = rng.integers(0, keys, n)
    times = np.cumsum(rng.integers(0, 5, n)) + rng.integers(-8, 1, n)
    x, y = rng.random(n) * 10, rng.random(n) * 10
    missing = (rng.random(n) < 0.1) & nulls
    name = ("left", "right")[side]
    return pa.record_batch(
        {
            name: np.arange(n),
            "k": pa.array(key, mask=missing),
            "t": pa.array(np.maximum(0, times), pa.timestamp("ms")),
            "x": x,
            "y": y,
            "x1": x + rng.random(n),
            "y1": y + rng.random(n),
        }
    )


def script(left, right, cuts):
    """(side, batch) in turns, of the sizes in `cuts`, until both sides are at their end."""
    out, at, i = [], [0, 0], 0
    while at[0] < left.num_rows or at[1] < right.num_rows:
        side, size = i % 2, cuts[i % len(cuts)]
        batch = (left, right)[side].slice(at[side], size)
        at[side] += size
        i += 1
        if batch.num_rows:
            out.append((("left", "right")[side], batch))
    return out


def pairs(op, inserts):
    found = Counter()
    for side, batch in inserts:
        for out in op.insert(side, batch):
            found.update(zip(out["left"].to_pylist(), out["right"].to_pylist(), strict=True))
    assert list(op.finish()) == []
    assert op.stats.results == found.total()
    return found


def matches(condition, left, right):
    """Whether a left and a right row satisfy a condition."""
    if condition == "equal":
        return left["k"] is not None and left["k"] == right["k"]
    if condition == "within":
        return np.hypot(left["x"] - right["x"], left["y"] - right["y"]) <= 1.5
    if condition == "intersects":
        apart = left["x"] > right["x1"] or right["x"] > left["x1"] or left["y"] > right["y1"] or right["y"] > left["y1"]
        return not apart
    return matches("equal", left, right) and left["x"] < right["x"]


CONDITIONS = {
    "equal": hr.equal("k"),
    "within": hr.within(("x", "y"), eps=1.5),
    "intersects": hr.intersects(("x", "y", "x1", "y1")),
    "all_of": hr.all_of(hr.equal("k"), hr.compare("x", "<", "x")),
}


def brute_force(inserts, window, condition="equal", size=None, seed=0):
    """Pairs of a join that keeps, of each window, the `size` live tuples with the smallest tags; or all of them."""
    seen = [[], []]  # (time, row) of each side, in the order of arrival, without late ones
    now, found = -(10**9), Counter()
    tags = [words(seed, 2_000, stream_=side) for side in (0, 1)]
    by_time = window != ROWS
    for side, batch in inserts:
        number = ("left", "right").index(side)
        for row in batch.to_pylist():
            time = round(row["t"].timestamp() * 1000)
            now = max(now, time)
            if by_time and now - time > LATE:
                continue
            other = seen[1 - number]
            kept = [
                i
                for i, (then, _) in enumerate(other)
                if (now - LATE - then < LENGTH if by_time else i >= len(other) - window.size)
            ]
            if size is not None:
                kept = sorted(kept, key=lambda i: tags[1 - number][i])[:size]
            for i in kept:
                then, partner = other[i]
                left, right = (row, partner) if number == 0 else (partner, row)
                if (not by_time or abs(time - then) < LENGTH) and matches(condition, left, right):
                    found[left["left"], right["right"]] += 1
            seen[number].append((time, row))
    return found


ROWS, LENGTH = hr.rows(25), 50
TIME = hr.time("50ms", on="t", late="10ms")
L, R = rows_of(0, 150, 1), rows_of(1, 170, 1)


@pytest.mark.parametrize("window", [ROWS, TIME], ids=["rows", "time"])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_oracle_the_exact_join(condition, window):
    inserts = script(L, R, [1, 13, 40, 7])
    expected = brute_force(inserts, window, condition)
    assert expected.total() > 5
    assert pairs(WindowJoin(CONDITIONS[condition], window=window, method="all"), inserts) == expected


@pytest.mark.parametrize("method", ["fair", "expire", "winres"])
def test_oracle_a_sample_as_large_as_the_window_is_exact(method):
    inserts = script(L, R, [5, 9])
    op = WindowJoin(hr.equal("k"), window=ROWS, sample=1.0, method=method, seed=3)
    assert pairs(op, inserts) == brute_force(inserts, ROWS)


@pytest.mark.parametrize("method", ["fair", "expire", "winres"])
def test_oracle_a_sample_with_room_for_all_of_a_window_by_time_is_exact(method):
    inserts = script(L, R, [5, 9])
    op = WindowJoin(hr.equal("k"), window=TIME, size=200, method=method, seed=3)
    assert pairs(op, inserts) == brute_force(inserts, TIME)


@given(
    cuts=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    size=st.integers(1, 20),
    seed=st.integers(0, 50),
    by_time=st.booleans(),
    sizes=st.tuples(st.integers(0, 60), st.integers(0, 60)),
)
def test_oracle_the_fair_join_of_any_batches(cuts, size, seed, by_time, sizes):
    """Empty sides, ties, equal times, nulls, and times that go back: what the k smallest tags of the live tuples give."""
    window = TIME if by_time else ROWS
    inserts = script(rows_of(0, sizes[0], seed, keys=3), rows_of(1, sizes[1], seed, keys=3), cuts)
    op = WindowJoin(hr.equal("k"), window=window, size=size, seed=seed)
    assert pairs(op, inserts) == brute_force(inserts, window, size=size, seed=seed)


@pytest.mark.parametrize("window", [ROWS, TIME], ids=["rows", "time"])
@pytest.mark.parametrize("method", METHODS)
def test_contract_batches_give_what_single_tuples_give(method, window):
    """The tuples of a batch meet the samples that they would meet one by one; sides take turns in the same way."""
    size = {} if method == "all" else {"size": 8}
    found = []
    for split in (False, True):
        inserts = script(L, R, [7, 12, 30])
        if split:
            inserts = [(side, batch.slice(i, 1)) for side, batch in inserts for i in range(batch.num_rows)]
        found.append(pairs(WindowJoin(hr.equal("k"), window=window, method=method, seed=2, **size), inserts))
    assert found[0] == found[1] and found[0].total() > 5


@pytest.mark.parametrize("window", [ROWS, TIME], ids=["rows", "time"])
@pytest.mark.parametrize("method", METHODS)
def test_contract_a_snapshot_after_every_batch_goes_on_the_same(method, window):
    arguments = {"window": window, "method": method, "seed": 2} | ({} if method == "all" else {"size": 8})
    if method in ("fair", "all"):
        arguments |= {"estimate": "y_right", "group_by": "k"}
    whole, part = WindowJoin(hr.equal("k"), **arguments), WindowJoin(hr.equal("k"), **arguments)
    for side, batch in script(L, R, [7, 12, 30, 1]):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SNAPSHOT) as writer:
            for piece in part.snapshot():
                writer.write_batch(piece)
        part = WindowJoin(hr.equal("k"), **arguments)
        part.restore(pa.ipc.open_stream(sink.getvalue()))
        expected = pairs_of(whole.insert(side, batch))
        assert pairs_of(part.insert(side, batch)) == expected
        assert part.stats.tuples_in == whole.stats.tuples_in and part.stats.late == whole.stats.late
        if method in ("fair", "all"):
            asked = {"count": True, "avg": "y_right", "group_by": "k"}
            assert part.estimate(**asked) == whole.estimate(**asked)
    assert part.stats.results == whole.stats.results > 0


def pairs_of(results):
    return Counter(p for out in results for p in zip(out["left"].to_pylist(), out["right"].to_pylist(), strict=True))


def test_oracle_duckdb_joins_the_same_interval():
    """With everything kept, the join by time is the interval join, whatever the order of arrival within `late`."""
    inserts = script(L, R, [20])
    op = WindowJoin(hr.equal("k"), window=hr.time("50ms", on="t", late="1h"), method="all")
    query = """select l."left", r."right" from l join r on l.k = r.k and abs(epoch_ms(l.t) - epoch_ms(r.t)) < 50"""
    connection = duckdb.connect()
    connection.register("l", pa.table(L))
    connection.register("r", pa.table(R))
    expected = Counter(connection.sql(query).fetchall())
    assert pairs(op, inserts) == expected and expected


@pytest.mark.parametrize("method", METHODS)
def test_one_giant_key(method):
    n = 400
    batch = {side: pa.record_batch({side: np.arange(n), "k": np.zeros(n, np.int64)}) for side in ("left", "right")}
    size = {} if method == "all" else {"size": 20}
    op = WindowJoin(hr.equal("k"), window=hr.rows(100), method=method, seed=1, **size)
    found = pairs(op, [("left", batch["left"]), ("right", batch["right"])])
    kept = {left for left, _ in found}
    live = {left for left in kept if left >= n - 100}
    assert kept == live  # expired tuples of a reservoir join nothing
    assert found.total() == len(live) * n
    assert len(live) == {"all": 100, "fair": 20, "expire": 20, "winres": 20}.get(method, len(live))


def test_only_nulls_and_empty_batches():
    op = WindowJoin(hr.equal("k"), window=ROWS, size=5)
    empty = pa.record_batch({"left": pa.array([], pa.int64()), "k": pa.array([], pa.int64())})
    nulls = pa.record_batch({"right": [1, 2], "k": pa.array([None, None], pa.int64())})
    assert pairs(op, [("left", empty), ("right", nulls), ("left", empty)]) == Counter()
    assert op.stats.skipped == [0, 2] and op.stats.tuples_in == [0, 2]


def test_results_that_were_not_read_come_with_the_next():
    op = WindowJoin(hr.equal("k"), window=ROWS, method="all")
    left = pa.record_batch({"left": np.arange(20), "k": np.zeros(20, np.int64)})
    right = pa.record_batch({"right": np.arange(20), "k": np.zeros(20, np.int64)})
    list(op.insert("left", left))
    op.insert("right", right)
    with pytest.raises(hr.BadInput, match="were not read to the end; iterate over them before snapshot"):
        op.snapshot()
    found = sum(out.num_rows for out in op.finish())
    assert found == 400
    with pytest.raises(hr.BadInput, match="has been finished"):
        op.insert("left", left)


def test_samples_by_memory_stay_in_it():
    rng = np.random.default_rng(1)
    left, right = (
        pa.record_batch({name: np.arange(20_000), "k": rng.integers(0, 500, 20_000), "s": ["some text"] * 20_000})
        for name in ("left", "right")
    )
    op = WindowJoin(hr.equal("k"), window=hr.rows(10_000), memory="256KiB", estimate="left", suffix="_r")
    found = pairs(op, script(left, right, [500]))
    assert found.total() > 1000
    assert op.stats.memory_peak <= op.stats.memory_limit == 256 * 1024
    assert sum(op.stats.memory.values()) <= op.stats.memory_peak and min(op.stats.kept) > 100
    exact = WindowJoin(hr.equal("k"), window=hr.rows(10_000), memory="256KiB", method="all", suffix="_r")
    with pytest.raises(hr.MemoryRefused):
        pairs(exact, script(left, right, [500]))
    with pytest.raises(hr.BadInput, match="an error stopped this join"):
        exact.insert("left", left)
    exact.restore(
        WindowJoin(hr.equal("k"), window=hr.rows(10_000), memory="256KiB", method="all", suffix="_r").snapshot()
    )
    assert pairs(exact, [("left", left.slice(0, 100)), ("right", right.slice(0, 100))]).total() > 0


@pytest.mark.parametrize("window", [ROWS, TIME], ids=["rows", "time"])
def test_contract_a_batch_that_is_taken_in_by_parts_gives_the_same_results(window):
    """With so little memory a batch of 170 rows is taken in by parts of 64."""
    found = []
    for cuts in ([200], [64, 64, 42]):
        inserts = [
            (side, batch.slice(at, size))
            for side, batch in (("left", L), ("right", R))
            for at, size in zip(np.cumsum([0, *cuts]).tolist(), cuts, strict=False)
        ]
        op = WindowJoin(hr.equal("k"), window=window, memory="64KiB", method="all")
        found.append(pairs(op, inserts))
        assert op.stats.tuples_in == [150, 170]
    assert found[0] == found[1] == brute_force(inserts, window)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"window": hr.rows(10), "size": 11}, "size=11 is larger than the window of 10 rows"),
        ({"window": hr.rows(10), "sample": 0}, "sample=0 is not a part of a window"),
        ({"window": hr.rows(10), "sample": 1.5}, "sample=1.5 is not a part of a window"),
        ({"window": hr.rows(10)}, "one of sample=, size= and memory=, and none was given"),
        ({"window": hr.rows(10), "size": 3, "sample": 0.1}, "and sample and size was given"),
        ({"window": TIME, "sample": 0.1}, "give size= or memory= with a window by time"),
        ({"window": hr.rows(10), "memory": -5}, "memory=-5 must be at least 1 byte"),
        ({"window": hr.rows(10), "size": 5, "method": "chain"}, "method='chain' would repeat pairs"),
        ({"window": hr.rows(10), "size": 5, "method": "fare"}, "did you mean 'fair'"),
        ({"window": hr.rows(10), "size": 5, "method": "all"}, "method='all' keeps everything"),
        ({"window": 10, "size": 5}, "window=10 is not a window"),
        ({"window": hr.rows(10), "size": 5, "method": "winres", "estimate": True}, "needs a simple random sample"),
        ({"window": TIME, "size": 5, "method": "expire", "estimate": True}, "is not in a window by time"),
        ({"window": hr.rows(10), "size": 5, "group_by": "k"}, "group_by='k' without estimate="),
        ({"window": hr.rows(10), "size": 5, "estimate": True, "groups": 0}, "groups=0 is not a number of groups"),
        ({"window": hr.rows(10), "size": 5, "estimate": [3]}, "names no column"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, says):
    with pytest.raises(hr.BadInput, match=says):
        WindowJoin(hr.equal("k"), **arguments)


def test_too_little_memory_is_refused_at_the_call():
    with pytest.raises(hr.MemoryRefused, match="memory=1000 is too small for two windows; give at least 32KiB"):
        WindowJoin(hr.equal("k"), window=hr.rows(10), memory=1000)


def test_bad_batches_are_refused_by_name_and_change_nothing():
    op = WindowJoin(hr.equal("k"), window=TIME, size=5, estimate="v", group_by="k")
    left = pa.record_batch({"k": [1], "t": pa.array([1], pa.timestamp("ms")), "v": ["text"]})
    with pytest.raises(hr.BadInput, match="side='top'"):
        op.insert("top", left)
    with pytest.raises(hr.BadInput, match="the left side has no column 't', which the window is on"):
        op.insert("left", left.drop_columns(["t"]))
    with pytest.raises(hr.BadInput, match="no column 'k'"):
        op.insert("left", left.drop_columns(["k"]))
    list(op.insert("left", left))
    with pytest.raises(hr.BadInput, match=r"has type timestamp\[us\], and that of the other side timestamp\[ms\]"):
        op.insert("right", pa.record_batch({"k": [1], "t": pa.array([1], pa.timestamp("us"))}))
    with pytest.raises(hr.UnsupportedType, match="'v' has type string, which cannot be summed"):
        op.insert("right", left.drop_columns(["v"]))
    with pytest.raises(hr.BadInput, match="Table is no batch of the right side"):
        op.insert("right", pa.table({"k": [1]}))
    assert op.stats.tuples_in == [1, 0]


def test_contract_a_reader_that_stops_early_loses_nothing():
    """What one call did not read comes with the next, though the iterator of the first is gone."""
    inserts = script(L, R, [40])
    op, found = WindowJoin(hr.equal("k"), window=hr.rows(100), method="all"), Counter()
    for side, batch in inserts:
        for out in op.insert(side, batch):
            found += pairs_of([out])
            break
    found += pairs_of(op.finish())
    assert found == pairs(WindowJoin(hr.equal("k"), window=hr.rows(100), method="all"), inserts)


@pytest.mark.parametrize("method", METHODS)
def test_counting_is_joining_without_the_results(method):
    """`count` says how many results each row has, and leaves the samples that `insert` leaves."""
    size = {} if method == "all" else {"size": 12}
    made, counted = (WindowJoin(hr.equal("k"), window=ROWS, method=method, seed=4, **size) for _ in range(2))
    for side, batch in script(L, R, [7, 30]):
        found = Counter()
        for out in made.insert(side, batch):
            found.update(out[side].to_pylist())
        assert counted.count(side, batch).tolist() == [found[row] for row in batch[side].to_pylist()]
    assert made.stats.results == counted.stats.results > 50
    assert list(made.snapshot()) == list(counted.snapshot())


@pytest.mark.parametrize(
    ("condition", "arguments"),
    [
        (hr.all_of(hr.equal("k"), hr.compare("x", "<", "x")), {"window": ROWS}),
        (hr.within(("x", "y"), eps=1.5), {"window": ROWS}),
        (hr.equal("k"), {"window": TIME}),
        (hr.equal("k"), {"window": ROWS, "estimate": True}),
    ],
    ids=["tested", "grid", "time", "estimate"],
)
def test_counting_where_pairs_must_be_looked_at_is_refused(condition, arguments):
    op = WindowJoin(condition, size=5, **arguments)
    with pytest.raises(BadInput, match="use insert"):
        op.count("left", L)
    assert op.stats.tuples_in == [0, 0]
