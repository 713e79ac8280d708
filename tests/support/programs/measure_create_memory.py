"""A child process: how far does its memory grow while it creates a relation? Prints bytes, as JSON.

    python measure_create_memory.py PATH ROWS MEMORY SKEW TEXT

The rows have 32 bytes and a text of TEXT; they are made batch by batch, so that the source holds next
to nothing. SKEW is the share of rows that have one and the same key.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import headrace as hr

SCHEMA = pa.schema({"k": pa.int64(), "a": pa.int64(), "b": pa.float64(), "s": pa.string()})
BATCH = 5_000_000  # bytes


def batches(rows: int, skew: float, size: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(1)
    step = BATCH // (32 + size)
    for start in range(0, rows, step):
        n = min(step, rows - start)
        number = np.arange(start, start + n)
        keys = (number * 2654435761) % (1 << 40)  # far apart and in no order
        keys[rng.random(n) < skew] = 7
        text = rng.integers(97, 123, n * size, np.uint8)
        offsets = np.arange(n + 1, dtype=np.int32) * size
        s = pa.Array.from_buffers(pa.string(), n, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
        columns = [pa.array(keys), pa.array(number), pa.array(number / 3), s]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def main(path: str, rows: str, memory: str, skew: str, text: str) -> None:
    hr.Relation.create(f"{path}-warm", pa.table({"k": [1], "s": ["x"]}), key="k").lookup([1])
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches(int(rows), float(skew), int(text)))
    rel = hr.Relation.create(path, reader, key="k", memory=memory, page_size="16KiB")
    peak = status("VmHWM")
    found = {"rows": rel.num_rows, "distinct": rel.distinct_keys, "growth": peak - before}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
