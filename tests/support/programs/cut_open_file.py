"""Cuts a file of a run log while it is open, and reads on: the system would end a process that touches what is gone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa

from headrace.errors import DamagedLog
from headrace.runlog import RunLog


def main(place: str, when: str) -> None:
    rows = pa.table({"k": list(range(20_000)), "t": ["text"] * 20_000})
    with RunLog(Path(place), "q", "op", shards=1).shard(0) as shard:
        file = shard.write("waiting", 1, rows.schema, rows.to_batches(max_chunksize=5_000))
    batches = file.batches()
    if when == "between":
        next(batches)
    os.truncate(file.path, 100)
    try:
        for batch in batches:
            batch.to_pylist()
    except DamagedLog as error:
        sys.stdout.write(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
