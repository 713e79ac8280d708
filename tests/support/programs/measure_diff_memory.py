"""A child process: how far does its memory grow while it compares two snapshots? Prints what it found, as JSON.

    python measure_diff_memory.py DIRECTORY ROWS MEMORY

Rows have about 120 bytes. Of the new snapshot one row in 100 is new, one in 50 has another text, and one old row in 100 is gone.
"""

import json
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

import headrace as hr
from tests.support.programs.measure_create_memory import status

SCHEMA = pa.schema({"k": pa.int64(), "a": pa.float64(), "s": pa.string()})
STEP = 40_000


def batches(rows: int, new: bool) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, STEP):
        number = np.arange(start, min(rows, start + STEP))
        keys = (number * 2654435761) % (1 << 40)  # far apart and in no order
        if new:
            keys = np.where(number % 100 == 7, keys + (1 << 41), keys)
        size = 100
        text = np.full((number.size, size), 97, np.uint8)
        text[:, 0] += (number % 20).astype(np.uint8)
        text[:, 1] += ((number % 50 == 3) & new).astype(np.uint8)
        offsets = np.arange(number.size + 1, dtype=np.int32) * size
        s = pa.Array.from_buffers(
            pa.string(), number.size, [None, pa.py_buffer(offsets), pa.py_buffer(text.reshape(-1))]
        )
        yield pa.RecordBatch.from_arrays([pa.array(keys), pa.array(number / 3), s], schema=SCHEMA)


def reader(rows: int, new: bool) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(SCHEMA, batches(rows, new))


def held() -> int:
    """Bytes that are the process's own. Mapped files are not: the system takes them back when it needs the room."""
    return status("RssAnon") + status("RssShmem")


def main(directory: str, rows: str, memory: str) -> None:
    with hr.Relation.create(f"{directory}/warm", reader(100, False), key="k") as warm:
        hr.snapshot_diff(reader(100, True), warm).close()
    rel = hr.Relation.create(f"{directory}/r", reader(int(rows), False), key="k", memory=memory)
    pa.default_memory_pool().release_unused()
    before, done, seen = held(), threading.Event(), []
    watcher = threading.Thread(target=lambda: [seen.append(held()) for _ in iter(lambda: done.wait(0.003), True)])
    watcher.start()
    diff = hr.snapshot_diff(reader(int(rows), True), rel, memory=memory)
    done.set()
    watcher.join()
    found = {
        "inserted": diff.inserted.num_rows,
        "deleted": diff.deleted.num_rows,
        "updated": diff.updated.num_rows,
        "unchanged": diff.unchanged,
        "growth": max(seen) - before,
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
