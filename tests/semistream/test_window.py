"""The columns of stream tuples that wait: by slot and in batches, against a plain dictionary."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import BadInput
from headrace.semistream import SSIJ, HybridJoin, MeshJoin
from headrace.semistream.hash_queue import HashQueue
from headrace.semistream.slot_window import SlotWindow
from headrace.semistream.stream_window import StreamWindow

ALPHABET = pa.array(["a", "b", "c"])


def batch(rng: np.random.Generator, rows: int, nulls: float) -> pa.RecordBatch:
    """Every kind of width, more columns than a byte has bits, and types that do not fit a slot."""
    n = rng.integers(-100, 100, rows)
    mask = lambda: rng.random(rows) < nulls  # noqa: E731
    day = datetime.date(2026, 1, 1)
    columns = {
        "i8": pa.array(n, pa.int8(), mask=mask()),
        "i16": pa.array(n, pa.int16(), mask=mask()),
        "f4": pa.array(n.astype(np.float32), mask=mask()),
        "i64": pa.array(n * 10**12, mask=mask()),
        "flag": pa.array(n > 0, mask=mask()),
        "half": pa.array(n.astype(np.float16), mask=mask()),
        "d128": pa.array([decimal.Decimal(int(x)) / 4 for x in n], pa.decimal128(30, 2), mask=mask()),
        "d256": pa.array([decimal.Decimal(int(x)) / 4 for x in n], pa.decimal256(60, 2), mask=mask()),
        "day": pa.array([day + datetime.timedelta(int(x)) for x in n], mask=mask()),
        "at": pa.array(n, pa.timestamp("us", "UTC"), mask=mask()),
        "interval": pa.array([(int(x), 1, 2) for x in n], pa.month_day_nano_interval(), mask=mask()),
        "text": pa.array([f"text {x}" * (x % 3) for x in n], mask=mask()),
        "fixed": pa.array([b"%07d" % abs(x) for x in n], pa.binary(7), mask=mask()),
        "none": pa.array([b""] * rows, pa.binary(0), mask=mask()),
        "list": pa.array([list(range(x % 4)) for x in n], pa.list_(pa.int32()), mask=mask()),
        "word": pa.DictionaryArray.from_arrays(pa.array(n % 3, pa.int32(), mask=mask()), ALPHABET),
        "nothing": pa.nulls(rows),
    }
    return pa.record_batch(columns)


@pytest.mark.parametrize("nulls", [0.0, 0.3])
@pytest.mark.parametrize("by_slot", [True, False])
def test_oracle_tuples_come_back_as_they_went_in(by_slot, nulls):
    rng = np.random.default_rng(int(10 * nulls))
    H = HashQueue(60)
    window = SlotWindow(batch(rng, 1, 0).schema, 60) if by_slot else StreamWindow()
    held, next_number = {}, 0
    for step in range(120):
        count = int(rng.integers(0, H.room + 1)) if step % 3 else 0
        if count:
            whole = batch(rng, count + 5, nulls if step > 20 else 0.0)
            new = whole.slice(2, count)  # a slice begins at an offset
            numbers = np.arange(next_number, next_number + count)
            next_number += count
            slots = H.insert(numbers.astype(np.uint64), numbers, 0.0)
            window.enter(new, numbers, slots)
            held.update(zip(slots.tolist(), new.to_pylist(), strict=True))
        if step % 40 == 39:
            before = H.oldest(H.used)
            H.resize(60 + step)
            after = H.oldest(H.used)
            window.resize(H.capacity, before, after)
            held = dict(zip(after.tolist(), [held[s] for s in before.tolist()], strict=True))
        slots = rng.permutation(H.oldest(H.used)).astype(np.int32)
        if slots.size:
            some = rng.choice(slots, 2 * slots.size)  # a tuple may be asked for more than once
            assert window.take(H.number[some], some).to_pylist() == [held[s] for s in some.tolist()]
        gone = slots[: int(rng.integers(0, slots.size + 1))]
        numbers = H.number[gone].copy()
        H.remove(gone)
        if gone.size:
            window.leave(numbers)
    assert next_number > 500


def test_a_slice_does_not_keep_its_whole_batch_alive():
    whole = pa.record_batch({"k": np.arange(100_000), "text": ["some text"] * 100_000})
    before = pa.total_allocated_bytes()
    window = StreamWindow()
    window.enter(whole.slice(50_000, 100), np.arange(100), np.arange(100, dtype=np.int32))
    del whole
    assert pa.total_allocated_bytes() - before < 10_000
    assert window.take(np.array([7]), np.array([7], np.int32)).to_pylist() == [{"k": 50_007, "text": "some text"}]


def test_slots_that_are_free_take_memory_of_a_known_size():
    schema = pa.schema([("k", pa.int64()), ("flag", pa.bool_()), *((f"n{i}", pa.int32()) for i in range(8))])
    window = SlotWindow(schema, 1000)
    held = sum(values.nbytes for values in window._values) + window._nulls.nbytes
    arrow = 8 + 8 * 4  # a flag is a bit there
    assert held == 1000 * (arrow + SlotWindow.more_bytes(schema) + 1)


@pytest.mark.parametrize("kind", [MeshJoin, HybridJoin, SSIJ])
def test_a_stream_may_change_its_columns_when_nothing_waits(tmp_path, kind):
    rows = pa.table({"k": range(50), "v": range(50)})
    op = kind(hr.Relation.create(tmp_path / "r", rows, key="k", page_size="4KiB"), on="k", memory="1MiB")
    first, second = pa.record_batch({"k": [1, 2]}), pa.record_batch({"k": pa.array([3], pa.int32()), "s": ["x"]})
    assert pa.Table.from_batches(op.join(first)).sort_by("k").to_pydict() == {"k": [1, 2], "v": [1, 2]}
    assert pa.Table.from_batches(op.join(second)).to_pydict() == {"k": [3], "s": ["x"], "v": [3]}
    op.offer(second)
    with pytest.raises(
        BadInput, match=r"are k \(int64\) now and were k \(int32\), s \(string\), and 1 tuples of before"
    ):
        op.offer(first)
    assert pa.Table.from_batches(op.drain()).to_pydict() == {"k": [3], "s": ["x"], "v": [3]}
