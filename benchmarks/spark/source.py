"""The stream as Spark reads it: Parquet files written beforehand, two of them a micro-batch.

A directory holds a warm-up of large micro-batches, which fill what an operator keeps and let the JVM compile,
a few of the size to be measured, and then those that are measured. The same for every system.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import Dataset
from benchmarks.streams import SCHEMA, Workload, stream_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES = 2  # a micro-batch, so that two cores have a task each
WARM_ROWS = 500_000  # of a large micro-batch of the warm-up
WARM_OWN_BATCHES = 4  # of the measured size, where that is another
MEASURED_BATCHES = 120  # at most; fewer where the stream ends before
MEASURED_ROWS = 7_000_000
_SPARK_SCHEMA = "k long, seq long, v double"
_EPOCH = 1_700_000_000


def sizes(batch: int, large: int) -> tuple[list[int], list[int]]:
    """Rows of the micro-batches that warm up, `large` of them large, and of those that are measured."""
    warm = [WARM_ROWS] * large + ([] if batch == WARM_ROWS else [batch] * WARM_OWN_BATCHES)
    return warm, [batch] * max(5, min(MEASURED_BATCHES, MEASURED_ROWS // batch))


def stream_directory(data: Dataset, workload: Workload, batch: int, large: int) -> Path:
    """The directory of the stream's files, written if it is not there yet."""
    path = data.directory / f"spark-{workload}-{large}-{batch}"
    if not path.exists():
        keys = np.memmap(stream_file(data, workload), np.int64, mode="r")
        warm, measured = sizes(batch, large)
        ends = np.cumsum([0, *warm, *measured])
        _write(path, (_slice(keys, int(a), int(b)) for a, b in pairwise(ends)))
    return path


def split(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """A micro-batch as the files it is written to, each a task of its own."""
    share = -(-batch.num_rows // FILES)
    return [batch.slice(start, share) for start in range(0, batch.num_rows, share)]


def sample_directory(path: Path, batch: pa.RecordBatch) -> Path:
    """A stream of this one micro-batch."""
    return _write(path, iter([batch]))


def read(spark: SparkSession, directory: Path) -> DataFrame:
    reader = spark.readStream.schema(_SPARK_SCHEMA).option("maxFilesPerTrigger", FILES)
    return reader.parquet(str(directory))


def _slice(keys: np.ndarray, start: int, end: int) -> pa.RecordBatch:
    seq = np.arange(start, end, dtype=np.int64)
    part = keys.take(seq, mode="wrap")  # a stream starts over at its end
    return pa.record_batch([pa.array(part), pa.array(seq), pa.array(seq * 0.5)], schema=SCHEMA)


def _write(path: Path, batches: Iterator[pa.RecordBatch]) -> Path:
    partial = path.with_name(path.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    number = 0
    for batch in batches:
        for part in split(batch):
            file = partial / f"{number:05d}.parquet"
            pq.write_table(pa.Table.from_batches([part]), file, compression="none", use_dictionary=False)
            # Spark takes files in the order of their time of change, which it reads in milliseconds.
            os.utime(file, (_EPOCH + number, _EPOCH + number))
            number += 1
    partial.replace(path)
    return path
