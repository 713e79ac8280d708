"""Random relations and streams over tiny domains, and the join that loops: the oracle of every semi-stream join."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

KEY_KINDS: dict[str, tuple[list[pa.DataType], Any]] = {
    "int8": ([pa.int8()], lambda i: (i % 256 - 128,)),
    "int16": ([pa.int16()], lambda i: (i - 7,)),
    "int32": ([pa.int32()], lambda i: (i * 100_003 - 5,)),
    "int64": ([pa.int64()], lambda i: (i * (1 << 40) - (1 << 60),)),
    "string": ([pa.string()], lambda i: ("é" * (i % 4) + str(i),)),
    "binary": ([pa.binary()], lambda i: (b"\x00\xff" * (i % 3) + bytes([i % 251, i // 251]),)),
    "date": ([pa.date32()], lambda i: (date(1969, 12, 20) + timedelta(i),)),
    "timestamp": ([pa.timestamp("us")], lambda i: (datetime(1969, 12, 31, 23) + timedelta(minutes=7 * i),)),
    "timestamp_tz": ([pa.timestamp("us", "UTC")], lambda i: (datetime(2024, 1, 1) + timedelta(seconds=i),)),
    "decimal": ([pa.decimal128(10, 2)], lambda i: (Decimal(i - 3) / 4,)),
    "wide_decimal": ([pa.decimal128(38, 4)], lambda i: (Decimal(i - 3) * Decimal("123456789012345678901234.5"),)),
    "composite": ([pa.int64(), pa.string()], lambda i: (i % 3 - 1, "x\0" * (i % 2) + str(i))),
    "three": (
        [pa.string(), pa.date32(), pa.decimal128(30, 0)],
        lambda i: ("ab"[: i % 3], date(2020, 1, 1 + i % 5), Decimal(i)),
    ),
}


@dataclass
class Case:
    """A relation's rows, a stream's batches and the key columns' names."""

    kind: str
    key: list[str]
    rows: pa.Table
    batches: list[pa.RecordBatch]
    random: Random


def table(kind: str, numbers: list[int], random: Random, nulls: float = 0.0, tag: str = "") -> pa.Table:
    types, make = KEY_KINDS[kind]
    keys = [make(i) for i in numbers]
    columns = {}
    for j, type_ in enumerate(types):
        values = [None if random.random() < nulls else key[j] for key in keys]
        columns[f"k{j}"] = pa.array(values, type_)
    n = len(numbers)
    columns["v"] = pa.array([None if random.random() < 0.2 else random.randrange(1000) for _ in range(n)], pa.int64())
    texts = [None if random.random() < 0.1 else tag + "z" * random.randrange(30) for _ in range(n)]
    columns["s"] = pa.array(texts, pa.string())
    columns["b"] = pa.array([random.random() < 0.5 for _ in range(n)], pa.bool_())
    return pa.table(columns)


def make_case(seed: int, kind: str | None = None) -> Case:
    random = Random(seed)
    kind = kind or random.choice(sorted(KEY_KINDS))
    domain = random.choice([1, 3, 20, 200, 3000])
    if kind == "int8":
        domain = min(domain, 200)
    size = random.choice([0, 1, 50, 1000, 4000])
    rows = table(kind, [random.randrange(domain) for _ in range(size)], random, tag="r")
    length = random.choice([1, 100, 2000]) if size / domain < 200 else 10
    batches = []
    for _ in range(random.choice([1, 4, 12])):
        n = random.choice([0, 1, length, length])
        numbers = [
            int(random.paretovariate(1)) % (domain + 3)
            if random.random() < 0.5
            else random.randrange(domain * 4 // 3 + 1)
            for _ in range(n)
        ]
        part = table(kind, numbers, random, nulls=random.choice([0.0, 0.1]), tag="s").combine_chunks()
        batches.append(pa.RecordBatch.from_arrays([c.combine_chunks() for c in part.columns], schema=part.schema))
    return Case(kind, [name for name in rows.schema.names if name.startswith("k")], rows, batches, random)


def join(rows: pa.Table, batches: list[pa.RecordBatch], key: list[str], how: str, columns: list[str]) -> list[tuple]:
    """Results in stream order and, for one stream tuple, in the order of `rows`."""
    matches: dict[tuple, list[tuple]] = {}
    for row in rows.to_pylist():
        matches.setdefault(tuple(row[k] for k in key), []).append(tuple(row[c] for c in columns))
    out = []
    for batch in batches:
        for row in batch.to_pylist():
            k, base = tuple(row[c] for c in key), tuple(row.values())
            found = [] if None in k else matches.get(k, [])
            if how == "semi":
                out += [base] if found else []
            elif how == "anti":
                out += [] if found else [base]
            else:
                out += [base + match for match in found]
                if how == "left" and not found:
                    out.append(base + (None,) * len(columns))
    return out


def tuples(batches: Any) -> list[tuple]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def keyed(rng, keys: int, rows: int) -> pa.RecordBatch:
    """20 bytes a stream tuple, all with a match."""
    return pa.record_batch({"k": rng.integers(0, keys, rows), "a": rng.random(rows), "b": np.zeros(rows, np.int32)})
