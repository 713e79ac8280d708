"""The relation R of the benchmarks: N rows of 115 bytes, each row a function of its key.

Keys are even and irregularly spaced over [0, 16 N), so every odd number in that range is an absent
key, and a result can be checked anywhere without keeping a second copy of R.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:  # compare runs this file with revisions that have no such module
    from headrace.arrays import Bools, Int64s, UInt8s, UInt64s


Records = npt.NDArray[np.void]

KEY_BYTES = 8
SPACING = 16  # one key in every 16 numbers
CHUNK = 250_000

#: A row without its key, packed: what the key-value stores hold as the value.
VALUE = np.dtype(
    [
        ("a", "<i8"),
        ("b", "<i8"),
        ("c", "<i4"),
        ("d", "<i4"),
        ("x", "<f8"),
        ("day", "<i4"),
        ("code", "u1", (15,)),
        ("text", "u1", (56,)),
    ]
)
ROW_BYTES = KEY_BYTES + VALUE.itemsize
assert ROW_BYTES == 115

PAYLOAD = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.int64()),
        ("c", pa.int32()),
        ("d", pa.int32()),
        ("x", pa.float64()),
        ("day", pa.date32()),
        ("code", pa.string()),
        ("text", pa.string()),
    ]
)
SCHEMA = pa.schema([pa.field("k", pa.int64()), *PAYLOAD])

_HEX = np.frombuffer("".join(f"{i:02x}" for i in range(256)).encode(), dtype="<u2")


@dataclass(frozen=True)
class Dataset:
    """R with its size, its seed and the directory its files live in."""

    rows: int
    seed: int
    root: Path

    @property
    def directory(self) -> Path:
        return self.root / f"r{self.rows}-s{self.seed}"

    @property
    def parquet(self) -> Path:
        return self.directory / "relation.parquet"

    @property
    def bytes(self) -> int:
        return self.rows * ROW_BYTES

    def keys(self, ranks: Int64s) -> Int64s:
        """The keys of the given ranks; a key grows with its rank."""
        jitter = _mix(ranks.astype(np.uint64), self.seed) & np.uint64(SPACING // 2 - 1)
        return ranks * SPACING + 2 * jitter.astype(np.int64)

    def contains(self, keys: Int64s) -> Bools:
        ranks = keys // SPACING
        known: Bools = (ranks >= 0) & (ranks < self.rows) & (self.keys(ranks) == keys)
        return known

    def values(self, keys: Int64s) -> Records:
        """The packed payload of the given keys."""
        words = keys.astype(np.uint64)
        out = np.empty(len(keys), VALUE)
        for salt, name in enumerate(("a", "b", "c", "d"), start=1):
            out[name] = _mix(words, salt).astype(np.int64).astype(VALUE[name], copy=False)
        out["x"] = (_mix(words, 5) >> np.uint64(11)) * 2.0**-53
        out["day"] = _mix(words, 6) % np.uint64(20_000)
        out["code"] = _hex(words, 7, 1)[:, :15]
        out["text"] = _hex(words, 8, 4)[:, :56]
        return out

    def sorted_chunks(self) -> Iterator[tuple[Int64s, Records]]:
        """R in key order, in bounded pieces: what a bulk loader of a sorted store wants."""
        for start in range(0, self.rows, CHUNK):
            keys = self.keys(np.arange(start, min(start + CHUNK, self.rows), dtype=np.int64))
            yield keys, self.values(keys)

    def write(self) -> Path:
        """Write R as Parquet, in random order, unless it is there already."""
        if self.parquet.exists():
            return self.parquet
        self.directory.mkdir(parents=True, exist_ok=True)
        order = np.random.default_rng(self.seed).permutation(self.rows)
        partial = self.parquet.with_suffix(".partial")
        # Uncompressed and without dictionaries: the file is as large as R says it is.
        with pq.ParquetWriter(partial, SCHEMA, compression="none", use_dictionary=False) as writer:
            for start in range(0, self.rows, CHUNK):
                keys = self.keys(order[start : start + CHUNK].astype(np.int64))
                columns = [pa.array(keys), *columns_of(self.values(keys))]
                writer.write_batch(pa.record_batch(columns, schema=SCHEMA))
        partial.replace(self.parquet)
        return self.parquet


def columns_of(records: Records, index: Int64s | None = None) -> list[pa.Array]:
    """Packed payloads as Arrow columns; with `index`, the records at these positions."""
    columns = []
    for field in PAYLOAD:
        part = records[field.name]
        part = np.ascontiguousarray(part) if index is None else part[index]
        if pa.types.is_string(field.type):
            width = part.shape[1]
            offsets = np.arange(0, (len(part) + 1) * width, width, dtype=np.int32)
            columns.append(pa.StringArray.from_buffers(len(part), pa.py_buffer(offsets), pa.py_buffer(part)))
        elif pa.types.is_date32(field.type):
            columns.append(pa.array(part).view(pa.date32()))
        else:
            columns.append(pa.array(part))
    return columns


def _mix(words: UInt64s, salt: int) -> UInt64s:
    """SplitMix64's finaliser over `words`, one independent function a salt."""
    z = words + np.uint64((salt + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _hex(words: UInt64s, salt: int, count: int) -> UInt8s:
    """`count` hashes of each word in hexadecimal: 16 characters a hash."""
    hashes = np.stack([_mix(words, salt + i) for i in range(count)], axis=1)
    return _HEX[hashes.view(np.uint8)].view(np.uint8)
