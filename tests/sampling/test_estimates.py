"""Estimates: what their intervals cover, that they are unbiased, exact where everything is kept, and what is refused."""

import math

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from benchmarks.sampling.coverage import DATA, SIZE, WINDOWS, batches, coverage, run
from headrace.sampling import Expire, FairWindow, Reservoir, WindowJoin, WinRes

BY_TIME = hr.time("600ms", on="t", late="400ms")


def check(kind, window, runs, **size):
    """Nominal 95% intervals: within what a binomial variable reaches once in some thousand times; and no bias."""
    found = coverage(kind, window, runs, n=1200, step=400, **size)
    for quantity, part in found["coverage"].items():
        assert abs(part - 0.95) < 3.3 * math.sqrt(0.95 * 0.05 / runs) + 0.01, (quantity, found["coverage"])
    unbiased(found)


def unbiased(found):
    errors = np.array(found["errors"])
    assert abs(errors.mean()) < 4 * errors.std() / math.sqrt(errors.size)


@pytest.mark.parametrize("kind", DATA)
def test_intervals_cover_what_they_say_at_three_times_overload(kind):
    check(kind, hr.rows(600), 60, size=200)


def test_intervals_of_expire():
    check("zipf", hr.rows(600), 60, size=200, method="expire")


def test_intervals_in_windows_by_time():
    check("zipf", BY_TIME, 60, size=200)


@pytest.mark.soak
@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize("window", WINDOWS)
def test_nominal_intervals_cover_94_to_96_of_a_hundred(kind, window):
    # Of 1,000 windows a part differs by 0.7% from its mean by chance alone; of 4,000, by half of that.
    found = coverage(kind, WINDOWS[window], 4000, size=SIZE)
    for quantity, part in found["coverage"].items():
        assert 0.94 <= part <= 0.96, (quantity, found["coverage"])
    unbiased(found)


# -- exactness and groups --------------------------------------------------------------------------------------------------


def joined(left, right, window, step):
    """The pairs of the exact join whose earlier tuple is live at the end, as (left row, right row)."""
    out, came = [], [0, 0]
    sides = [left.to_pylist(), right.to_pylist()]
    for at in range(0, len(sides[0]), step):
        for number in (0, 1):
            for i in range(at, min(at + step, len(sides[number]))):
                n = came[1 - number]
                live = range(max(0, n - window), n)
                out += [(number, i, j) for j in live if sides[number][i]["k"] == sides[1 - number][j]["k"]]
                came[number] += 1
    ends = [len(side) - window for side in sides]
    return [
        (sides[0][i], sides[1][j]) if number == 0 else (sides[0][j], sides[1][i])
        for number, i, j in out
        if j >= ends[1 - number]
    ]


@pytest.mark.parametrize("method", ["all", "fair", "expire"])
def test_oracle_with_everything_kept_estimates_are_exact(method):
    left, right = batches("zipf", 200, 4)
    size = {} if method == "all" else {"sample": 1.0}
    op = WindowJoin(hr.equal("k"), window=hr.rows(60), method=method, estimate=["v", "w"], group_by="g", **size)
    run(op, left, right, 17)
    pairs = joined(left, right, 60, 17)
    for row in op.estimate(count=True, sum="w", avg="v", group_by="g").to_pylist():
        of_group = [(a, b) for a, b in pairs if a["g"] == row["g"]]
        truth = {
            "count": len(of_group),
            "sum(w)": sum(b["w"] for _, b in of_group),
            "avg(v)": np.mean([a["v"] for a, _ in of_group]),
        }[row["quantity"]]
        assert row["estimate"] == pytest.approx(truth) and row["low"] == pytest.approx(row["high"])
        assert row["rows"] == row["kept"] == 120
    [total] = op.estimate(count=True).to_pylist()
    assert total["estimate"] == len(pairs)


def test_groups_of_either_side_are_estimated_and_those_beyond_the_most_together():
    left, right = batches("uniform", 600, 1)
    arguments = {"window": hr.rows(300), "estimate": True, "group_by": "k"}
    exact = run(WindowJoin(hr.equal("k"), method="all", **arguments), left, right, 50)
    truth = {row["k"]: row["estimate"] for row in exact.estimate(count=True, group_by="k").to_pylist()}
    found = run(WindowJoin(hr.equal("k"), size=150, **arguments, groups=30), left, right, 50)
    table = found.estimate(count=True, group_by="k").to_pylist()
    assert len(truth) == 40 and len(table) == 31 and [row["other"] for row in table] == [False] * 30 + [True]
    named = [row for row in table if not row["other"]]
    assert sum(row["low"] <= truth[row["k"]] <= row["high"] for row in named) >= 24
    others = sum(truth.values()) - sum(truth[row["k"]] for row in named)
    assert table[-1]["low"] <= others <= table[-1]["high"]
    [total] = found.estimate(count=True).to_pylist()
    assert sum(row["estimate"] for row in table) == pytest.approx(total["estimate"])


def test_numbers_of_groups_that_have_left_the_window_are_used_again():
    op = WindowJoin(hr.equal("k"), window=hr.rows(10), size=5, estimate=True, group_by="k", groups=3)
    for key in range(50):
        batch = pa.record_batch({"k": np.full(10, key)})
        for side in ("left", "right"):
            assert sum(out.num_rows for out in op.insert(side, batch)) == (50 if side == "right" else 0)
        rows = op.estimate(count=True, group_by="k").to_pylist()
        assert key in [row["k"] for row in rows] and not any(row["other"] for row in rows)


