"""ApproximateJoin: against plain Python, in any division into batches, on from snapshots, the text's examples, and refusals."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import BadInput, MemoryRefused
from headrace.sampling import ApproximateJoin
from headrace.sampling.join_memory import ENTRY_BYTES
from headrace.sampling.snapshot import SNAPSHOT
from tests.support.approximate_joins import PlainJoin
from tests.support.sample_streams import below, words

METHODS = [
    ("exact", {}),
    ("rrpj", {}),
    ("rrpj", {"share": 0.34}),
    ("prob", {}),
    ("prob", {"allocation": "variable"}),
    ("probhash", {}),
    ("probhash", {"allocation": "variable"}),
    ("raj", {}),
    ("rajhash", {}),
    ("rajhash", {"literal": True}),
    ("rajhash", {"replacement": "anywhere"}),
    ("mixture", {"quality": 0.4}),
]
IDS = ["-".join([method, *(str(value) for value in options.values())]) for method, options in METHODS]


def join_of(method, options, tuples, **more):
    size = {} if method == "exact" else {"tuples": tuples}
    return ApproximateJoin(hr.equal("k"), method=method, **size, **options, **more)


def batch_of(side, numbers, keys):
    keys = pa.array(keys, pa.int64())
    return pa.record_batch({("left", "right")[side]: pa.array(numbers, pa.int64()), "k": keys})


def pairs_of(results):
    return [p for out in results for p in zip(out["left"].to_pylist(), out["right"].to_pylist(), strict=True)]


def script_of(arrivals, cuts):
    """(side, rows) of arrivals (side, key): a run of one side in batches of the sizes in `cuts`."""
    out, numbers, i = [], [0, 0], 0
    while i < len(arrivals):
        side, size = arrivals[i][0], cuts[len(out) % len(cuts)]
        keys = []
        while i < len(arrivals) and arrivals[i][0] == side and len(keys) < size:
            keys.append(arrivals[i][1])
            i += 1
        out.append((side, batch_of(side, range(numbers[side], numbers[side] + len(keys)), keys)))
        numbers[side] += len(keys)
    return out


def joined(op, script):
    found = Counter()
    for side, batch in script:
        found.update(pairs_of(op.insert(("left", "right")[side], batch)))
    assert list(op.finish()) == []
    assert op.stats.results == found.total()
    return found


def plainly(join, script):
    found = Counter()
    for side, batch in script:
        for number, key in zip(batch.column(0).to_pylist(), batch["k"].to_pylist(), strict=True):
            for mine, other in join.insert(side, number, key):
                found[(mine, other) if side == 0 else (other, mine)] += 1
    return found


def stream(n, keys, seed, skew=True):
    """Arrivals of both sides with keys of a skewed distribution, of which some are null, in runs of a side."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, keys + 1) if skew else np.ones(keys)
    values = rng.choice(keys, n, p=weights / weights.sum())
    sides = np.repeat(rng.integers(0, 2, n), rng.integers(1, 6, n))[:n]
    missing = rng.random(n) < 0.05
    return [(int(s), None if m else int(v) - 3) for s, v, m in zip(sides, values, missing, strict=True)]


@pytest.mark.parametrize(("method", "options"), METHODS, ids=IDS)
@given(
    arrivals=st.lists(st.tuples(st.integers(0, 1), st.none() | st.integers(-2, 6)), max_size=80),
    cuts=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    tuples=st.integers(2, 14),
    partitions=st.integers(1, 6),
    seed=st.integers(-5, 50),
)
def test_oracle_one_tuple_after_the_other(method, options, arrivals, cuts, tuples, partitions, seed):
    """Nulls, empty sides, a single key, one partition, memory for two: the pairs of plain Python."""
    script = script_of(arrivals, cuts)
    op = join_of(method, options, tuples, partitions=partitions, seed=seed)
    plain = PlainJoin(method, tuples, seed=seed, partitions=partitions, **options)
    assert joined(op, script) == plainly(plain, script)
    assert op.stats.scanned == plain.scanned
    for side, name in enumerate(("left", "right")):
        if any(s == side for s, _ in arrivals):
            kept = sorted(op.kept(name)[name].to_pylist())
            assert kept == sorted(row for row, _, _ in plain._memory(side))


