"""What `compact(order="frequency")` is worth to X-HYBRIDJOIN when popularity has moved since the relation was made.

    python -m benchmarks popularity

A relation is stored by the popularity of one Zipf distribution over its keys, and the stream asks by another of the same
exponent, whose ranks are dealt anew. The join measures, the relation is ordered by that, and a join of the stream as it goes on
is measured; another has a relation made with the stream's own probabilities, which is the most that measuring could give. Both
parts of the disk buffer have the default size: on a disk with short seeks the model gives the non-swappable part nothing.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from headrace.arrays import Float64s, Int64s
from headrace.relation import Disk, Relation, Sketch
from headrace.semistream import XHybridJoin

_ROWS, _TUPLES, _WARM = 200_000, 400_000, 100_000  # of R, and of the stream: in all, and before reads are counted
_BATCH = 10_000  # stream tuples
_TEXT = 100  # bytes of a row's text: a row has some 120, as in the papers
_BUDGET = 0.1  # of R
_EXPONENTS = (0.5, 0.8, 1.0)
_SEED = 20130501  # arbitrary; fixed, so that runs can be compared


def main(console: Console) -> int:
    """Measure, and print a table."""
    table = Table("skew", "order of R", "pages read a tuple", "hits", "tuples/s (simulated SSD)")
    for exponent in _EXPONENTS:
        with tempfile.TemporaryDirectory() as place:
            for name, reads, hits, rate in _measure(Path(place), exponent):
                table.add_row(str(exponent), name, f"{reads:.3f}", f"{hits:.0%}", f"{rate:,.0f}")
    console.print(table)
    return 0


def _measure(place: Path, exponent: float) -> list[tuple[str, float, float, float]]:
    random = np.random.default_rng(_SEED)
    weight: Float64s = np.arange(1, _ROWS + 1) ** -exponent
    old, new = random.permutation(_ROWS), random.permutation(_ROWS)  # keys, the most popular first
    first, later = (new[np.searchsorted(np.cumsum(weight) / weight.sum(), random.random(_TUPLES))] for _ in range(2))
    rel = _create(place / "moved", old, weight)
    before, counts = _joined(rel, first)
    assert counts is not None
    rel.note_popularity(counts)
    rel.compact(order="frequency")
    return [
        ("of before", *before),
        ("measured", *_joined(rel.refresh(), later)[0]),
        ("of the stream", *_joined(_create(place / "told", new, weight), later)[0]),
    ]


def _create(path: Path, keys: Int64s, weight: Float64s) -> Relation:
    rows = pa.table({"k": np.arange(_ROWS), "v": np.arange(_ROWS), "s": ["x" * _TEXT] * _ROWS})
    asked = pa.table({"k": keys, "frequency": weight})
    return Relation.create(path, rows, key="k", order="frequency", frequencies=asked, disk=Disk("simulated"))


def _joined(rel: Relation, stream: Int64s) -> tuple[tuple[float, float, float], Sketch | None]:
    """Pages read, hits and seconds of a stream tuple after the first ones, and what the join counted."""
    memory = int(_BUDGET * _ROWS * (_TEXT + 16)) + rel.index_bytes
    op = XHybridJoin(rel, on="k", memory=memory, measure=True, tuning="default")
    batches = [pa.record_batch({"k": stream[a : a + _BATCH]}) for a in range(0, stream.size, _BATCH)]
    warm = _WARM // _BATCH
    for _ in op.run(batches[:warm]):
        pass
    op.reset_stats()
    begun = op.clock.now()
    for _ in op.run(batches[warm:]):
        pass
    stats = op.stats
    figures = (stats.pages_read / stats.tuples_in, stats.hits / stats.tuples_in)
    return (*figures, stats.tuples_in / (op.clock.now() - begun)), op.popularity
