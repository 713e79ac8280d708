"""Result batches are bounded in bytes: with long stream rows, long texts of the relation, and thousands of matches of a row."""

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.semistream import AdaptiveJoin

FORMS = {
    "whole": {"whole": True},
    "hot set": {"whole": False, "order": "any"},
    "hot set, in order": {"whole": False, "order": "stream"},
}


def _largest_result(op, batches):
    """Bytes of the largest result batch of more than one row, and the rows of all."""
    largest = rows = 0
    for out in op.run(batches):
        rows += out.num_rows
        if out.num_rows > 1:
            largest = max(largest, out.nbytes)
    return largest, rows


@pytest.mark.parametrize("form", FORMS)
def test_contract_a_long_row_with_many_matches_leaves_in_batches_that_fit_the_output(ram_path, form):
    keys = np.concatenate([np.zeros(10_000, np.int64), np.arange(1, 20_000)])
    rows = pa.table({"k": keys, "v": np.arange(keys.size), "w": np.arange(keys.size) / 2})
    with hr.Relation.create(ram_path / "r", rows, key="k", shards=1) as relation:
        op = AdaptiveJoin(relation, on="k", memory="4MiB", **FORMS[form])
        stream = pa.record_batch({"k": [0, 5, 0, 7], "t": ["long" * 2_500] * 4})
        largest, many = _largest_result(op, [stream] * 3)
    assert many == 3 * 20_002
    room = op.budget.peak_by_part["output"]
    assert 0 < largest <= 1.1 * room + 11_000, f"{largest:,} bytes, where {room:,} are there for results"


@pytest.mark.parametrize("form", FORMS)
def test_contract_a_long_text_that_many_rows_ask_for_leaves_in_batches_that_fit_the_output(ram_path, form):
    texts = ["short"] * 2_000 + ["x" * 200_000]
    rows = pa.table({"k": np.arange(2_001), "t": texts})
    with hr.Relation.create(ram_path / "r", rows, key="k", shards=1, page_size="256KiB") as relation:
        op = AdaptiveJoin(relation, on="k", memory="6MiB", **FORMS[form])
        asked = np.where(np.arange(400) % 2, 2_000, np.arange(400))
        largest, many = _largest_result(op, [pa.record_batch({"k": asked})] * 2)
    assert many == 800
    room = op.budget.peak_by_part["output"]
    assert 0 < largest <= room + relation.page_size, f"{largest:,} bytes, where {room:,} are there for results"


def test_contract_rows_that_get_longer_do_not_wait_beyond_the_stream_buffer(ram_path):
    rows = pa.table({"k": np.arange(50_000), "v": np.arange(50_000)})
    rng = np.random.default_rng(1)
    with hr.Relation.create(ram_path / "r", rows, key="k", shards=1) as relation:
        op = AdaptiveJoin(relation, on="k", memory="2MiB", whole=False, order="any")
        for _ in range(20):
            op.offer(pa.record_batch({"k": rng.integers(0, 50_000, 500), "t": ["short"] * 500}))
            for _ in op.advance():
                pass
        for _ in range(8):
            op.offer(pa.record_batch({"k": rng.integers(0, 50_000, 500), "t": ["long" * 500] * 500}))
            for _ in op.advance():
                pass
        waiting = op.let_wait()
    assert waiting is None or waiting.nbytes <= op.stats.memory["stream buffer"]
