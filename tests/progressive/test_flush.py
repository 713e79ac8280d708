"""Flush policies on counters made by hand: what is flushed first, what is remembered, what is refused."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.arrays import AnyArray
from headrace.errors import MemoryRefused
from headrace.progressive import (
    HMJ,
    LA,
    POLICIES,
    RPJ,
    RRPJ,
    RRPJF,
    AllFlush,
    AmortisedRRPJ,
    FlushPolicy,
    Foresight,
    HashPartitioning,
    PartitionStats,
    ProgressiveJoin,
    Random,
    TupleFlushPolicy,
    TupleStats,
    XJoin,
    policy_of,
)
from headrace.progressive.policies.driver import lowest_partitions
from headrace.progressive.policies.la import expected_arrivals
from headrace.units import parse_size


def stats(
    held: Any, *, arrived: Any = None, fresh: Any = None, results: Any = None, recent: Any = None, flushes: int = 0
) -> PartitionStats:
    """With the arrays given; others are like the tuples held, and results 0."""
    held = np.array(held, np.int64)
    came = held if arrived is None else np.array(arrived, np.int64)
    made = np.zeros_like(held) if results is None else np.array(results, np.int64)
    return PartitionStats(
        held,
        came,
        came if fresh is None else np.array(fresh, np.int64),
        made,
        made if recent is None else np.array(recent, np.int64),
        flushes,
    )


def order(policy: FlushPolicy, counters: PartitionStats) -> list[tuple[int, int]]:
    """(side, partition) as they would go."""
    scores = policy.scores(counters)
    return [(int(i) // scores.shape[1], int(i) % scores.shape[1]) for i in np.argsort(scores, axis=None, kind="stable")]


def flushed(
    policy: FlushPolicy, tuples: int, held: list[list[int]], counters: PartitionStats
) -> dict[tuple[int, int], int]:
    """What of (side, partition) goes if so many tuples must."""
    out = {}
    for side, partition in order(policy, counters):
        gone = min(tuples, held[side][partition])
        if gone:
            out[side, partition] = gone
        tuples -= gone
    return out


# -- worked examples ---------------------------------------------------------------------------------------------------------


def test_rpj_worked_example() -> None:
    """[PQP] §2.1: values 2, 4, 6, 8, two tuples each in memory, six to flush: S of 6, R of 2, S of 8."""
    arrived = [[10, 15, 4, 6], [5, 20, 30, 10]]  # of a hundred: the probabilities in percent
    held = [[2] * 4, [2] * 4]
    assert flushed(RPJ(), 6, held, stats(held, arrived=arrived)) == {(1, 2): 2, (0, 0): 2, (1, 3): 2}


def test_rpj_weighs_sides_by_what_came_lately() -> None:
    policy, held = RPJ(), [[5, 5], [5, 5]]
    counters = stats(held, arrived=[[50, 50], [90, 10]], fresh=[[1, 1], [9, 9]])
    # p(R) = 0.1 * (0.5, 0.5), p(S) = 0.9 * (0.9, 0.1): S waits for R, which hardly comes.
    np.testing.assert_allclose(policy.scores(counters), [[0.81, 0.09], [0.05, 0.05]])
    # Few have come since, all of R: they change little of the last twenty.
    counters = stats(held, arrived=[[51, 50], [90, 10]], fresh=[[1, 0], [0, 0]])
    assert policy.scores(counters)[0].sum() == pytest.approx(0.95 * 18 / (0.95 * 20 + 1))


def test_rrpj_small_and_large_partitions_are_alike() -> None:
    """[PQP] §3.2.1: 1 tuple with 100 results is worth as much as 10 with 1000."""
    scores = RRPJ().scores(stats([[1, 10, 10], [1, 1, 1]], results=[[100, 1000, 999], [0, 0, 1]]))
    assert scores[0, 0] == scores[0, 1] > scores[0, 2] > scores[1, 2] > scores[1, 0] == 0


def test_amortised_rrpj_tells_the_present_from_the_past() -> None:
    """[PQP] §3.2.2: 5 then 45 results, and 45 then 5: RRPJ cannot tell them apart, amortised RRPJ keeps the first."""
    held = [[10, 10], [0, 0]]
    first = stats(held, results=[[5, 45], [0, 0]], recent=[[5, 45], [0, 0]])
    second = stats(held, results=[[50, 50], [0, 0]], recent=[[45, 5], [0, 0]], flushes=1)
    plain, amortised, latest, none = (
        RRPJ(),
        AmortisedRRPJ(sigma=0.5),
        AmortisedRRPJ(sigma=0.0),
        AmortisedRRPJ(sigma=1.0),
    )
    for policy in (plain, amortised, latest, none):
        policy.scores(first)
    np.testing.assert_allclose(plain.scores(second)[0], [5, 5])
    np.testing.assert_allclose(amortised.scores(second)[0], [4.75, 2.75])  # (0.5 * 5 + 45) / 10, (0.5 * 45 + 5) / 10
    np.testing.assert_allclose(latest.scores(second)[0], [4.5, 0.5])
    np.testing.assert_allclose(none.scores(second)[0], [5, 5])


# -- each one's order --------------------------------------------------------------------------------------------------------


def test_xjoin_takes_the_largest() -> None:
    assert XJoin.whole
    assert order(XJoin(), stats([[3, 9, 1], [4, 2, 8]]))[:3] == [(0, 1), (1, 2), (1, 0)]


def test_xjoin_flushes_one_partition_at_a_time() -> None:
    counters = stats([[3, 9, 1], [4, 2, 8]])
    chosen = lowest_partitions(XJoin(), counters, XJoin().wanted(27))
    assert np.argwhere(chosen.leave).tolist() == [[0, 1]] and chosen.spare == 0
    op = ProgressiveJoin(hr.equal("k"), "1MiB", XJoin(), capacity=1000)
    rng = np.random.default_rng(9)
    for side in ("left", "right") * 4:
        flushes, held = op.stats.flushes, op.partition_stats.held.copy()
        list(op.insert(side, pa.record_batch({"k": rng.integers(0, 500, 300)})))
        gone = (op.partition_stats.held < held).sum()
        assert gone <= op.stats.flushes - flushes
    assert op.stats.flushes > 3


def test_equal_scores_are_put_in_an_order_that_is_drawn() -> None:
    counters = [stats([[5] * 20, [5] * 20], results=np.zeros((2, 20)), flushes=flushes) for flushes in range(40)]

    def first(policy: FlushPolicy) -> list[tuple[int, int]]:
        return [lowest_partitions(policy, some, 1).last for some in counters]

    drawn = first(RRPJ())
    assert drawn == first(RRPJ(seed=0)) != first(RRPJ(seed=1))
    assert {side for side, _ in drawn} == {0, 1} and len({partition for _, partition in drawn}) > 10
    assert first(AmortisedRRPJ(sigma=0.0)) == drawn
    scored = stats([[5, 5], [5, 5]], results=[[2, 1], [1, 1]])
    assert {lowest_partitions(RRPJ(seed=seed), scored, 15).last for seed in range(30)} == {(0, 1), (1, 0), (1, 1)}
    assert all(not lowest_partitions(RRPJ(seed=seed), scored, 15).leave[0, 0] for seed in range(30))


def test_hmj_takes_the_largest_pair_that_keeps_sides_even() -> None:
    assert HMJ.pairs
    # Left holds more. Partition 2 is the largest pair, but mostly of the right side.
    scores = HMJ().scores(stats([[30, 20, 5], [10, 10, 30]]))
    np.testing.assert_array_equal(scores[0], scores[1])
    assert np.argsort(scores[0]).tolist() == [0, 1, 2]


def test_random_is_seeded() -> None:
    counters = stats([[1] * 8, [1] * 8])
    one, same, other = Random(seed=1), Random(seed=1), Random(seed=2)
    first = order(one, counters)
    assert first == order(same, counters) != order(other, counters)
    assert first != order(one, counters) == order(same, counters)


def test_all_flush_takes_all() -> None:
    assert AllFlush().wanted(1234) == 1234


def _process(rng: np.random.Generator, n: int, a: dict[int, float], domain: int) -> Any:
    """Values of a stream with reference locality: the one i arrivals ago with probability a[i], otherwise any."""
    values, lag = rng.integers(1, domain, n), rng.choice([0, *a], n, p=[1 - sum(a.values()), *a.values()])
    for i in np.flatnonzero(lag):
        if i >= lag[i]:
            values[i] = values[i - lag[i]]
    return values.astype(np.uint64)


@pytest.mark.parametrize("a", [{}, {1: 0.4}, {3: 0.3, 7: 0.2}])
@pytest.mark.parametrize("domain", [20, 1 << 40])
def test_la_fits_the_locality_of_a_stream(a: dict[int, float], domain: int) -> None:
    policy, values = LA(h=10), _process(np.random.default_rng(3), 20_000, a, domain)
    for some in np.split(values, 100):
        policy.arrive(1, some, np.zeros(some.size, np.int32))
    b, fitted = policy.locality(1)
    np.testing.assert_allclose(fitted, [a.get(i, 0.0) for i in range(1, 11)], atol=0.03)
    assert b == pytest.approx(1 - sum(a.values()), abs=0.06)


def test_la_expects_what_its_model_gives() -> None:
    """[PQP] §2.1: each arrival is t with probability b P(t) plus the a_i of the arrivals that had t, now or as expected."""
    a, h = np.array([0.1, 0.0, 0.3, 0.2]), 4
    drawn, repeated = expected_arrivals(a)
    for draws, came in ((0.05, [0, 0, 0, 0]), (0.0, [1, 0, 0, 0]), (0.02, [0, 1, 0, 1])):  # the latest first
        chance: list[float] = [float(one) for one in reversed(came)]  # of t at each arrival, of those to come behind
        for _ in range(h):
            chance.append(draws + sum(a[i] * chance[-1 - i] for i in range(h)))
        assert draws * drawn + repeated @ came == pytest.approx(sum(chance[h:]))


def test_la_scores_values_by_popularity_and_by_what_came_lately() -> None:
    policy = LA(h=4, b=0.5)
    came = np.array([5] * 90 + [8, 9] * 4 + [7, 5], np.uint64)
    policy.arrive(1, came, np.zeros(came.size, np.int32))
    b, a = policy.locality(1)
    assert b == 0.5 and a.sum() == pytest.approx(0.5)
    drawn, repeated = expected_arrivals(a)
    assert repeated[0] != a[0]  # more than the next arrival
    cell = np.array([5, 8, 9, 7, 6], np.uint64)
    tuples = TupleStats(np.zeros(5, np.int32), cell, np.arange(5), np.zeros(5, np.int32))
    popular = b * drawn * np.array([0.91, 0.04, 0.04, 0.01, 0.0])
    np.testing.assert_allclose(
        policy.tuple_scores(stats([[5], [0]]), 0, tuples),
        popular + np.append(repeated, 0.0)[[0, 3, 2, 1, 4]],
    )
    assert not policy.tuple_scores(stats([[5], [0]]), 1, tuples).any()  # nothing has come to the left side


@pytest.mark.parametrize("h", [1, 64, 256])
def test_what_la_learns_and_computes_with_is_in_the_budget(h: int) -> None:
    policy = LA(h=h)
    op = ProgressiveJoin(hr.equal("k"), "2MiB", policy)
    assert op.budget.held()["flush policy"] == policy.nbytes
    tracemalloc.start()
    try:
        learned = LA(h=h)
        for side in (0, 1):
            for _ in range(20):
                learned.arrive(side, np.arange(1000, dtype=np.uint64), np.zeros(1000, np.int32))
        tracemalloc.reset_peak()
        learned.locality(0)
        assert tracemalloc.get_traced_memory()[1] <= policy.nbytes + 20_000  # the objects of Python
    finally:
        tracemalloc.stop()


def test_a_budget_that_is_too_small_for_a_policy_is_refused_with_one_that_would_do() -> None:
    with pytest.raises(MemoryRefused, match="too small for two streams with LA; give at least") as refused:
        ProgressiveJoin(hr.equal("k"), "256KiB", "la")
    least = str(refused.value).rsplit(" ", 1)[1]
    op, rows = ProgressiveJoin(hr.equal("k"), round(1.01 * parse_size(least)), "la"), 0
    for side in ("left", "right"):
        for at in range(0, 20_000, 500):
            rows += sum(out.num_rows for out in op.insert(side, pa.record_batch({"k": np.arange(at, at + 500)})))
    assert rows + sum(out.num_rows for out in op.finish()) == 20_000
    assert op.stats.flushes and op.budget.peak <= op.budget.limit


def test_la_keeps_what_comes_again() -> None:
    """Values repeat those of a moment ago: popularity alone says nothing, as all values are as popular in the long run."""

    def early(policy: FlushPolicy) -> int:
        rng = np.random.default_rng(6)
        values = _process(rng, 3000, {20: 0.9}, 100_000)
        op = ProgressiveJoin(hr.equal("k"), "1MiB", policy, capacity=200)
        for at in range(0, 3000, 20):
            for side in ("left", "right"):
                list(op.insert(side, pa.record_batch({"k": values[at : at + 20].astype(np.int64)})))
        return op.stats.in_memory

    assert early(LA(share=20)) > 1.5 * early(LA(share=20, b=1.0))


def test_rrpj_f_counts_by_tuple() -> None:
    tuples = TupleStats(
        np.zeros(3, np.int32), np.zeros(3, np.uint64), np.array([3, 1, 2]), np.array([4, 0, 2], np.int32)
    )
    assert RRPJF.per_tuple
    assert RRPJF().tuple_scores(stats([[3], [0]]), 0, tuples).tolist() == [4, 0, 2]


# -- Foresight ---------------------------------------------------------------------------------------------------------------


def test_foresight_ranks_by_results_a_chance() -> None:
    # As many results a tuple, but those of partition 1 came halfway through: it had half the chances.
    counters = stats([[100, 100], [100, 100]], fresh=[[0, 100], [50, 50]], results=[[50, 50], [5, 0]])
    scores = Foresight().scores(counters)
    assert scores[0, 1] > scores[0, 0] > scores[1, 0] > scores[1, 1] > 0


def steps(policy: Foresight, results: list[list[int]]) -> AnyArray:
    for flushes, recent in enumerate(results):
        scores = policy.scores(
            stats([[50] * 4, [50] * 4], fresh=[[5] * 4, [5] * 4], recent=[recent, recent], flushes=flushes)
        )
    return scores


def test_foresight_remembers_while_nothing_changes_and_forgets_when_it_does() -> None:
    rng = np.random.default_rng(3)
    noisy = [rng.poisson([30, 30, 30, 20]).tolist() for _ in range(40)]
    steady = steps(Foresight(), noisy)
    assert steady[0].argmin() == 3
    mean = np.mean(noisy, axis=0)
    np.testing.assert_allclose(steady[0] / steady[0].sum(), mean / mean.sum(), rtol=0.02)  # all of the past counts
    changed = steps(Foresight(), [[100, 1, 1, 1]] * 20 + [[1, 100, 1, 1]] * 4)
    assert changed[0].argmax() == 1
    # The past had 20 times 100 results of partition 0 and 4 times 100 of partition 1: RRPJ goes on keeping 0.
    assert changed[0, 1] > 10 * changed[0, 0]


def test_foresight_is_not_misled_by_bursts_of_one_side() -> None:
    # Tuples of the left come in bursts: those in memory on the left have no results meanwhile, and are as good as before.
    policy, held = Foresight(), [[50, 50], [50, 50]]
    for flushes in range(20):
        side, results = flushes // 5 % 2, np.zeros((2, 2), np.int64)
        results[1 - side] = [100, 50]
        fresh = np.zeros((2, 2), np.int64)
        fresh[side] = 5
        policy.arrive(side, np.zeros(10, np.uint64), np.zeros(10, np.int32))
        scores = policy.scores(stats(held, fresh=fresh, recent=results, flushes=flushes))
    assert scores[:, 0].min() > scores[:, 1].max()


def test_foresight_flushes_more_of_what_is_useless() -> None:
    alike, useless = Foresight(), Foresight()
    assert alike.wanted(3200) == useless.wanted(3200) == 100
    alike.scores(stats([[400] * 4, [400] * 4], results=[[100] * 4, [100] * 4]))
    useless.scores(stats([[400] * 4, [400] * 4], results=[[100, 0, 0, 0], [100, 0, 0, 0]]))
    assert alike.wanted(3200) == 100
    assert useless.wanted(3200) == 200


def test_foresight_flushes_little_of_what_was_useful_before_a_change() -> None:
    policy, latest = Foresight(), Foresight()
    steps(policy, [[100, 100, 1, 1]] * 8 + [[1, 1, 100, 100]] * 8)
    steps(latest, [[0, 0, 100, 100]] * 16)
    assert policy.wanted(3200) == 100  # nothing was useless all along
    assert latest.wanted(3200) == 200


def test_foresight_without_any_results() -> None:
    policy = Foresight()
    for flushes in range(3):
        scores = policy.scores(stats([[5, 0], [0, 5]], flushes=flushes))
        np.testing.assert_array_equal(scores, 0)
    assert policy.wanted(10) == 1
    with np.errstate(all="raise"):
        policy.scores(stats([[5, 0], [0, 5]], results=[[1, 0], [0, 0]], flushes=3))
    assert order(policy, stats([[5, 5], [5, 5]], results=[[9, 0], [0, 0]], flushes=4))[-1] == (0, 0)


# -- all of them -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
def test_policies_score_any_stats(name: str) -> None:
    policy, rng = policy_of(name), np.random.default_rng(5)
    for flushes in range(4):
        held = rng.integers(0, 3, (2, 5))
        came = rng.integers(0, 5, 3).astype(np.int32)
        policy.arrive(0, came.astype(np.uint64), came)
        counters = stats(held, arrived=held + 1, fresh=held * 0, results=rng.integers(0, 2, (2, 5)), flushes=flushes)
        scores = policy.scores(counters)
        assert scores.shape == (2, 5) and np.isfinite(scores).all()
    assert np.isfinite(policy_of(name).scores(PartitionStats.empty(3))).all()


def _early(flush: str) -> tuple[int, int]:
    """Results before the end, and flushes, of skewed keys in a memory of 200 tuples."""
    rng = np.random.default_rng(11)
    op = ProgressiveJoin(hr.equal("k"), "1MiB", flush, partitioning=HashPartitioning(hr.equal("k"), 8), capacity=200)
    for _ in range(15):
        for side in ("left", "right"):
            keys = pa.record_batch({"k": rng.zipf(1.5, 50) % 100})
            for _ in op.insert(side, keys):
                pass
    return op.stats.in_memory, op.stats.flushes


@pytest.mark.parametrize("name", POLICIES)
def test_runs_repeat(name: str) -> None:
    assert _early(name) == _early(name)


def test_keeping_what_gives_results_gives_more() -> None:
    early = {name: _early(name)[0] for name in ("allflush", "xjoin", "rrpj", "foresight")}
    assert early["allflush"] < early["rrpj"] and early["xjoin"] < early["rrpj"] <= 1.05 * early["foresight"], early


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: policy_of("rrjp"), "flush='rrjp' is not supported; choose one of xjoin, hmj, random, rpj, la, rrpj"),
        (lambda: policy_of(7), "flush=7 is not supported"),  # type: ignore[arg-type]
        (lambda: RRPJ(0), "share=0 is not a part of memory"),
        (lambda: RRPJ(1.5), "share=1.5 is not"),
        (lambda: RRPJ(True), "share=True is not"),
        (lambda: AmortisedRRPJ(sigma=1.2), "sigma=1.2 is not a weight of the past; give one from 0 to 1"),
        (lambda: LA(h=0), "h=0 is not a number of arrivals that may repeat; give one from 1 to 256"),
        (lambda: LA(h=257), "h=257 is not a number of arrivals that may repeat; give one from 1 to 256"),
        (lambda: LA(b=-0.1), "b=-0.1 is not a probability"),
    ],
)
def test_refusals(make: Any, says: str) -> None:
    with pytest.raises(hr.BadInput) as refusal:
        make()
    assert says in str(refusal.value)


def test_a_policy_object_is_taken_as_it_is() -> None:
    policy = RRPJ(share=7)
    assert policy_of(policy) is policy and policy.wanted(100) == 7 and policy.wanted(3) == 3
    assert RRPJ(0.25).wanted(100) == 25 and RRPJ(0.001).wanted(100) == 1


# -- policies that a user writes ---------------------------------------------------------------------------------------------


def test_a_policy_of_ones_own_is_one_method() -> None:
    class Smallest(FlushPolicy):
        def scores(self, stats: PartitionStats) -> Any:
            return stats.held

    op = ProgressiveJoin(hr.equal("k"), "1MiB", Smallest(share=2), capacity=4)
    list(op.insert("left", pa.record_batch({"k": [1, 1, 1]})))
    list(op.insert("left", pa.record_batch({"k": [2, 3]})))  # 2 or 3 is flushed with one of 1, or both of them are
    held = op.partition_stats.held[0]
    assert op.stats.flushes == 1 and op.stats.flushed == 2 and held.sum() == 3
    assert sum(out.num_rows for out in op.insert("right", pa.record_batch({"k": [1, 2, 3]}))) >= 1
    list(op.finish())
    assert op.stats.results == 5
    assert op.partition_stats.flushes == op.stats.flushes  # the driver keeps the books, whatever the policy is


def test_a_policy_of_ones_own_for_tuples_is_one_method() -> None:
    class Oldest(TupleFlushPolicy):
        def tuple_scores(self, stats: PartitionStats, side: int, tuples: TupleStats) -> Any:
            return tuples.arrived

    op = ProgressiveJoin(hr.equal("k"), "1MiB", Oldest(share=1), capacity=2)
    for key in (1, 2, 3):
        list(op.insert("left", pa.record_batch({"k": [key]})))
    early = [row["k"] for out in op.insert("right", pa.record_batch({"k": [3, 1]})) for row in out.to_pylist()]
    assert early == [3]  # 1 was the oldest, and is on disk
    assert [row["k"] for out in op.finish() for row in out.to_pylist()] == [1]


@pytest.mark.parametrize(
    ("scores", "says"),
    [
        (
            lambda held: held[0],
            r"Wrong\.scores gave an array of shape \(64,\); it must .* each side and partition, \(2, 64\)",
        ),
        (lambda held: np.where(held == 0, np.nan, 0), r"Wrong\.scores gave NaN for partition \d+ of the left side"),
    ],
)
def test_wrong_scores_are_refused_by_the_name_of_the_policy(scores: Any, says: str) -> None:
    class Wrong(FlushPolicy):
        def scores(self, stats: PartitionStats) -> Any:
            return scores(stats.held)

    op = ProgressiveJoin(hr.equal("k"), memory="1MiB", flush=Wrong(), capacity=2)
    with pytest.raises(hr.BadInput, match=says):
        list(op.insert("left", pa.record_batch({"k": [1, 2, 3]})))


@pytest.mark.parametrize(
    ("scores", "says"),
    [
        (
            lambda arrived: arrived[:0],
            r"Wrong\.tuple_scores gave an array of shape \(0,\); .* of the left side in memory, \(2,\)",
        ),
        (lambda arrived: arrived * np.nan, r"Wrong\.tuple_scores gave NaN for a tuple of the left side"),
    ],
)
def test_wrong_scores_of_tuples_are_refused_by_the_name_of_the_policy(scores: Any, says: str) -> None:
    class Wrong(TupleFlushPolicy):
        def tuple_scores(self, stats: PartitionStats, side: int, tuples: TupleStats) -> Any:
            return scores(tuples.arrived)

    op = ProgressiveJoin(hr.equal("k"), memory="1MiB", flush=Wrong(share=1), capacity=2)
    with pytest.raises(hr.BadInput, match=says):
        list(op.insert("left", pa.record_batch({"k": [1, 2, 3]})))


def test_a_policy_that_scores_tuples_must_say_how() -> None:
    class Forgetful(RRPJ):
        per_tuple = True

    op = ProgressiveJoin(hr.equal("k"), memory="1MiB", flush=Forgetful(), capacity=2)
    with pytest.raises(hr.BadInput, match=r"Forgetful is said to score tuples .*has no tuple_scores"):
        list(op.insert("left", pa.record_batch({"k": [1, 2, 3]})))