@pytest.mark.parametrize(("method", "options"), METHODS, ids=IDS)
def test_oracle_a_longer_stream_with_a_change(method, options):
    """The distribution turns over in the middle, so that priorities of tuples in memory change."""
    arrivals = stream(500, 30, 1)
    arrivals += [(side, None if key is None else 26 - key) for side, key in stream(500, 30, 2)]
    script = script_of(arrivals, [7, 3, 30])
    op = join_of(method, options, 60, partitions=7, seed=4)
    expected = plainly(PlainJoin(method, 60, seed=4, partitions=7, **options), script)
    assert joined(op, script) == expected
    assert expected.total() > 100


@pytest.mark.parametrize("allocation", ["fixed", "variable"])
def test_oracle_counts_in_a_sketch(allocation):
    """With more values than are counted exactly, priorities follow the sketch from then on."""
    script = script_of(stream(900, 400, 3, skew=False), [11, 40])
    counters = 2 * 4096  # half for exact counts beyond the tuples in memory, half for sketches of 128 counters a row
    op = join_of("prob", {"allocation": allocation}, 20, seed=2, counters=counters)
    plain = PlainJoin(
        "prob", 20, seed=2, allocation=allocation, domain=20 + counters // 2 // ENTRY_BYTES, width=counters // 2 // 32
    )
    assert joined(op, script) == plainly(plain, script)
    assert op.stats.sketched and plain.sketches is not None


