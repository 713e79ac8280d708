"""Rows found again by content, as multisets: against counting them one by one."""

import math
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.runlog import RowMultiset

SCHEMA = pa.schema(
    {
        "i": pa.int8(),
        "f": pa.float64(),
        "t": pa.string(),
        "b": pa.bool_(),
        "l": pa.list_(pa.int8()),
        "m": pa.map_(pa.string(), pa.int8()),
        "s": pa.struct({"x": pa.float32(), "y": pa.list_(pa.string())}),
        "d": pa.dictionary(pa.int8(), pa.string()),
        "n": pa.null(),
        "z": pa.list_(pa.float32(), 2),
    }
)
SMALL = st.sampled_from([None, 0, 1])
FLOAT = st.sampled_from([None, 0.0, -0.0, math.nan, 1.0])
TEXT = st.sampled_from([None, "", "a"])
ROW = st.fixed_dictionaries(
    {
        "i": SMALL,
        "f": FLOAT,
        "t": TEXT,
        "b": st.sampled_from([None, True, False]),
        "l": st.one_of(st.none(), st.lists(SMALL, max_size=2)),
        "m": st.one_of(st.none(), st.lists(st.tuples(st.sampled_from("ab"), SMALL), max_size=2)),
        "s": st.one_of(
            st.none(), st.fixed_dictionaries({"x": FLOAT, "y": st.one_of(st.none(), st.lists(TEXT, max_size=2))})
        ),
        "d": TEXT,
        "n": st.none(),
        "z": st.one_of(st.none(), st.lists(FLOAT, min_size=2, max_size=2)),
    }
)


def batch(rows, schema=SCHEMA):
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def texts(rows: pa.RecordBatch):
    return [repr(row) for row in rows.to_pylist()]  # repr tells 0.0 from -0.0


@given(st.data())
def test_oracle_multisets(data):
    pool = data.draw(st.lists(ROW, min_size=1, max_size=4))
    some = st.lists(st.sampled_from(pool), max_size=6)
    decided, parts = batch(data.draw(some)), [batch(data.draw(some)) for _ in range(3)]
    room, tested = Counter(texts(decided)), RowMultiset(pa.Table.from_batches([decided]))
    for part in parts:
        part = part.slice(data.draw(st.integers(0, 2)))
        expected = []
        for row in texts(part):
            expected.append(room[row] > 0)
            room[row] -= expected[-1]
        assert tested.take(part).tolist() == expected
    assert tested.left == room.total()


def test_rows_of_other_columns_are_refused():
    with pytest.raises(hr.RunLogError, match="rows have columns k string, decided ones have k int64"):
        RowMultiset(pa.table({"k": [1]})).take(pa.record_batch({"k": ["1"]}))


def test_many_columns_of_many_values():
    rows = pa.table({f"c{i}": list(range(500)) for i in range(30)})  # 500 ** 30 combinations
    tested = RowMultiset(rows.slice(0, 250))
    assert tested.take(rows.to_batches()[0]).sum() == 250
