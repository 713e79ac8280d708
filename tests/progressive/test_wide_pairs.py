"""Results of pairs are bounded in bytes, however long the rows are that meet."""

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.progressive import ProgressiveJoin

LONG = 60_000  # bytes of a text
MEMORY = 8 << 20


def _batch(side, at, rows, texts):
    """Rows of which every sixteenth has the one key that all such rows have, and a long text."""
    number = np.arange(at, at + rows)
    special = number % 16 == 0
    text = ["x" * LONG if long and texts else "" for long in special.tolist()]
    return pa.record_batch({"k": np.where(special, -1, number), side: number, f"t{side}": text})


@pytest.mark.parametrize("when", ["in memory", "from disk"])
def test_contract_long_rows_that_meet_leave_in_batches_that_fit_working_memory(tmp_path, when):
    op = ProgressiveJoin(hr.equal("k"), memory=MEMORY, spill=tmp_path, capacity=None if when == "in memory" else 512)
    largest = results = 0

    def seen(batches):
        nonlocal largest, results
        for out in batches:
            results += out.num_rows
            if out.num_rows > 1:
                largest = max(largest, out.nbytes)

    for at in range(0, 1024, 256):
        seen(op.insert("left", _batch("left", at, 256, texts=True)))
        seen(op.insert("right", _batch("right", at, 256, texts=at >= 512)))
    seen(op.idle(None))
    seen(op.finish())
    assert results == 1024 - 64 + 64 * 64
    if when == "from disk":
        assert op.stats.memory_disk + op.stats.disk_disk > 200
    # When both streams have ended, half of the memory is working memory.
    assert 0 < largest <= MEMORY // 16 + 2 * LONG