def test_oracle_a_sketch_drops_no_more_than_exact_counts_by_much():
    """A sketch of 4 KiB keeps the frequent values apart from a thousand rare ones."""
    arrivals = [(at // 100 % 2, key) for at, (_, key) in enumerate(stream(6_000, 1_000, 5))]  # the sides take turns
    script = script_of(arrivals, [100])
    found = [joined(join_of("prob", {}, 100, seed=1, counters=n), script).total() for n in ("8KiB", "1MiB")]
    assert found[0] > 0.9 * found[1] > 1_000


@pytest.mark.parametrize(("method", "options"), METHODS, ids=IDS)
def test_contract_batches_give_what_single_tuples_give(method, options):
    arrivals = stream(400, 20, 8)
    found = [joined(join_of(method, options, 40, seed=3), script_of(arrivals, cuts)) for cuts in ([1], [400], [3, 17])]
    assert found[0] == found[1] == found[2] and found[0].total() > 50


@pytest.mark.parametrize(("method", "options"), METHODS, ids=IDS)
def test_contract_a_snapshot_after_every_batch_goes_on_the_same(method, options):
    more = {"counters": "2KiB"} if method in ("prob", "mixture") else {}
    whole, part = (join_of(method, options, 40, seed=3, partitions=6, **more) for _ in range(2))
    for side, batch in script_of(stream(500, 60, 9), [5, 12]):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SNAPSHOT) as writer:
            for piece in part.snapshot():
                writer.write_batch(piece)
        part = join_of(method, options, 40, seed=3, partitions=6, **more)
        part.restore(pa.ipc.open_stream(sink.getvalue()))
        name = ("left", "right")[side]
        assert Counter(pairs_of(part.insert(name, batch))) == Counter(pairs_of(whole.insert(name, batch)))
        same = {"memory": {}, "memory_peak": 0}  # rows that wait to be compacted are left out of a snapshot
        assert replace(part.stats, **same) == replace(whole.stats, **same)
    assert part.stats.results > 50
    assert part.stats.sketched == bool(more)


def test_contract_results_that_are_not_read_come_with_the_next_call():
    script = script_of(stream(400, 20, 8), [50])
    op, found = join_of("prob", {}, 40, seed=3), Counter()
    for side, batch in script:
        for out in op.insert(("left", "right")[side], batch):
            found.update(pairs_of([out]))
            break  # the rest comes later
    found.update(pairs_of(op.finish()))
    assert found == joined(join_of("prob", {}, 40, seed=3), script)


@pytest.mark.parametrize("method", ["prob", "raj"])
def test_oracle_a_mixture_is_prob_at_0_and_raj_at_1(method):
    script = script_of(stream(800, 30, 4), [9])
    mixture = join_of("mixture", {"quality": float(method == "raj")}, 50, seed=6)
    assert joined(mixture, script) == joined(join_of(method, {}, 50, seed=6), script)


def test_oracle_rajhash_with_replacement_anywhere_is_raj_with_fewer_scanned():
    script = script_of(stream(800, 30, 4), [9])
    raj, hashed = join_of("raj", {}, 50, seed=6), join_of("rajhash", {"replacement": "anywhere"}, 50, seed=6)
    assert joined(raj, script) == joined(hashed, script)
    assert sum(hashed.stats.scanned) < sum(raj.stats.scanned) / 5


def test_oracle_one_giant_key_fills_memory():
    """Every tuple matches every other: pairs beyond the buffer of pairs are made too."""
    n = 600
    script = [(side, batch_of(side, range(n), [7] * n)) for side in (0, 1)]
    assert joined(join_of("exact", {}, 0), script).total() == n * n
    for method in ("prob", "raj", "rajhash"):
        assert joined(join_of(method, {}, 200), script).total() == 100 * n


def test_oracle_texts_and_several_columns():
    """Keys that are no integers are hashed; what the hash does not decide is tested."""
    rng = np.random.default_rng(1)
    rows = [
        pa.record_batch(
            {name: np.arange(200), "a": [f"v{i}" for i in rng.integers(0, 9, 200)], "x": rng.integers(0, 9, 200)}
        )
        for name in ("left", "right")
    ]
    condition = hr.all_of(hr.equal("a"), hr.compare("x", "<", "x"))
    op = ApproximateJoin(condition, method="exact")
    found = {p for side, batch in zip(("left", "right"), rows, strict=True) for p in pairs_of(op.insert(side, batch))}
    left, right = (batch.to_pylist() for batch in rows)
    assert found == {
        (i, j) for i, x in enumerate(left) for j, y in enumerate(right) if x["a"] == y["a"] and x["x"] < y["x"]
    }
    dropping = ApproximateJoin(condition, tuples=20, method="rajhash")
    some = {
        p for side, batch in zip(("left", "right"), rows, strict=True) for p in pairs_of(dropping.insert(side, batch))
    }
    assert 0 < len(some) < len(found) and some < found


# -- the text --------------------------------------------------------------------------------------------------------------

S1, S2 = [10, 22, 34, 11, 30, 90, 2, 1, 13, 10], [10, 48, 20, 35, 12, 58, 67, 71, 44, 83]


def test_worked_example_of_the_plain_join():
    """[PQP] §8.3.6: after five tuples of each; then 90 with rho = 4 takes the place of 10, and 58 with rho = 6 is dropped."""
    plain = PlainJoin("rajhash", 10, partitions=10, numbers={(0, 6): 4, (1, 6): 6})
    found = [plain.insert(side, i, key) for i in range(5) for side, key in ((0, S1[i]), (1, S2[i]))]
    assert found[1] == [(0, 0)]
    strata = [{h: [v for _, v, _ in one] for h, one in plain.strata[side].items() if one} for side in (0, 1)]
    assert strata == [{0: [10, 30], 2: [22], 4: [34], 1: [11]}, {0: [10, 20], 8: [48], 5: [35], 2: [12]}]
    plain.insert(0, 5, S1[5])
    plain.insert(1, 5, S2[5])
    assert [v for _, v, _ in plain.strata[0][0]] == [90, 30] and [v for _, v, _ in plain.strata[1][8]] == [48]


def test_worked_example_of_the_join():
    """The same with the join itself, with a seed whose draws for the sixth tuples are 4 and 6."""
    rho = [[below(words(seed, 6, stream_=side)[5], 6) + 1 for side in (0, 1)] for seed in range(500)]
    op = ApproximateJoin(hr.equal("k"), tuples=10, method="rajhash", partitions=10, seed=rho.index([4, 6]))
    for i in range(6):
        for side, keys in ((0, S1), (1, S2)):
            list(op.insert(("left", "right")[side], batch_of(side, [i], [keys[i]])))
    assert sorted(op.kept("left")["k"].to_pylist()) == [11, 22, 30, 34, 90]
    assert sorted(op.kept("right")["k"].to_pylist()) == [10, 12, 20, 35, 48]


def extreme(n, turn=10):
    """[PQP] Fig. 2.1: b1 once and then b2 on the left, b2 once and then b1 on the right; `turn` tuples of each in turn."""
    keys = [[1] + [2] * (n - 1), [2] + [1] * (n - 1)]
    return [(side, key) for at in range(0, n, turn) for side in (0, 1) for key in keys[side][at : at + turn]]


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_the_extreme_case_of_raj_has_its_closed_form(share):
    """The tuple of b1 is dropped at a time with a known distribution: the share of results is mu (1 + ln 1/mu)."""
    n, seeds = 1_000, 60
    script = script_of(extreme(n, turn=20), [20])
    shares = []
    for seed in range(seeds):
        op = join_of("raj", {}, round(share * 2 * n), seed=seed)
        shares.append(sum(op.count(("left", "right")[side], batch).sum() for side, batch in script) / (2 * (n - 1)))
    expected = share * (1 + np.log(1 / share))
    error = np.std(shares) / np.sqrt(seeds)
    assert abs(np.mean(shares) - expected) < 4.5 * error


@pytest.mark.parametrize("method", ["rrpj", "prob", "probhash", "rajhash"])
def test_the_extreme_case_gives_everything_where_the_rare_tuple_stays(method):
    """Fig. 8.8: strata keep the rare tuple, and so do priorities."""
    n = 400
    op = join_of(method, {}, 80, seed=1)
    assert joined(op, script_of(extreme(n), [10])).total() == 2 * (n - 1)


def test_a_static_join_of_samples_gives_nothing_where_the_dynamic_one_does():
    """§2.6.2: samples that are taken first and joined afterwards have no pair, since both rare tuples are gone."""
    n = 500
    op = join_of("raj", {}, 40, seed=3)
    assert joined(op, script_of(extreme(n), [10])).total() > 0
    left, right = set(op.kept("left")["k"].to_pylist()), set(op.kept("right")["k"].to_pylist())
    assert (left, right) == ({2}, {1})


# -- memory ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "options"), METHODS, ids=IDS)
def test_contract_memory_stays_within_its_bytes(method, options):
    """Rows become ten times as long in the middle: fewer tuples are kept."""
    memory = "4MiB" if method == "exact" else "256KiB"
    op = ApproximateJoin(hr.equal("k"), memory=memory, method=method, seed=1, **options)
    rng = np.random.default_rng(2)
    sizes = []
    for at in range(40):
        text = "x" * (10 if at < 20 else 300)
        for side in ("left", "right"):
            keys = rng.integers(0, 40, 100)
            sum(out.num_rows for out in op.insert(side, pa.record_batch({"k": keys, side: [text] * 100})))
            assert sum(op.stats.memory.values()) <= op.stats.memory_limit
        sizes.append(op.stats.size)
    assert op.stats.memory_peak <= op.stats.memory_limit
    if method != "exact":
        assert sizes[0] == sizes[19] > sizes[-1] >= 2
        assert sum(op.stats.kept) <= sizes[-1]
        assert op.kept("left").num_rows + op.kept("right").num_rows == sum(op.stats.kept)


@pytest.mark.parametrize("method", ["rrpj", "prob", "rajhash"])
def test_contract_a_snapshot_of_a_memory_that_was_made_smaller_goes_on_the_same(method):
    whole, part = (ApproximateJoin(hr.equal("k"), memory="256KiB", method=method, seed=1) for _ in range(2))
    rng = np.random.default_rng(3)
    for at in range(24):
        text = "x" * (10 if at < 8 else 300)
        batch = pa.record_batch({"k": rng.integers(0, 400, 100), "n": np.arange(100), "text": [text] * 100})
        snapshot = list(part.snapshot())
        part = ApproximateJoin(hr.equal("k"), memory="256KiB", method=method, seed=1)
        part.restore(snapshot)
        side = ("left", "right")[at % 2]
        results = [
            Counter(p for out in op.insert(side, batch) for p in zip(*out.columns, strict=True)) for op in (part, whole)
        ]
        assert results[0] == results[1]
        assert part.stats.size == whole.stats.size and part.stats.kept == whole.stats.kept
    assert 2 <= whole.stats.size < 1_000


def test_exact_in_too_little_memory_is_refused_by_name():
    op = ApproximateJoin(hr.equal("k"), memory="64KiB", method="exact")
    with pytest.raises(MemoryRefused, match=r"memory='64KiB'|asked"):
        for at in range(100):
            list(op.insert("left", batch_of(0, range(100), list(range(at, at + 100)))))
    with pytest.raises(BadInput, match="in the middle of a batch"):
        op.insert("left", batch_of(0, [1], [1]))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "give either tuples="),
        ({"tuples": 10, "memory": "1MiB"}, "give either tuples="),
        ({"tuples": 1}, "tuples=1 "),
        ({"tuples": 10, "method": "best"}, "method='best'"),
        ({"tuples": 10, "method": "exact"}, "keeps everything"),
        ({"memory": 100}, "memory=100 is too small"),
        ({"memory": -1}, "-1"),
        ({"tuples": 10, "method": "raj", "allocation": "variable"}, "allocation='variable'"),
        ({"tuples": 10, "method": "raj", "replacement": "anywhere"}, "replacement='anywhere'"),
        ({"tuples": 10, "method": "raj", "literal": True}, "literal=True"),
        ({"tuples": 10, "method": "mixture"}, "quality=None"),
        ({"tuples": 10, "method": "raj", "quality": 0.5}, "quality=0.5"),
        ({"tuples": 10, "method": "mixture", "quality": 1.5}, "quality=1.5"),
        ({"tuples": 10, "partitions": 0}, "partitions=0"),
        ({"tuples": 10, "method": "rrpj", "share": 0}, "share=0"),
        ({"tuples": 10, "method": "prob", "counters": 10}, "counters=10"),
        ({"tuples": 10, "method": "raj", "counters": "1MiB"}, "counters='1MiB'"),
    ],
)
def test_what_cannot_be_is_refused_by_name(arguments, says):
    with pytest.raises((BadInput, MemoryRefused), match=says):
        ApproximateJoin(hr.equal("k"), **arguments)


