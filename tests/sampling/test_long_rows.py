"""Rows of very different lengths: samples keep to their memory and go on, and results are bounded in bytes."""

import re

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.sampling import ApproximateJoin, FairWindow, Reservoir, WindowJoin

MEMORY = 4 << 20
LONG = 300_000
OPERATORS = {
    "Reservoir": lambda memory: Reservoir(memory=memory),
    "FairWindow": lambda memory: FairWindow(memory=memory, window=hr.rows(10_000)),
    "WindowJoin": lambda memory: WindowJoin(hr.equal("k"), window=hr.rows(10_000), memory=memory),
    "ApproximateJoin": lambda memory: ApproximateJoin(hr.equal("k"), memory=memory),
}


def _batch(number, rows=200, long=2):
    """Rows of few bytes, and some long ones that are not the same in any two batches."""
    rng = np.random.default_rng(number)
    text = ["short"] * rows
    for i in rng.choice(rows, long, replace=False).tolist():
        text[i] = "x" * int(rng.integers(LONG // 10, LONG))
    return pa.record_batch({"k": rng.integers(0, 1_000, rows), "t": text})


@pytest.mark.parametrize("kind", OPERATORS)
def test_contract_a_few_long_rows_are_sampled_like_others(kind):
    op = OPERATORS[kind](MEMORY)
    for number in range(60):
        if kind in ("WindowJoin", "ApproximateJoin"):
            for side in ("left", "right"):
                for out in op.insert(side, _batch(2 * number + (side == "left"))):
                    assert out.num_rows == 1 or out.nbytes <= MEMORY // 8 + 2 * LONG
        else:
            op.insert(_batch(number))
        assert op.stats.memory_peak <= MEMORY
    kept = sum(op.stats.kept) if hasattr(op.stats, "kept") else op.stats.held
    assert kept > 10


@pytest.mark.parametrize("kind", ["WindowJoin", "ApproximateJoin"])
def test_contract_results_of_wide_rows_fit_working_memory(kind):
    op = OPERATORS[kind](MEMORY)
    largest = results = 0
    wide = {f"t{i}": ["x" * 500] * 50 for i in range(4)}
    for number in range(4):
        for side in ("left", "right"):
            batch = pa.record_batch({"k": np.full(50, 7), side: np.arange(50) + 50 * number, **wide})
            for out in op.insert(side, batch):
                results += out.num_rows
                largest = max(largest, out.nbytes)
    assert results > 10_000
    assert largest <= MEMORY // 8


@pytest.mark.parametrize("kind", OPERATORS)
def test_contract_a_row_too_long_for_the_memory_is_refused_with_what_would_do(kind):
    """It would drive the sample out before it is seen that nothing helps; a refusal leaves all as it was."""

    def insert(op, batch):
        if kind in ("WindowJoin", "ApproximateJoin"):
            assert list(op.insert("left", batch)) == []
        else:
            op.insert(batch)

    op = OPERATORS[kind]("1MiB")
    insert(op, _batch(0, long=0))
    before, row = dict(op.stats.memory), pa.record_batch({"k": [1], "t": ["x" * 3_000_000]})
    with pytest.raises(hr.MemoryRefused, match=r"too large for memory='1MiB'") as refused:
        insert(op, row)
    assert op.stats.memory == before
    enough = re.search(r"give at least ([\d.]+[MK]iB)", str(refused.value))
    larger = OPERATORS[kind](str(enough.group(1)))
    insert(larger, _batch(0, long=0))
    for _ in range(3):
        insert(larger, row)
    assert larger.stats.memory_peak <= larger.stats.memory_limit
