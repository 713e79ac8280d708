"""Pages read per tuple against the deadline: ``python -m benchmarks.deadline``. Writes raw results, then a plot of them.

Without Spark: micro-batches of a steady stream go through DeferredJoin, on a clock that only moves when told and a simulated
disk, so that the figures are the same on every machine. Keys are uniform: the hot set helps little, and reads are what counts.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.clock import ManualClock
from headrace.relation import Disk
from headrace.semistream import AdaptiveJoin
from headrace.semistream.deferred.deferral import Deferral
from headrace.semistream.deferred.join import DeferredJoin

DEADLINES = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0)  # seconds
EVERY = 0.5  # seconds between two micro-batches
ROWS = 200_000  # of the relation, some 100 bytes each
STREAM = pa.schema({"k": pa.int64(), "n": pa.int64()})


def measure(
    relation: hr.Relation, directory: Path, deadline: float, rate: int, seconds: float, seed: int
) -> dict[str, Any]:
    """One run: what was read for how many tuples, and how long they waited."""
    rng, clock = np.random.default_rng(seed), ManualClock(1e9)
    operator = AdaptiveJoin(relation, "k", "8MiB", order="any")
    log = hr.RunLog(directory, "benchmark", f"deadline {deadline}", shards=1)
    for number in range(int(seconds / EVERY)):
        n = int(rate * EVERY)
        batch = pa.RecordBatch.from_arrays([rng.integers(0, ROWS, n), np.arange(n)], schema=STREAM)
        with log.shard(0) as shard:
            for _ in DeferredJoin(operator, shard, Deferral(deadline, period=EVERY), number, clock=clock).join(
                [batch], STREAM
            ):
                pass
        clock.advance(EVERY)
    stats = operator.stats
    return {
        "deadline": deadline,
        "rate": rate,
        "tuples": stats.tuples_in,
        "pages_read": stats.pages_read,
        "reads": stats.reads,
        "late": stats.late,
        "longest_wait": stats.longest_wait,
        "io_seconds": stats.io_seconds,
    }


def run(rate: int, seconds: float, seed: int = 1) -> list[dict[str, Any]]:
    """Every deadline in turn."""
    with tempfile.TemporaryDirectory() as scratch:
        table = pa.table({"k": np.arange(ROWS), "text": [f"{k:092d}" for k in range(ROWS)]})
        hr.Relation.create(f"{scratch}/r", table, key="k").close()
        results = []
        for deadline in DEADLINES:
            with hr.Relation.open(f"{scratch}/r", disk=Disk("simulated")) as relation:
                results.append(measure(relation, Path(scratch, "log"), deadline, rate, seconds, seed))
        return results


def plot(results: list[dict[str, Any]], path: Path) -> None:
    """Pages and read requests per tuple against the deadline."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    for name, label in (("pages_read", "pages read"), ("reads", "read requests")):
        axes.plot([r["deadline"] for r in results], [r[name] / r["tuples"] for r in results], marker="o", label=label)
    axes.set(xscale="log", ylim=(0, None), xlabel="deadline, seconds", ylabel="per stream tuple")
    axes.set_title(f"{results[0]['rate']} tuples/s, a micro-batch every {EVERY} s, {ROWS:,} rows in R", fontsize=10)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=8000, help="stream tuples a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the stream, on its own clock")
    parser.add_argument("--to", type=Path, default=Path("deadline"), help="results go to TO.json and TO.png")
    asked = parser.parse_args()
    results = run(asked.rate, asked.seconds)
    asked.to.with_suffix(".json").write_text(json.dumps(results, indent=1))
    plot(results, asked.to.with_suffix(".png"))
    for r in results:
        print(
            f"{r['deadline']:5} s: {r['pages_read'] / r['tuples']:.3f} pages, {r['reads'] / r['tuples']:.3f} reads a tuple,"
            f" longest wait {r['longest_wait']:.1f} s, {r['late']} late"
        )


if __name__ == "__main__":
    main()
