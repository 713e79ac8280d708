"""LoggedSample: attempts that die, are repeated, or come in another order give the same results; ArrivalOrder."""

from collections import Counter
from itertools import islice

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import RunLogError
from headrace.runlog import RunLog
from headrace.sampling import ApproximateJoin, FairWindow, WindowJoin
from headrace.sampling.arrival_order import FROM, ArrivalOrder, window_within
from headrace.sampling.logged import LoggedSample, WarmOperator
from headrace.sampling.shard_operators import ShardJoin, ShardSample

TIME = hr.time("60s", on="t")
DELAYS = (20.0, 20.0)


def rows(seed, n, begin=0.0, tasks=3):
    """Rows of several tasks, in the order of the tasks; times in no order, a few null."""
    rng = np.random.default_rng(seed)
    t = pa.array((1e6 * (begin + 40 * rng.random(n))).astype(np.int64), mask=rng.random(n) < 0.02)
    return pa.record_batch(
        {
            "k": rng.integers(0, 12, n),
            "n": np.arange(n) + 1000 * seed,
            "t": t.cast(pa.timestamp("us")),
            FROM: pa.array(np.sort(rng.integers(0, tasks, n)), pa.int32()),
        }
    )


def micro_batches(count):
    return [[(side, rows(2 * i + side, 60, 25.0 * i)) for side in (0, 1)] for i in range(count)]


def shuffled(batches, seed):
    """The same rows as they may come another time: blocks of tasks in another order, cut elsewhere."""
    rng, out = np.random.default_rng(seed), []
    for side, batch in batches:
        task = np.asarray(batch.column(FROM))
        for number in rng.permutation(np.unique(task)):
            block = batch.filter(pa.array(task == number))
            cut = int(rng.integers(0, block.num_rows + 1))
            out += [(side, part) for part in (block.slice(0, cut), block.slice(cut)) if part.num_rows]
    return out


OPERATORS = {
    "window by time": (
        lambda: ShardJoin(WindowJoin(hr.equal("k"), window=window_within(TIME, DELAYS), size=25, seed=1, suffix="_r")),
        TIME,
    ),
    "window by rows": (
        lambda: ShardJoin(WindowJoin(hr.equal("k"), window=hr.rows(80), sample=0.3, seed=1, suffix="_r")),
        hr.rows(80),
    ),
    "approximate": (lambda: ShardJoin(ApproximateJoin(hr.equal("k"), tuples=40, seed=1, suffix="_r")), None),
    "sample": (lambda: ShardSample(FairWindow(20, window=hr.rows(80), seed=1)), hr.rows(80)),
}


def attempt(log, make, window, batch, number, warm, step="columns"):
    with log.shard(0) as held:
        order = ArrivalOrder(window, DELAYS)
        sample = LoggedSample(make, held, warm, number, order=order, step=step)
        yield from sample.run(iter(batch))


def found(batches):
    return Counter(tuple(row.values()) for out in batches for row in out.to_pylist())


def sides(name, batches):
    return [item for item in batches if item[0] == 0] if name == "sample" else batches


