"""Encodings of a Parquet file, chosen for each column by a sample of its first row group.

Parquet writers try a dictionary for every column and give it up when it is full, which costs as much as all the rest where keys
are unique. Here a column gets a dictionary if one would halve it, and compression if that saves a tenth. The choice depends on
the rows alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_BLOCKS, _BLOCK = 8, 1024  # the sample: so many pieces of so many rows, evenly spread
_DICTIONARY = 1 << 20  # bytes of a dictionary, at which Arrow's writer gives it up
_PAYS = 0.5  # a dictionary that leaves more than this part of the bytes is not worth looking up every value
_SHRINKS = 0.9  # so is compression above this part: random numbers
_CODEC = "zstd"
_LEVEL = -5  # as many bytes as snappy leaves, in less time; every reader of zstd reads it


@dataclass(frozen=True)
class Encodings:
    """How the columns of a file are written; names are those of Parquet's leaf columns.

    Parameters
    ----------
    dictionary
        Columns with a dictionary.
    plain
        Columns that are not compressed.
    columns
        All columns.
    """

    dictionary: tuple[str, ...]
    plain: tuple[str, ...]
    columns: tuple[str, ...]

    @classmethod
    def of(cls, rows: pa.Table) -> Encodings:
        """The encodings for a file that begins with these rows."""
        sample = _sample(rows)
        dictionary, plain = [], []
        columns = [name for field in rows.schema for name in _leaves(field)]
        for field in rows.schema:
            if pa.types.is_nested(field.type):
                dictionary += _leaves(field)  # Arrow's own choice: try one, give it up when it is full
                continue
            column = sample.column(field.name).combine_chunks().drop_null()
            if _dictionary_pays(column, rows.num_rows):
                dictionary.append(field.name)
            elif not _compression_pays(column):
                plain.append(field.name)
        return cls(tuple(dictionary), tuple(plain), tuple(columns))

    def options(self) -> dict[str, Any]:
        """The same for `pq.ParquetWriter`."""
        compressed = [name for name in self.columns if name not in self.plain]
        return {
            "use_dictionary": list(self.dictionary),
            "compression": {name: "none" if name in self.plain else _CODEC for name in self.columns},
            "compression_level": dict.fromkeys(compressed, _LEVEL) or None,
        }


def _sample(rows: pa.Table) -> pa.Table:
    if rows.num_rows <= _BLOCKS * _BLOCK:
        return rows
    step = (rows.num_rows - _BLOCK) // (_BLOCKS - 1)
    return pa.concat_tables([rows.slice(i * step, _BLOCK) for i in range(_BLOCKS)])


def _dictionary_pays(column: pa.Array, rows: int) -> bool:
    """Whether a dictionary of the column, in a row group of so many rows, is small enough to be kept and to pay."""
    if len(column) == 0 or pa.types.is_boolean(column.type) or pa.types.is_null(column.type):
        return False
    width = float(column.nbytes / len(column))
    distinct = _distinct(column, rows)
    index = math.ceil(math.log2(max(2, distinct))) / 8
    held: float = distinct * width
    return held <= _DICTIONARY and held + rows * index <= _PAYS * rows * width


def _distinct(column: pa.Array, rows: int) -> float:
    """Distinct values of so many rows, as Chao's estimator has it: those of the sample, and how many it has seen only once."""
    counts = pc.value_counts(column).field("counts")
    once, twice = (pc.sum(pc.equal(counts, n)).as_py() for n in (1, 2))
    unseen = once * (once - 1) / (2 * (twice + 1)) if rows > len(column) else 0
    return min(float(rows), len(counts) + unseen)


def _compression_pays(column: pa.Array) -> bool:
    values = column.buffers()[-1]
    if len(column) == 0 or values is None:
        return True
    left: int = pa.Codec(_CODEC, compression_level=_LEVEL).compress(values).size
    return left <= _SHRINKS * int(values.size)


def _leaves(field: pa.Field) -> list[str]:
    """Parquet's names for the columns that a field becomes."""
    if not pa.types.is_nested(field.type):
        return [field.name]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.schema([field]).empty_table(), sink)  # files: memory
    schema = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema  # files: memory
    return [schema.column(i).path for i in range(len(schema))]
