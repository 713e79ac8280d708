"""Conditions on texts and functions of the user, beside an equality of two streams."""

from __future__ import annotations

from collections import Counter
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headrace as hr
from headrace.errors import BadInput
from headrace.progressive import ProgressiveJoin
from tests.support.condition_cases import holds
from tests.support.similar_texts import random_texts


def longer(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.Array:
    return pc.greater(pc.utf8_length(left["s"]), pc.utf8_length(right["t"]))


@pytest.mark.parametrize(
    "condition",
    [
        hr.edit_distance("s", "t", at_most=2),
        hr.jaccard("s", "t", at_least=0.5, q=2),
        hr.compare("s", "<", "t"),
        hr.predicate(longer, "s", right="t"),
    ],
    ids=lambda condition: type(condition).__name__,
)
def test_oracle_beside_an_equality(condition):
    random, n = Random(3), 300
    texts = random_texts(random, 2 * n)
    left = pa.table({"k": [random.randrange(20) for _ in range(n)], "s": texts[:n]})
    right = pa.table({"k": [random.randrange(20) for _ in range(n)], "t": texts[n:]})
    op, out = ProgressiveJoin(hr.all_of(hr.equal("k"), condition), memory="256KiB"), []
    for a in range(0, n, 50):
        for side, table in (("left", left), ("right", right)):
            for batch in table.slice(a, 50).to_batches():
                out += op.insert(side, batch)
    out += op.finish()
    pairs = [(x, y) for x in left.to_pylist() for y in right.to_pylist() if x["k"] == y["k"] and holds(condition, x, y)]
    assert Counter(tuple(r.values()) for b in out for r in b.to_pylist()) == Counter(
        (*x.values(), y["t"]) for x, y in pairs
    )
    assert pairs


def test_texts_alone_do_not_divide_two_streams():
    with pytest.raises(BadInput, match=r"EditDistance.* cannot divide two streams; use equal"):
        ProgressiveJoin(hr.edit_distance("s", at_most=1))