def test_a_condition_without_a_key_is_refused():
    with pytest.raises(BadInput, match="no equal key"):
        ApproximateJoin(hr.within(("x", "y"), eps=1.0), tuples=10)


def test_a_batch_that_is_refused_leaves_no_trace():
    op = join_of("raj", {}, 10)
    with pytest.raises(BadInput, match="no column 'k'"):
        op.insert("left", pa.record_batch({"j": [1]}))
    with pytest.raises(BadInput, match="is no batch"):
        op.insert("left", pa.table({"k": [1]}))
    with pytest.raises(BadInput, match="nothing of the left side"):
        op.kept("left")
    list(op.insert("left", batch_of(0, [1], [5])))
    assert pairs_of(op.insert("right", batch_of(1, [2], [5]))) == [(1, 2)]
    list(op.finish())
    with pytest.raises(BadInput, match="finished"):
        op.insert("left", batch_of(0, [1], [5]))


def test_a_snapshot_of_another_join_is_refused():
    with pytest.raises(BadInput, match="the snapshot is of"):
        join_of("raj", {}, 10).restore(join_of("raj", {}, 12).snapshot())


@pytest.mark.parametrize(("method", "options"), METHODS, ids=IDS)
def test_counting_is_joining_without_the_results(method, options):
    """`count` says how many results each row has, and leaves the memory that `insert` leaves."""
    made, counted = (join_of(method, options, 40, seed=3) for _ in range(2))
    for side, batch in script_of(stream(400, 20, 8), [6, 25]):
        name = ("left", "right")[side]
        found = Counter(pair[side] for pair in pairs_of(made.insert(name, batch)))
        assert counted.count(name, batch).tolist() == [found[row] for row in batch[name].to_pylist()]
    assert made.stats.results == counted.stats.results > 50
    assert list(made.snapshot()) == list(counted.snapshot())


def test_counting_where_pairs_must_be_tested_is_refused():
    op = ApproximateJoin(hr.all_of(hr.equal("k"), hr.compare("left", "<", "right")), tuples=10)
    with pytest.raises(BadInput, match="use insert"):
        op.count("left", batch_of(0, [1], [1]))
