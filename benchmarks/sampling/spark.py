"""Window joins on Spark: ``python -m benchmarks.sampling.spark SYSTEM WINDOW MEMORY``. Prints JSON.

Spark's exact join of two streams, with state format 4 in RocksDB, beside ours: the same files, micro-batches and cores, and
results counted by the same sink. A window has the rows of two micro-batches of a side, or of ten if it is large.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.progressive.spark import PARTS, WITHIN, run, sparks
from benchmarks.sampling import SHARE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LARGE = 1_000_000  # rows of a window from which on micro-batches are a tenth of it
TENTHS, TENTHS_WARM = 14, 11  # micro-batches then, and those of them until windows are full, which are not counted
LIMIT = 600.0  # seconds after which a join over large windows is stopped


def exact(session: SparkSession, left: DataFrame, right: DataFrame, memory: int, state: Path) -> DataFrame:
    """Spark's join."""
    session.conf.set("spark.sql.streaming.join.stateFormatVersion", 4)
    return sparks(session, left, right, memory, state)


def ours(
    method: str, size: int, session: SparkSession, left: DataFrame, right: DataFrame, memory: int, state: Path
) -> DataFrame:
    """hr.window_join, with a sample, or with everything."""
    import headrace as hr

    a, b = left.withWatermark("t", "0 seconds"), right.withWatermark("t", "0 seconds")
    kept: dict[str, Any] = {} if method == "all" else {"memory": memory} if memory else {"size": size}
    return hr.window_join(a, b, hr.equal("k"), window=hr.time(WITHIN, on="t"), method=method, state=state, **kept)  # type: ignore[arg-type]


def measure(system: str, window: int, memory: int) -> dict[str, Any]:
    """Measure a join over windows of so many rows of each side."""
    join = exact if system == "spark" else partial(ours, system, int(SHARE * window))
    if window < LARGE:
        found = run(join, window * PARTS, memory)
    else:
        found = run(join, window // 5 * TENTHS, memory, TENTHS, TENTHS_WARM, minutes=1, limit=LIMIT)
    return {**found, "rows": found["counted"], "held": 0}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
