"""What intervals cover: ``python -m benchmarks.sampling.coverage DATA rows|time WINDOWS``. Prints JSON.

Each window is joined twice, with everything kept and with a third of it, and estimated. Nominal intervals of 95% are looked at.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.arrays import Int64s
from headrace.sampling import WindowJoin
from headrace.windows import Window

DATA = ("uniform", "zipf", "changing")
WINDOWS: dict[str, Window] = {"rows": hr.rows(900), "time": hr.time("900ms", on="t", late="600ms")}
SIZE = 300  # tuples of a side that are kept of a window of 900: three times overload
ROWS, STEP = 2_000, 500  # tuples of a side, and of a batch
STREAMS = 10  # pairs of streams; samplers have a seed each
KEYS, MOVES = 40, 5  # keys of a stream; times that the frequent ones of changing data are others


def keys(kind: str, n: int, rng: np.random.Generator) -> Int64s:
    """Keys that are uniform, Zipf-distributed, or move through the domain."""
    if kind == "uniform":
        return rng.integers(0, KEYS, n)
    weights = 1.0 / np.arange(1, KEYS + 1)
    found = rng.choice(KEYS, n, p=weights / weights.sum())
    return found if kind == "zipf" else (found + np.arange(n) * MOVES // n * 7) % KEYS


def batches(kind: str, n: int, seed: int) -> list[pa.RecordBatch]:
    """Two streams: a tuple a millisecond, values that depend on the key, and groups."""
    out = []
    for side in (0, 1):
        rng = np.random.default_rng([2 * seed + side, len(kind)])
        k = keys(kind, n, rng)
        columns: dict[str, Any] = {"k": k, "vw"[side]: rng.gamma(2.0, 10.0, n) + k}
        if side == 0:
            columns["g"] = rng.integers(0, 3, n)
        columns["t"] = pa.array(np.arange(n), pa.timestamp("ms"))
        out.append(pa.record_batch(columns))
    return out


def run(op: WindowJoin, left: pa.RecordBatch, right: pa.RecordBatch, step: int) -> WindowJoin:
    """Join two streams, batches of both sides in turn."""
    for at in range(0, left.num_rows, step):
        for side, batch in (("left", left), ("right", right)):
            for _ in op.insert(side, batch.slice(at, step)):  # type: ignore[arg-type]
                pass
    return op


def coverage(
    kind: str, window: Window, windows: int, *, n: int = ROWS, step: int = STEP, **kept: Any
) -> dict[str, Any]:
    """The part of windows whose interval covers the truth, by quantity; half widths and errors as parts of the truth."""
    asked: dict[str, Any] = {"count": True, "sum": ["v", "w"], "avg": "v"}
    made: dict[str, Any] = {"window": window, "estimate": ["v", "w"]}
    streams = [batches(kind, n, seed) for seed in range(STREAMS)]
    truths = []
    for pair in streams:
        exact = run(WindowJoin(hr.equal("k"), method="all", **made), *pair, step).estimate(**asked)
        assert exact["low"].equals(exact["high"])
        truths.append(exact.to_pylist())
    hits: Counter[str] = Counter()
    widths: defaultdict[str, float] = defaultdict(float)
    errors = []
    for seed in range(windows):
        op = WindowJoin(hr.equal("k"), seed=seed, **made, **kept)
        found = run(op, *streams[seed % STREAMS], step).estimate(**asked).to_pylist()
        truth = truths[seed % STREAMS]
        for row, true in zip(found, truth, strict=True):
            assert row["quantity"] == true["quantity"]
            hits[row["quantity"]] += row["low"] <= true["estimate"] <= row["high"]
            widths[row["quantity"]] += (row["high"] - row["low"]) / 2 / true["estimate"]
        errors.append(found[0]["estimate"] / truth[0]["estimate"] - 1)
    return {
        "coverage": {quantity: hits[quantity] / windows for quantity in widths},
        "widths": {quantity: width / windows for quantity, width in widths.items()},
        "errors": errors,
    }


def main(kind: str, window: str, windows: str) -> None:
    begun = time.perf_counter()
    found = coverage(kind, WINDOWS[window], int(windows), size=SIZE)
    errors = np.array(found.pop("errors"))
    facts = {"seconds": time.perf_counter() - begun, "bias": errors.mean(), "deviation": errors.std()}
    sys.stdout.write(json.dumps({**facts, **found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
