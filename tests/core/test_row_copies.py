"""The bytes of single rows, and how rows are divided by them."""

from datetime import date

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.row_copies import copied_bytes, cuts, largest_row, row_sizes, take

TEXTS = ["", "a", None, "four", "x" * 1000, "ü" * 7]
COLUMNS = {
    "number": (pa.array([1, 2, None, 4, 5, 6]), [8] * 6),
    "truth": (pa.array([True, False, None, True, True, False]), [1] * 6),
    "day": (pa.array([date(2020, 1, 1)] * 6), [4] * 6),
    "text": (pa.array(TEXTS), [4 + len((text or "").encode()) for text in TEXTS]),
    "large text": (pa.array(TEXTS, pa.large_string()), [8 + len((text or "").encode()) for text in TEXTS]),
    "binary": (pa.array([b"12", b"", b"1", b"", b"", b"123"], pa.binary()), [6, 4, 5, 4, 4, 7]),
    "same": (pa.array(["a", "b", "a", None, "a", "b"]).dictionary_encode(), [4] * 6),
    "numbers": (pa.array([[1, 2], [], None, [3], [4] * 10, []], pa.list_(pa.int16())), [8, 4, 4, 6, 24, 4]),
    "texts": (pa.array([["ab"], [], ["a", "b"], None, [""], []]), [10, 4, 14, 4, 8, 4]),
    "pair": (pa.array([{"a": 1, "b": "xy"}, {"a": 2, "b": ""}] * 3), [14, 12] * 3),
    "map": (
        pa.array([[("k", 1)], [], [("kk", 2), ("", 3)], [], [], []], pa.map_(pa.string(), pa.int64())),
        [17, 4, 30, 4, 4, 4],
    ),
    "nothing": (pa.nulls(6), [0] * 6),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_oracle_sizes_of_rows_are_those_of_their_values(kind):
    column, expected = COLUMNS[kind]
    if kind == "nothing":
        expected = [column.nbytes // 6 + 1] * 6
    batch = pa.record_batch({"a": column, "k": np.arange(6)})
    assert row_sizes(batch).tolist() == [size + 8 for size in expected]
    assert row_sizes(batch.slice(2, 3)).tolist() == [size + 8 for size in expected[2:5]]
    assert row_sizes(batch, np.array([4, 0, 4])).tolist() == [expected[i] + 8 for i in (4, 0, 4)]
    assert largest_row(batch) == max(expected) + 8
    assert row_sizes(batch.slice(6)).tolist() == []


def test_oracle_a_copy_of_rows_takes_no_more_than_was_said():
    batch = pa.record_batch({name: column for name, (column, _) in COLUMNS.items()})
    for rows in (np.arange(6), np.array([4]), np.array([4, 4, 4, 1]), np.array([], np.int64)):
        assert take(batch, rows).nbytes <= copied_bytes(batch, rows)


@given(sizes=st.lists(st.integers(0, 20), max_size=30), room=st.integers(1, 30))
def test_oracle_cuts_are_all_rows_and_each_fits_or_is_one_row(sizes, room):
    parts = list(cuts(np.array(sizes, np.int64), room))
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(len(sizes)))
    for part in parts:
        assert part.stop - part.start == 1 or sum(sizes[part]) <= room
        assert part.stop == len(sizes) or sum(sizes[part.start : part.stop + 1]) > room, "one more would have fitted"
