"""Columns of the stream tuples that wait, in the slots that H gives them: a tuple takes its own bytes, and is copied once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import AnyArray, Int32s, Int64s, UInt8s
from headrace.relation.columns import NO_BYTES, NO_LONGS, Buffers, from_arrow, to_arrow, width_of
from headrace.semistream.stream_window import StreamWindow

_IN_BATCHES = 8 + 8  # of a tuple with columns in batches: its number there, and its share of tuples that left
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class SlotWindow:
    """Columns of waiting tuples: those of a fixed width by slot, the others in the batches they came in.

        slot     0 1 2 3 ...          text, lists, dictionaries: StreamWindow, by number
        id      [v v . v ...]
        amount  [v v . v ...]
        nulls   [bits, one a column]

    Parameters
    ----------
    schema
        Of the stream.
    capacity
        Slots.
    """

    def __init__(self, schema: pa.Schema, capacity: int) -> None:
        self._schema = schema
        self._fixed = [i for i, field in enumerate(schema) if _in_slots(field.type)]
        self._others = [i for i in range(len(schema)) if i not in self._fixed]
        self._values = [_room(schema.field(i).type, capacity) for i in self._fixed]
        self._nulls: UInt8s = np.zeros((len(self._fixed) + 7) // 8 * capacity, np.uint8)  # a plane for 8 columns
        self._capacity, self._held, self._null_seen = capacity, 0, False
        self._batches = StreamWindow()

    @staticmethod
    def more_bytes(schema: pa.Schema) -> int:
        """Bytes a tuple that it takes beyond what Arrow does, and the one for nulls that every slot has."""
        fixed = [field.type for field in schema if _in_slots(field.type)]
        in_batches = _IN_BATCHES if len(fixed) < len(schema) else 0
        return max(0, len(fixed) - 1) // 8 + sum(1 for type_ in fixed if pa.types.is_boolean(type_)) + in_batches

    @property
    def rows(self) -> int:
        """Tuples held; where some columns lie in batches, with those that left and were not dropped yet."""
        return self._batches.rows if self._others else self._held

    def enter(self, batch: pa.RecordBatch, numbers: Int64s, slots: Int32s) -> None:
        """Hold tuples with these numbers in these slots."""
        self._held += numbers.size
        for c, i in enumerate(self._fixed):
            buffers = from_arrow(batch.column(i))
            values = self._values[c]
            values[slots] = buffers.values.view(values.dtype).reshape(-1, *values.shape[1:])
            self._note_nulls(c, slots, buffers.valid)
        if self._others:
            self._batches.enter(batch.select(self._others), numbers, slots)

    def take(self, numbers: Int64s, slots: Int32s, names: Sequence[str] | None = None) -> pa.RecordBatch:
        """The tuples in these slots, in this order; all of their columns, or some."""
        wanted = range(len(self._schema)) if names is None else [self._schema.get_field_index(n) for n in names]
        arrays: dict[int, Any] = {}
        for c, i in enumerate(self._fixed):
            if i not in wanted:
                continue
            values = self._values[c][slots].view(np.uint8).reshape(-1)
            type_ = self._schema.field(i).type
            arrays[i] = to_arrow(type_, slots.size, Buffers(values, NO_LONGS, self._valid(c, slots)))
        others = [place for place, i in enumerate(self._others) if i in wanted]
        if others:
            for place, array in zip(others, self._batches.take(numbers, slots, others).columns, strict=True):
                arrays[self._others[place]] = array
        schema = self._schema if names is None else pa.schema([self._schema.field(i) for i in wanted])
        return pa.RecordBatch.from_arrays([arrays[i] for i in wanted], schema=schema)

    def leave(self, numbers: Int64s) -> None:
        """Tuples left; their slots may be given to others."""
        self._held -= numbers.size
        if self._others:
            self._batches.leave(numbers)

    def resize(self, capacity: int, before: Int32s, after: Int32s) -> None:
        """Other slots: the tuples in `before` are in `after` from now on."""
        for c, i in enumerate(self._fixed):
            values = _room(self._schema.field(i).type, capacity)
            values[after] = self._values[c][before]
            self._values[c] = values
        planes = (len(self._fixed) + 7) // 8
        nulls: UInt8s = np.zeros((planes, capacity), np.uint8)
        nulls[:, after] = self._nulls.reshape(planes, self._capacity)[:, before]
        self._nulls, self._capacity = nulls.reshape(-1), capacity

    def _note_nulls(self, c: int, slots: Int32s, valid: UInt8s) -> None:
        if not valid.size and not self._null_seen:
            return
        self._null_seen = True
        plane = self._nulls[c // 8 * self._capacity :][: self._capacity]
        bit = np.uint8(1 << c % 8)
        kept = plane[slots] & ~bit
        plane[slots] = kept | np.where(valid == 0, bit, np.uint8(0)) if valid.size else kept

    def _valid(self, c: int, slots: Int32s) -> UInt8s:
        if not self._null_seen:
            return NO_BYTES
        plane = self._nulls[c // 8 * self._capacity :][: self._capacity]
        valid: UInt8s = (plane[slots] & np.uint8(1 << c % 8) == 0).view(np.uint8)
        return valid


def _in_slots(type_: pa.DataType) -> bool:
    t = pa.types
    plain = t.is_integer(type_) or t.is_floating(type_) or t.is_decimal(type_) or t.is_temporal(type_)
    return bool(plain or t.is_boolean(type_) or (t.is_fixed_size_binary(type_) and type_.byte_width))


def _room(type_: pa.DataType, capacity: int) -> AnyArray:
    """An array for values of a type; those wider than a word are rows of words, or of bytes."""
    width = width_of(type_)
    if width in _WORDS:
        return np.empty(capacity, _WORDS[width])
    return np.empty((capacity, width), np.uint8) if width % 4 else np.empty((capacity, width // 4), np.uint32)
