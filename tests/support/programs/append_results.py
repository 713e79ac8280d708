"""Appends the results of one step after the other to a table: ``append_results.py parquet|delta PATH``. Prints the steps."""

import sys
from pathlib import Path

import pyarrow as pa

from headrace.feeds.items import RESULT_COLUMNS
from headrace.feeds.results import DeltaResults, ParquetResults

PLACE = {"alias": "a", "title": "t", "lat": 1.0, "long": 2.0, "box": None}


def rows(step, count=3):
    schema = pa.schema([("a.title", pa.string()), ("n", pa.int64()), *RESULT_COLUMNS])
    values = [
        {"a.title": f"{step}/{k}", "n": k, "_id": step.to_bytes(16, "big"), "_places": [PLACE]} for k in range(count)
    ]
    return pa.RecordBatch.from_pylist(values, schema)


def open_table(kind, path):
    return ParquetResults(path) if kind == "parquet" else DeltaResults(path, "alerts")


def main(kind, path):
    table = open_table(kind, Path(path))
    for step in range(1, 10_000):
        table.append(step, rows(step))
        sys.stdout.write(f"{step}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
