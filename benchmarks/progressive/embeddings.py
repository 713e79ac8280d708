"""Joins of embeddings by cosine distance, beside brute force: ``python -m benchmarks embeddings``.

Brute force is measured on some left rows with all right ones and scaled, since it takes a time proportional to pairs: as products
of matrices in single precision (BLAS, one thread), and by the kernel that compares two vectors. The recall is that of the same
left rows. All times are of the processor, so that other work on the machine counts little.

``python -m benchmarks.progressive.embeddings SHAPE DIMS ROWS MEMORY`` measures one size, and prints it as JSON. SHAPE is
"clusters" (1,000 of them, in which half of the right vectors are near-duplicates of left ones) or "none" (the same without
clusters: pruning has nothing to go by but distances).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.measured import measured

EPS = 0.05  # a cosine of 0.95
RECALL = 0.99
TARGET = 20.0  # times brute force
SIZES = (("clusters", 64, 150_000), ("clusters", 256, 150_000), ("clusters", 1024, 60_000), ("none", 256, 20_000))
DIRECTIONS, PIVOTS, EXACT = "recall 0.99, directions", "recall 0.99, pivots", "exact"  # the joins that are measured
_EXACT = 60_000  # rows of the exact join, at most
_BRUTE_PAIRS = 1 << 30  # of a sample of brute force
_CLUSTERS, _SPREAD = 1_000, 0.6
_BATCH = 10_000
_SEED = 7
_PATIENCE = 1800.0


@dataclass(frozen=True)
class Embeddings:
    """Two sides of unit vectors in single precision."""

    left: Any
    right: Any

    @classmethod
    def made(cls, shape: str, dims: int, rows: int) -> Embeddings:
        """Make both sides; a near-duplicate is up to a fifth farther away than eps, in any direction."""
        import numpy as np

        rng = np.random.default_rng(_SEED)
        centres = _unit(rng.normal(size=(_CLUSTERS, dims)))

        def side() -> Any:
            noise = rng.normal(size=(rows, dims))
            if shape == "none":
                return _unit(noise)
            return _unit(centres[rng.integers(0, _CLUSTERS, rows)] + noise * _SPREAD / np.sqrt(dims))

        left, right = side(), side()
        some = rows // 2
        step = _unit(rng.normal(size=(some, dims))) * (1.2 * np.sqrt(2 * EPS) * rng.random((some, 1)))
        right[:some] = _unit(left[rng.integers(0, rows, some)] + step)
        return cls(left.astype(np.float32), right.astype(np.float32))

    def batches(self, rows: int) -> Iterator[tuple[str, Any]]:
        """The first rows of both sides in turn, as record batches."""
        import numpy as np
        import pyarrow as pa

        for at in range(0, rows, _BATCH):
            for side, vectors in (("left", self.left), ("right", self.right)):
                some = vectors[at : min(at + _BATCH, rows)]
                listed = pa.FixedSizeListArray.from_arrays(some.reshape(-1), some.shape[1])
                yield side, pa.record_batch({side: np.arange(at, at + len(some)), "v": listed})


def _unit(vectors: Any) -> Any:
    import numpy as np

    return vectors / np.sqrt((vectors**2).sum(axis=1, keepdims=True))


def _cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.process_time()
    out = work()
    return time.process_time() - begun, out


def by_products(left: Any, right: Any) -> Any:
    """All pairs with a cosine of at least 1 - EPS: blocks of products that fit the processor's cache."""
    import numpy as np

    found = []
    for at in range(0, len(left), 512):
        for other in range(0, len(right), 1024):
            cosines = left[at : at + 512] @ right[other : other + 1024].T
            near = np.flatnonzero(cosines >= 1 - EPS)
            found.append((near // cosines.shape[1] + at) * len(right) + near % cosines.shape[1] + other)
    return np.concatenate(found)


def by_pairs(left: Any, right: Any) -> float:
    """Nanoseconds a pair of the kernel that compares two vectors."""
    import numpy as np

    from headrace.conditions import METRICS
    from headrace.kernels.ranges import near

    one, two = left[:400].astype(np.float64), right[:2000].astype(np.float64)
    a, b = (index.ravel().astype(np.int32) for index in np.meshgrid(np.arange(400), np.arange(2000), indexing="ij"))
    keep = np.ones(a.size, np.uint8)
    metric = METRICS.index("cosine")
    seconds, _ = _cpu(lambda: near(one.reshape(-1), two.reshape(-1), one.shape[1], EPS, metric, b, a, keep))
    return 1e9 * seconds / a.size


def ours(data: Embeddings, rows: int, memory: int, recall: float, *, pivots: bool) -> tuple[dict[str, Any], Any]:
    """Measure ProgressiveJoin, by pivots or by random directions; returns its pairs too."""
    import numpy as np

    import headrace as hr
    from benchmarks.process import peak_rss, reset_peak, rss
    from headrace.progressive import ProgressiveJoin, VectorLsh, VectorPivots

    divided = VectorPivots if pivots else VectorLsh
    condition = hr.within("v", eps=EPS, metric="cosine", recall=recall)
    batches = list(data.batches(rows))
    warm = ProgressiveJoin(condition, memory="64MiB", partitioning=divided(condition))
    for side, batch in batches[:2]:
        for _ in warm.insert(side, batch.slice(0, 500)):  # type: ignore[arg-type]
            pass
    del warm
    op = ProgressiveJoin(condition, memory=memory, partitioning=divided(condition))
    pairs = [np.empty(0, np.int64)]
    candidates = np.zeros(2)

    def run() -> None:
        outs = (out for side, batch in batches for out in op.insert(side, batch))  # type: ignore[arg-type]
        pairs.extend(_numbers(data, out) for out in outs)
        pairs.extend(_numbers(data, out) for out in op.finish())

    reset_peak()
    before = rss()
    seconds, _ = _cpu(run)
    growth = peak_rss() - before
    cells: list[Any] = [{}, {}]
    for number, (_, batch) in enumerate(batches[:2]):  # candidates of the first batches stand for all
        keys = op.partitioning.read(number, batch)
        found, many = np.unique(op.partitioning.home(number, keys).cell, return_counts=True)
        cells[number] = dict(zip(found.tolist(), many.tolist(), strict=True))
        candidates[number] = batch.num_rows
    met = sum(many * cells[1].get(cell, 0) for cell, many in cells[0].items())
    return {
        "seconds": seconds,
        "rows": rows,
        "candidates": met / candidates.prod(),
        "growth": growth,
        "flushes": op.stats.flushes,
        "partitioning": type(op.partitioning).__name__,
    }, np.concatenate(pairs)


def _numbers(data: Embeddings, out: Any) -> Any:
    """A number for each pair."""
    import numpy as np

    return np.asarray(out["left"]) * len(data.right) + np.asarray(out["right"])


def measure(shape: str, dims: int, rows: int, memory: int) -> dict[str, Any]:
    """Measure one size."""
    import numpy as np

    data = Embeddings.made(shape, dims, rows)
    some = max(512, min(rows, _BRUTE_PAIRS // rows // (4 if dims > 512 else 1)))
    by_products(data.left[:512], data.right[:1024])
    seconds, wanted = _cpu(lambda: by_products(data.left[:some], data.right))
    brute = seconds * rows / some
    out: dict[str, Any] = {"shape": shape, "dims": dims, "rows": rows, "memory": memory, "brute": brute}
    out["nested"] = by_pairs(data.left, data.right) * 1e-9 * rows * rows
    for name, recall, most in ((DIRECTIONS, RECALL, rows), (PIVOTS, RECALL, rows), (EXACT, 1.0, min(rows, _EXACT))):
        found, pairs = ours(data, most, memory, recall, pivots=name != DIRECTIONS)
        left, right = wanted // rows, wanted % rows
        mine = wanted[(left < most) & (right < most)]
        found["recall"] = float(np.isin(mine, pairs).mean())
        found["twice"] = int(pairs.size - np.unique(pairs).size)
        found["pairs"] = int(pairs.size)
        found["times_brute"] = brute * (most / rows) ** 2 / found["seconds"]
        found["times_nested"] = out["nested"] * (most / rows) ** 2 / found["seconds"]
        out[name] = found
    return out


def main(console: Any) -> int:
    """Measure all sizes, each in a process of its own, and print a table."""
    from benchmarks.tables import new_table

    table = new_table(
        f"Embeddings within a cosine distance of {EPS}",
        *(
            "shape",
            "dimensions",
            "rows a side",
            "join",
            "CPU s",
            "× BLAS",
            "× kernel",
            "candidates",
            "recall",
            "grew by",
        ),
    )
    for shape, dims, rows in SIZES:
        cell = measured("progressive.embeddings", [shape, str(dims), str(rows), str(2 << 30)], _PATIENCE)
        if "error" in cell:
            table.add_row(shape, str(dims), f"{rows:,}", cell["error"])
            continue
        for name in (DIRECTIONS, PIVOTS, EXACT):
            c = cell[name]
            table.add_row(
                *(shape, str(dims), f"{c['rows']:,}", name, f"{c['seconds']:.1f}"),
                *(
                    f"{c['times_brute']:.1f}",
                    f"{c['times_nested']:.0f}",
                    f"{c['candidates']:.2%}",
                    f"{c['recall']:.4f}",
                ),
                f"{c['growth'] / 2**20:.0f} MiB of {cell['memory'] >> 20}",
            )
    console.print(table)
    console.print(f"Target: a join at least {TARGET:.0f} times brute force at a recall of {RECALL}.")
    return 0


if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy is imported: one thread on both sides of the comparison
    sys.stdout.write(json.dumps(measure(sys.argv[1], *(int(word) for word in sys.argv[2:5]))) + "\n")
