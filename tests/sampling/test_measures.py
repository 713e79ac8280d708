"""Measures of the part of a join that was made: by hand, by the definitions, and over time."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import BadInput
from headrace.sampling import ApproximateJoin
from headrace.sampling.measures import JoinQuality, jensen_shannon, mse_sum, quantity

counts = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=8)


def entropy(p):
    return -sum(x * math.log(x) for x in p if x > 0)


@given(counts)
def test_oracle_the_definitions(pairs):
    """The divergence is the entropy of the mean, less the mean of the entropies."""
    complete, part = np.array(pairs).T
    if not complete.sum() or not part.sum():
        assert math.isnan(jensen_shannon(complete, part)) and math.isnan(mse_sum(complete, part))
        return
    p, q = complete / complete.sum(), part / part.sum()
    expected = entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2
    assert jensen_shannon(complete, part) == pytest.approx(expected, abs=1e-12)
    assert mse_sum(complete, part) == pytest.approx(sum((a - b) ** 2 for a, b in zip(p, q, strict=True)))
    assert quantity(complete, part) == pytest.approx(part.sum() / complete.sum())


def test_before_the_first_result_nothing_is_known():
    assert quantity([3, 1], [0, 0]) == 0 and math.isnan(quantity([0, 0], [0, 0]))
    assert math.isnan(jensen_shannon([3, 1], [0, 0])) and math.isnan(mse_sum([3, 1], [0, 0]))


def test_the_sum_is_no_mean_and_the_divergence_is_in_nats():
    assert mse_sum([1, 0, 0, 0], [0, 1, 0, 0]) == 2.0
    assert jensen_shannon([1, 0], [0, 1]) == pytest.approx(math.log(2))


@pytest.mark.parametrize(("complete", "part"), [([1, 2], [1]), ([[1]], [[1]]), ([1, -2], [1, 1])])
def test_what_cannot_be_compared_is_refused(complete, part):
    with pytest.raises(BadInput, match="number"):
        jensen_shannon(complete, part)


@pytest.mark.parametrize("counting", [False, True])
def test_oracle_a_join_over_time(counting):
    """At each epoch, against what has come and against the end: from the pairs of an exact join."""
    rng = np.random.default_rng(1)
    exact = ApproximateJoin(hr.equal("k", "j"), method="exact")
    op = ApproximateJoin(hr.equal("k", "j"), tuples=30, method="prob", seed=2)
    measured, expected, frequencies = JoinQuality("k", "j"), [], []
    for at in range(1, 13):
        for side, name in (("left", "k"), ("right", "j")):
            keys = rng.integers(0, at + 2, 10)
            batch = pa.record_batch({name: pa.array(keys, mask=rng.random(10) < 0.1)})
            measured.arrived(side, batch)
            if counting:
                measured.counted(side, batch, op.count(side, batch))
            else:
                for results in op.insert(side, batch):
                    measured.made(results)
            expected += [key for results in exact.insert(side, batch) for key in results["k"].to_pylist()]
        measured.mark(at)
        made = dict(zip(measured.values, measured.results.tolist(), strict=True))
        frequencies.append((at, [expected.count(v) for v in range(20)], [made.get(v, 0) for v in range(20)]))
    for reference in ("now", "final"):
        table = measured.table(reference).to_pylist()
        for row, (at, complete, made) in zip(table, frequencies, strict=True):
            whole = complete if reference == "now" else frequencies[-1][1]
            assert row["at"] == at and row["results"] == sum(made)
            assert row["quantity"] == pytest.approx(quantity(whole, made))
            assert row["mse_sum"] == pytest.approx(mse_sum(whole, made))
            assert row["jensen_shannon"] == pytest.approx(jensen_shannon(whole, made))
    assert 0 < table[-1]["quantity"] < 1 and table[-1]["jensen_shannon"] > 0