@pytest.mark.parametrize("name", OPERATORS)
def test_contract_attempts_that_die_or_come_again_give_the_same(name, tmp_path):
    make, window = OPERATORS[name]
    quiet, log = (RunLog(tmp_path / place, "q", "op", shards=1) for place in ("quiet", "other"))
    kept, rng = WarmOperator(), np.random.default_rng(3)
    for number, whole in enumerate(micro_batches(5)):
        batch = sides(name, whole)
        wanted = found(attempt(quiet, make, window, batch, number, kept))
        for seed in range(3):  # attempts that die in the midst, in this worker or in another
            dies = attempt(log, make, window, shuffled(batch, seed), number, WarmOperator())
            list(islice(dies, int(rng.integers(0, 3))))
            dies.close()
        warm = WarmOperator()
        assert found(attempt(log, make, window, shuffled(batch, 7), number, warm)) == wanted
        for again in (warm, WarmOperator()):  # it is decided, and Spark runs it once more, here or elsewhere
            assert found(attempt(log, make, window, shuffled(batch, 8), number, again)) == wanted
    assert wanted


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_oracle_any_order_within_a_micro_batch_joins_all_pairs_that_are_not_late(tmp_path_factory, seed):
    rng = np.random.default_rng(seed)
    batches = [[(side, rows(int(rng.integers(1, 500)), 40, 25.0 * i)) for side in (0, 1)] for i in range(3)]
    log = RunLog(tmp_path_factory.mktemp("log"), "q", "op", shards=1)

    def make():
        return ShardJoin(WindowJoin(hr.equal("k"), window=window_within(TIME, DELAYS), method="all", suffix="_r"))

    got, came, latest = Counter(), [[], []], None
    for number, batch in enumerate(batches):
        got += found(attempt(log, make, TIME, shuffled(batch, seed), number, WarmOperator()))
        times = []
        for side, part in batch:
            for row in part.to_pylist():
                if row["t"] is not None:
                    times.append(row["t"])
                    if latest is None or (latest - row["t"]).total_seconds() <= DELAYS[side]:
                        came[side].append(row)
        latest = max([*times, *([] if latest is None else [latest])])
    wanted = Counter(
        (l["k"], l["n"], l["t"], r["n"], r["t"])
        for l in came[0]
        for r in came[1]
        if l["k"] == r["k"] and abs((l["t"] - r["t"]).total_seconds()) < 60
    )
    assert got == wanted


def test_the_log_does_not_grow(tmp_path):
    make, window = OPERATORS["window by rows"]
    log, warm = RunLog(tmp_path, "q", "op", shards=1), WarmOperator()
    for number, batch in enumerate(micro_batches(6)):
        list(attempt(log, make, window, batch, number, warm))
    names = sorted(path.name for path in log.path.glob("shard-0000/*"))
    assert names == [
        ".lock",
        "0000000004.decision.arrow",
        "0000000005.decision.arrow",
        "0000000005.left.arrow",
        "0000000005.right.arrow",
    ]


def test_other_rows_in_a_replay_and_another_step_are_refused(tmp_path):
    make, window = OPERATORS["approximate"]
    log, [batch] = RunLog(tmp_path, "q", "op", shards=1), micro_batches(1)
    list(attempt(log, make, window, batch, 0, WarmOperator()))
    with pytest.raises(RunLogError, match="had 60 rows of the left side in shard 0, and now it has 59"):
        list(attempt(log, make, window, [(0, batch[0][1].slice(1)), batch[1]], 0, WarmOperator()))
    for number in (0, 1):
        with pytest.raises(
            RunLogError, match=r"state of a step with columns, and this one has others.* state= directory each"
        ):
            list(attempt(log, make, window, batch, number, WarmOperator(), step="others"))


def test_a_micro_batch_without_rows_changes_nothing(tmp_path):
    make, window = OPERATORS["sample"]
    log, warm, [batch] = RunLog(tmp_path, "q", "op", shards=1), WarmOperator(), micro_batches(1)
    assert found(attempt(log, make, window, [], 0, warm)) == Counter()
    first = found(attempt(log, make, window, batch[:1], 1, warm))
    assert first.total() == 20
    for again in (warm, WarmOperator()):
        assert found(attempt(log, make, window, [], 2, again)) == first


def test_an_attempt_that_was_overtaken_is_refused(tmp_path):
    make, window = OPERATORS["sample"]
    log, batches = RunLog(tmp_path, "q", "op", shards=1), [sides("sample", whole) for whole in micro_batches(2)]
    for number, batch in enumerate(batches):
        list(attempt(log, make, window, batch, number, WarmOperator()))
    with pytest.raises(RunLogError, match=r"batch 1 of .* is decided, so an attempt at batch 0 comes too late"):
        list(attempt(log, make, window, batches[0], 0, WarmOperator()))
