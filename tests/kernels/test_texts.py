"""Facts and grams of texts beside plain Python."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from headrace.kernels.texts import FACTS, expand_similar, gram_sets, may_match, similar, text_facts
from headrace.relation.columns import address, from_arrow
from tests.support.similar_texts import edits, grams, random_text, similarity


def kernel_inputs(texts: list[str]) -> tuple[int, np.ndarray, object]:
    buffers = from_arrow(pa.array(texts, pa.string()))
    return address(buffers.values), buffers.offsets, buffers


def facts_of(texts: list[str], q: int, as_set: bool) -> np.ndarray:
    data, offsets, alive = kernel_inputs(texts)
    facts = np.empty(FACTS * len(texts), np.int64)
    text_facts(
        data, offsets, q, as_set, np.empty(1 + max((len(t.encode()) for t in texts), default=0), np.uint64), facts
    )
    assert alive is not None
    return facts


def sets_of(texts: list[str], q: int) -> tuple[np.ndarray, np.ndarray]:
    data, offsets, alive = kernel_inputs(texts)
    out, ends = np.empty(1 + int(offsets[-1] - offsets[0]), np.uint64), np.empty(len(texts) + 1, np.int64)
    gram_sets(data, offsets, q, out, ends)
    assert alive is not None
    return out, ends


@pytest.mark.parametrize("q", [1, 2, 3])
def test_grams_and_sizes(q: int) -> None:
    random = Random(q)
    texts = ["", "a", "ab", "aa", "aaa", "aaaa", "é", "€uro", "👍👍👍", "a👍é€"] + [
        random_text(random) for _ in range(300)
    ]
    packed, ends = sets_of(texts, q)
    spelt = [
        {tuple((int(g) >> 21 * k & 0x1FFFFF) - 1 for k in range(q)) for g in packed[a:b]} for a, b in pairwise(ends)
    ]
    assert spelt == [{(*reversed([ord(c) for c in g]), *[-1] * (q - len(g))) for g in grams(t, q)} for t in texts]
    assert facts_of(texts, q, True)[::FACTS].tolist() == [len(grams(t, q)) for t in texts]
    assert facts_of(texts, q, False)[::FACTS].tolist() == [len(t) for t in texts]


def expanded(facts: np.ndarray, n: int, edits_: int, least: float) -> set[tuple[int, int]]:
    """All pairs that the enumeration gives, in outputs of 100 pairs."""
    begin, end, stop, found = np.zeros(n, np.int64), np.full(n, n, np.int64), np.zeros(2, np.int64), []
    while stop[0] < n:
        r, slots = np.empty(100, np.int32), np.empty(100, np.int32)
        m = expand_similar(begin, end, np.arange(n, dtype=np.int32), facts, facts, edits_, least, stop, r, slots)
        found += zip(r[:m], slots[:m], strict=True)
    assert len(set(found)) == len(found)
    return set(found)


def test_filters_lose_no_pair_and_pass_over_most() -> None:
    random = Random(7)
    base = [random_text(random, 4, 25) for _ in range(30)]
    texts = base + [random_text(random, near=random.choice(base)) for _ in range(120)] + ["", "a"]
    n = len(texts)
    i, j = (a.ravel().astype(np.int32) for a in np.indices((n, n)))
    apart = [edits(texts[a], texts[b]) for a, b in zip(i, j, strict=True)]
    facts = facts_of(texts, 2, False)
    for most in (0, 1, 3):
        keep = np.ones(n * n, np.uint8)
        may_match(facts, facts, most, 0.0, j, i, keep)
        assert expanded(facts, n, most, 0.0) == set(zip(j[keep == 1], i[keep == 1], strict=True))
        assert all(keep[k] for k in range(n * n) if apart[k] <= most)
        assert keep.sum() < n * n / 4
    for q in (1, 2, 3):
        facts, (sets, ends) = facts_of(texts, q, True), sets_of(texts, q)
        alike = [similarity(texts[a], texts[b], q) for a, b in zip(i, j, strict=True)]
        for least in (0.3, 0.5, 2 / 3, 1.0):
            keep, exact = np.ones(n * n, np.uint8), np.ones(n * n, np.uint8)
            may_match(facts, facts, -1, least, j, i, keep)
            assert expanded(facts, n, -1, least) == set(zip(j[keep == 1], i[keep == 1], strict=True))
            similar(sets, ends, sets, ends, i, j, least, exact)
            assert exact.tolist() == [int(s >= least) for s in alike]
            assert (keep >= exact).all()
        assert keep.sum() < n * n / 4


def test_bytes_that_are_not_utf8_are_read_within_their_text() -> None:
    raw = np.frombuffer(b"\xf0\x9f\xffab\xe2", np.uint8)
    out, ends = np.empty(16, np.uint64), np.empty(3, np.int64)
    gram_sets(address(raw), np.array([0, 2, 6], np.int64), 1, out, ends)
    assert ends.tolist() == [0, 2, 6]
    assert sorted(int(g) - 1 for g in out[:2]) == [0x110000 + 0x9F, 0x110000 + 0xF0]
