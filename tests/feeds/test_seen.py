"""Items seen against a plain dictionary, and how long they are kept."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.feeds.seen import NOTHING_SEEN, pair_column, pair_up, pairs_of

HORIZON = 10.0


def hashes(numbers):
    # Zeros at the end and in the middle: NumPy takes zeros at the end of a text for its padding.
    return pa.array([bytes([n % 3, 0, n]) + bytes(13) for n in numbers], pa.binary(16))


def document(items):
    return pair_up(hashes([identity for identity, _ in items]), hashes([content for _, content in items]))


documents = st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=8), max_size=8)


@settings(max_examples=25)
@given(
    documents,
    st.sampled_from(["append", "ignore"]),
    st.lists(st.sampled_from([1.0, 6.0, 11.0]), min_size=8, max_size=8),
)
def test_oracle_new_and_changed_items_are_those_of_a_dictionary(docs, on_change, gaps):
    seen, known, now = NOTHING_SEEN, {}, 0.0  # of each pair: when it was last in the current document
    current = set()
    for doc, gap in zip(docs, gaps, strict=False):
        now += gap
        positions, changed = seen.fresh(document(doc), on_change)
        expected, expected_changed, before = [], [], set()
        identities = {identity for identity, _ in known}
        for i, pair in enumerate(doc):
            again = pair[0] in identities or any(pair[0] == other[0] for other in before)
            if pair not in before and (not again if on_change == "ignore" else pair not in known):
                expected.append(i)
                expected_changed.append(again)
            before.add(pair)
        assert positions.tolist() == expected
        assert changed.tolist() == expected_changed
        for pair in current | set(doc):
            known[pair] = now
        current = set(doc)
        known = {pair: last for pair, last in known.items() if pair in current or last >= now - HORIZON}
        seen = seen.after(document(doc), now, HORIZON)
        assert sorted(seen.pairs.tolist()) == sorted(document(sorted(known)).tolist())


def test_an_item_is_kept_while_it_is_in_the_document_and_for_the_horizon_after():
    seen = NOTHING_SEEN.after(document([(1, 1), (2, 2)]), 0.0, HORIZON)
    seen = seen.after(document([(1, 1)]), 100.0, HORIZON)  # 2 was in the current document until now
    assert len(seen.after(document([(1, 1)]), 109.0, HORIZON).pairs) == 2
    seen = seen.after(document([(1, 1)]), 111.0, HORIZON)
    assert len(seen.pairs) == 1
    assert seen.fresh(document([(2, 2)]), "append")[0].tolist() == [0]


def test_items_of_the_log_are_added_and_what_was_current_stays_so():
    seen = NOTHING_SEEN.after(document([(1, 1)]), 0.0, HORIZON).added(document([(2, 2)]), 50.0)
    assert seen.fresh(document([(1, 1), (2, 2)]), "append")[0].tolist() == []
    assert len(seen.after(document([]), 100.0, HORIZON).pairs) == 2


@pytest.mark.parametrize("count", [0, 1, 5])
def test_pairs_come_back_from_a_column(count):
    pairs = document([(i, i) for i in range(count)])
    column = pair_column(pairs)
    assert column.type == pa.binary(32)
    assert np.array_equal(pairs_of(column), pairs)
    assert np.array_equal(pairs_of(column.slice(1)), pairs[1:])