def test_nulls_count_for_nothing_in_sums_and_are_a_group():
    op = WindowJoin(hr.equal("k"), window=hr.rows(10), method="all", estimate="v", group_by="g")
    list(op.insert("left", pa.record_batch({"k": [1, 1, 1], "v": [4.0, None, 8.0], "g": [None, None, "b"]})))
    list(op.insert("right", pa.record_batch({"k": [1]})))
    rows = op.estimate(count=True, sum="v", avg="v", group_by="g").to_pylist()
    assert {(row["g"], row["quantity"]): row["estimate"] for row in rows} == {
        (None, "count"): 2.0,
        (None, "sum(v)"): 4.0,
        (None, "avg(v)"): 4.0,
        ("b", "count"): 1.0,
        ("b", "sum(v)"): 8.0,
        ("b", "avg(v)"): 8.0,
    }


def test_one_tuple_of_many_says_nothing_about_its_error():
    op = WindowJoin(hr.equal("k"), window=hr.rows(10), size=1, estimate=True)
    for side in ("left", "right"):
        list(op.insert(side, pa.record_batch({"k": [1] * 10})))
    [row] = op.estimate(count=True).to_pylist()
    assert (row["low"], row["high"]) == (0.0, math.inf)


# -- samples of one stream -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: FairWindow(60, window=hr.rows(200), seed=seed),
        lambda seed: FairWindow(60, window=hr.time("200ms", on="t"), seed=seed),
        lambda seed: Expire(60, window=hr.rows(200), seed=seed),
        lambda seed: Reservoir(60, seed=seed),
    ],
    ids=["fair", "fair by time", "expire", "reservoir"],
)
def test_intervals_of_samples_cover_what_they_say(make):
    rng = np.random.default_rng(2)
    values, groups = rng.gamma(2.0, 5.0, 500), rng.integers(0, 2, 500)
    rows = pa.record_batch({"v": values, "g": groups, "t": pa.array(np.arange(500), pa.timestamp("ms"))})
    runs, hits = 200, np.zeros(4)
    for seed in range(runs):
        s = make(seed)
        s.insert(rows)
        live = slice(0 if isinstance(s, Reservoir) else 300, None)
        [total, mean] = s.estimate(sum="v", avg="v").to_pylist()
        by_group = {row["g"]: row for row in s.estimate(count=True, group_by="g").to_pylist()}
        truths = [
            (values[live].sum(), total),
            (values[live].mean(), mean),
            ((groups[live] == 0).sum(), by_group[0]),
            ((groups[live] == 1).sum(), by_group[1]),
        ]
        hits += [row["low"] <= truth <= row["high"] for truth, row in truths]
        [count] = s.estimate(count=True).to_pylist()
        assert count["estimate"] == count["low"] == count["high"] == len(values[live])
    assert (np.abs(hits / runs - 0.95) < 3.3 * math.sqrt(0.95 * 0.05 / runs) + 0.01).all(), hits / runs


def test_intervals_of_a_leaning_sample_are_not_given():
    for s in (WinRes(5, window=hr.rows(10)), Reservoir(5, window=hr.rows(10)), Expire(5, window=hr.time(1, on="t"))):
        with pytest.raises(hr.BadInput, match="is not a simple random sample of its window"):
            s.estimate(count=True)


# -- bad input -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({}, "nothing is to be estimated"),
        ({"sum": "w"}, r"column 'w' was not named when the join was made, with estimate=\['v'\]"),
        ({"count": True, "group_by": "v"}, "group_by='v' was not named"),
        ({"count": True, "confidence": 1.5}, "confidence=1.5 is not a probability"),
        ({"sum": ""}, "sum='' names no column"),
    ],
)
def test_bad_questions_are_refused_by_name(asked, says):
    op = WindowJoin(hr.equal("k"), window=hr.rows(10), size=5, estimate="v", group_by="g")
    with pytest.raises(hr.BadInput, match=says):
        op.estimate(**asked)


def test_what_was_not_declared_is_refused():
    op = WindowJoin(hr.equal("k"), window=hr.rows(10), size=5)
    with pytest.raises(hr.BadInput, match=r"made without estimate=...; make it with estimate=\['v'\], group_by='g'"):
        op.estimate(sum="v", group_by="g")
    op = WindowJoin(hr.equal("k"), window=hr.rows(10), size=5, estimate="no")
    list(op.insert("left", pa.record_batch({"k": [1]})))
    with pytest.raises(hr.BadInput, match="no column 'no' to estimate; the columns are k"):
        op.insert("right", pa.record_batch({"k": [1]}))


def test_estimates_of_nothing():
    op = WindowJoin(hr.equal("k"), window=hr.rows(10), size=5, estimate="v", group_by="g")
    [row] = op.estimate(count=True).to_pylist()
    assert (row["estimate"], row["low"], row["high"], row["rows"]) == (0.0, 0.0, 0.0, 0)
    assert op.estimate(count=True, avg="v", group_by="g").num_rows == 0
