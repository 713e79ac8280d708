"""Joins two long streams in little memory, and prints how the process grew, as JSON.

    python -m tests.support.programs.join_long_streams TUPLES MEMORY

Both streams have the same keys, each once, in two orders without a pattern: every left tuple matches one right tuple.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.arrays import Int64s
from headrace.progressive import ProgressiveJoin
from headrace.splitmix import draw

BATCH = 10_000  # tuples of a side that come together
STRIDE = 7_368_787  # a prime: multiples of it, modulo a number that it does not divide, are all smaller numbers
WARM = 20  # batches of each side after which memory is full, and everything has been called once


def resident(field: str) -> int:
    """Bytes of a line of /proc/self/status, such as VmHWM."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024


def keys(numbers: Int64s) -> Int64s:
    """A key for each number, spread evenly over all integers."""
    return draw(5, 0, numbers).view(np.int64)


def main() -> None:
    """Join, look at every result, and print what was seen."""
    tuples, memory = int(sys.argv[1]) // 2, sys.argv[2]
    seen = np.ones(tuples, np.uint8)
    seen[:] = 0  # touched now, so that it does not count as growth
    op = ProgressiveJoin(hr.equal("k"), memory)
    wrong, began, after_warming = 0, time.perf_counter(), 0

    def look(out: pa.RecordBatch) -> None:
        nonlocal wrong
        left, right = (out.column(name).to_numpy() for name in ("left", "right"))
        wrong += int((left != right * STRIDE % tuples).sum())
        np.add.at(seen, left, 1)

    for at in range(0, tuples, BATCH):
        numbers = np.arange(at, min(tuples, at + BATCH))
        for side, of in (("left", numbers), ("right", numbers * STRIDE % tuples)):
            for out in op.insert(side, pa.record_batch({"k": keys(of), side: numbers})):
                look(out)
        if at == WARM * BATCH:
            after_warming = resident("VmHWM")
    joined = time.perf_counter()
    for out in op.finish():
        look(out)
    op.stats.check()
    ended = time.perf_counter()
    growth = resident("VmHWM") - after_warming  # before what follows takes memory of its own
    facts = {
        "wrong": wrong,
        "once": int((seen == 1).sum()),
        "growth": growth,
        "peak": op.budget.peak,
        "seconds": [round(joined - began), round(ended - joined)],
        "early": op.stats.in_memory,
    }
    sys.stdout.write(json.dumps(facts))


if __name__ == "__main__":
    main()
