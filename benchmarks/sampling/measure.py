"""Measures one sampler or join: ``python -m benchmarks.sampling.measure SYSTEM KIND WINDOW ROWS MEMORY``. Prints JSON."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.isolation import pin
from benchmarks.process import peak_rss, reset_peak, rss
from benchmarks.sampling import CHAINS, SHARE

BATCH = 10_000  # tuples
PER_KEY = 20  # tuples of a window with the same key, in the mean
SEED = 11


def stream(rows: int, window: int, seed: int) -> pa.RecordBatch:
    """Keys, values, and a time for each tuple: a millisecond after the last one."""
    rng = np.random.default_rng(seed)
    return pa.record_batch(
        {
            "k": rng.integers(0, max(1, window // PER_KEY), rows),
            "v": rng.random(rows),
            "t": pa.array(np.arange(rows), pa.timestamp("ms")),
        }
    )


def sampler(name: str, kind: str, window: int, rows: int) -> dict[str, Any]:
    """Insert a stream into a sampler, batch by batch."""
    import headrace as hr
    from headrace import sampling

    span = hr.rows(window) if kind == "rows" else hr.time(window / 1000, on="t")
    size = CHAINS if (name, kind) == ("Chain", "time") else int(SHARE * window)
    data = stream(rows, window, SEED)
    made = [getattr(sampling, name)(n, window=span, seed=SEED) for n in (min(10, size), size)]
    for at in range(0, 3 * BATCH, BATCH):
        made[0].insert(data.slice(at, BATCH))
    s = made[1]
    reset_peak()
    before, begun = rss(), time.perf_counter()
    for at in range(0, rows, BATCH):
        s.insert(data.slice(at, BATCH))
    seconds = time.perf_counter() - begun
    held = sum(s.stats.memory.values())
    return {"seconds": seconds, "held": held, "growth": peak_rss() - before, "kept": s.sample().num_rows}


def join(method: str, window: int, rows: int, memory: int) -> dict[str, Any]:
    """Join two streams over windows by time, batches of both sides in turn."""
    import headrace as hr
    from headrace.sampling import WindowJoin

    left, right = (stream(rows // 2, window, SEED + i) for i in (0, 1))
    # A window has `window` tuples of a side; a batch of the other side may come before it.
    span = hr.time(window / 1000, on="t", late=BATCH / 1000)
    size: dict[str, Any] = {} if method == "all" else {"memory": memory} if memory else {"size": int(SHARE * window)}
    warm = WindowJoin(hr.equal("k"), window=span, size=10)
    for side, batch in (("left", left), ("right", right)):
        list(warm.insert(side, batch.slice(0, 1000)))  # type: ignore[arg-type]
    op = WindowJoin(hr.equal("k"), window=span, method=method, seed=SEED, **size)  # type: ignore[arg-type]
    reset_peak()
    before, begun = rss(), time.perf_counter()
    for at in range(0, rows // 2, BATCH):
        for side, data in (("left", left), ("right", right)):
            for _ in op.insert(side, data.slice(at, BATCH)):  # type: ignore[arg-type]
                pass
    seconds = time.perf_counter() - begun
    held = sum(op.stats.memory.values())
    return {"seconds": seconds, "held": held, "growth": peak_rss() - before, "results": op.stats.results}


def estimates(window: int, rows: int, memory: int) -> dict[str, Any]:
    """Estimate the number of pairs of the joined windows at the end of each of them; how far off, and how wide, on average."""
    import headrace as hr
    from headrace.sampling import WindowJoin

    left, right = (stream(rows // 2, window, SEED + i) for i in (0, 1))
    arguments: dict[str, Any] = {"window": hr.rows(window), "estimate": True, "results": False, "seed": SEED}
    exact = WindowJoin(hr.equal("k"), method="all", **arguments)
    op = WindowJoin(hr.equal("k"), memory=memory, **arguments)
    errors, widths, covered = [], [], 0
    begun = time.perf_counter()
    for at in range(0, rows // 2, BATCH):
        for join_ in (exact, op):
            for side, data in (("left", left), ("right", right)):
                for _ in join_.insert(side, data.slice(at, BATCH)):  # type: ignore[arg-type]
                    raise AssertionError("no results are made")
        if (at + BATCH) % window == 0:
            [truth], [found] = (j.estimate(count=True).to_pylist() for j in (exact, op))
            errors.append(abs(found["estimate"] / truth["estimate"] - 1))
            widths.append((found["high"] - found["low"]) / 2 / truth["estimate"])
            covered += found["low"] <= truth["estimate"] <= found["high"]
    held = sum(op.stats.memory.values())
    facts = {"off": float(np.mean(errors)), "width": float(np.mean(widths)), "covered": covered, "of": len(errors)}
    return {"seconds": time.perf_counter() - begun, "held": held, "growth": 0, **facts}


def duckdb(window: int, rows: int) -> dict[str, Any]:
    """Join the same streams, all there at once, by DuckDB."""
    import duckdb as db

    left, right = (pa.table(stream(rows // 2, window, SEED + i)) for i in (0, 1))
    connection = db.connect()
    connection.execute("set threads = 1")
    connection.register("l", left)
    connection.register("r", right)
    reset_peak()
    before, begun = rss(), time.perf_counter()
    query = f"select l.*, r.v, r.t from l join r on l.k = r.k and abs(epoch_ms(l.t) - epoch_ms(r.t)) < {window}"
    results = sum(batch.num_rows for batch in connection.sql(query).to_arrow_reader(BATCH))
    return {"seconds": time.perf_counter() - begun, "held": 0, "growth": peak_rss() - before, "results": results}


def main(system: str, kind: str, window: str, rows: str, memory: str) -> None:
    pin(0)
    numbers = int(window), int(rows)
    if kind == "estimate":
        out = estimates(*numbers, int(memory))
    elif kind != "join":
        out = sampler(system, kind, *numbers)
    else:
        out = duckdb(*numbers) if system == "duckdb" else join(system, *numbers, int(memory))
    sys.stdout.write(json.dumps(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
