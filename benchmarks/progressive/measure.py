"""Measures one join: ``python -m benchmarks.progressive.measure SYSTEM KIND ROWS MEMORY PACE``. Prints its measurements as JSON.

PACE is the number of tuples of both sides that arrive in a second; with 0 all are available at once.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from benchmarks.isolation import pin
from benchmarks.progressive import FIRST
from benchmarks.progressive.streams import MAKERS, Streams

BATCH = 10_000  # tuples
SEED = 11


def ours(streams: Streams, memory: int, pace: int) -> dict[str, Any]:
    """Measure ProgressiveJoin, which takes batches of both sides in turn, each when it has arrived."""
    from benchmarks.process import peak_rss, reset_peak, rss
    from headrace.progressive import ProgressiveJoin

    warm = ProgressiveJoin(streams.condition, memory=1 << 20)
    for side, batch in list(streams.batches(2_000))[:4]:
        for _ in warm.insert(side, batch):  # type: ignore[arg-type]
            pass
    for _ in warm.finish():
        pass
    del warm
    batches = list(streams.batches(BATCH))
    reset_peak()
    before, begun = rss(), time.perf_counter()
    op, results, first = ProgressiveJoin(streams.condition, memory=memory), 0, None
    came = 0
    for side, batch in batches:
        came += batch.num_rows
        if pace:
            time.sleep(max(0.0, begun + came / pace - time.perf_counter()))
        for out in op.insert(side, batch):  # type: ignore[arg-type]
            results += out.num_rows
            if first is None and results >= FIRST:
                first = time.perf_counter() - begun
    arrived, early = time.perf_counter() - begun, results
    for out in op.finish():
        results += out.num_rows
    return {
        "first": first,
        "arrived": arrived,
        "seconds": time.perf_counter() - begun,
        "early": early,
        "results": results,
        "growth": peak_rss() - before,
        "flushes": op.stats.flushes,
        "pages_read": op.stats.pages_read,
    }


def duckdb(streams: Streams, memory: int, pace: int) -> dict[str, Any]:
    """Measure DuckDB, which joins when everything has arrived."""
    import duckdb as db

    from benchmarks.process import peak_rss, reset_peak, rss

    connection = db.connect()
    connection.execute(f"set threads = 1; set memory_limit = '{max(memory, 256 << 20)}B'")
    connection.register("l", streams.left)
    connection.register("r", streams.right)
    reset_peak()
    before, begun = rss(), time.perf_counter()
    _wait(streams, pace)
    query = f"select l.*, r.* exclude ({', '.join(_shared(streams))}) from l join r on {streams.sql}"
    results, first = 0, None
    for batch in connection.sql(query).to_arrow_reader(BATCH):
        results += batch.num_rows
        if first is None and results >= FIRST:
            first = time.perf_counter() - begun
    return {"first": first, "seconds": time.perf_counter() - begun, "results": results, "growth": peak_rss() - before}


def shapely(streams: Streams, memory: int, pace: int) -> dict[str, Any]:
    """Measure shapely: a bulk-loaded R-tree of one side is queried with all boxes of the other."""
    import numpy as np
    from shapely import STRtree, box

    from benchmarks.process import peak_rss, reset_peak, rss

    reset_peak()
    before, begun = rss(), time.perf_counter()
    _wait(streams, pace)
    sides = [
        box(*(np.asarray(side[c]) for c in ("xmin", "ymin", "xmax", "ymax"))) for side in (streams.left, streams.right)
    ]
    pairs = STRtree(sides[1]).query(sides[0], predicate="intersects")
    out = streams.left.take(pairs[0]), streams.right.take(pairs[1])
    seconds = time.perf_counter() - begun
    return {"first": seconds, "seconds": seconds, "results": out[0].num_rows, "growth": peak_rss() - before}


def _wait(streams: Streams, pace: int) -> None:
    """Wait until the last tuple has arrived, for a join that needs all of its input."""
    if pace:
        time.sleep((streams.left.num_rows + streams.right.num_rows) / pace)


def _shared(streams: Streams) -> list[str]:
    """The columns that both sides have."""
    return [name for name in streams.right.column_names if name in streams.left.column_names]


SYSTEMS = {"headrace": ours, "duckdb": duckdb, "shapely": shapely}


def main(system: str, kind: str, rows: str, memory: str, pace: str) -> None:
    pin(0)
    streams = MAKERS[kind](int(rows), SEED)
    sys.stdout.write(json.dumps(SYSTEMS[system](streams, int(memory), int(pace))))


if __name__ == "__main__":
    main(*sys.argv[1:])
