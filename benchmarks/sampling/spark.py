"""Window joins on Spark: ``python -m benchmarks.sampling.spark SYSTEM WINDOW ROWS MEMORY``. Prints JSON.

Spark's exact join of two streams, with state format 4 in RocksDB, beside ours: the same files, micro-batches and cores, and
results counted by the same sink. WINDOW is the rows of each side in a window, ROWS those of a micro-batch, of both sides.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.progressive.spark import WITHIN, run, sparks
from benchmarks.sampling import SHARE
from benchmarks.spark.session import HEAP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LENGTH = 10  # minutes: WITHIN
COUNTED = 5  # micro-batches, once windows are full and all is compiled
LIMIT = 600.0  # seconds after which a join over large windows is stopped


def ours(
    method: str, size: int, session: SparkSession, left: DataFrame, right: DataFrame, memory: int, state: Path
) -> DataFrame:
    """hr.window_join, with a sample, or with everything."""
    import headrace as hr

    a, b = left.withWatermark("t", "0 seconds"), right.withWatermark("t", "0 seconds")
    kept: dict[str, Any] = {} if method == "all" else {"memory": memory} if memory else {"size": size}
    return hr.window_join(a, b, hr.equal("k"), window=hr.time(WITHIN, on="t"), method=method, state=state, **kept)  # type: ignore[arg-type]


def measure(system: str, window: int, rows: int, memory: int) -> dict[str, Any]:
    """Measure a join over windows of so many rows of each side, in micro-batches of so many rows of both."""
    join = sparks if system == "spark" else partial(ours, system, int(SHARE * window))
    warm = 2 * window // rows + 2
    parts = warm + COUNTED
    found = run(join, rows, memory, parts, warm, minutes=LENGTH * rows / (2 * window), limit=LIMIT, heap=HEAP)
    return {**found, "rows": found["counted"], "held": 0}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(sys.argv[1], *(int(word) for word in sys.argv[2:]))))
