"""Headrace: AdaptiveJoin over a relation on disk. The only file here that imports headrace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from benchmarks.data import Dataset
from benchmarks.streams import batch_of
from benchmarks.systems.base import OUTPUT, Kind, System

PAGE_SIZE = "8KiB"
DISK: Literal["direct"] = "direct"
_WARM_ROWS = 100_000


def create_relation(path: Path, data: Dataset) -> None:
    """What the `create` section times."""
    import headrace as hr

    hr.Relation.create(path, str(data.parquet), key="k", shards=1, page_size=PAGE_SIZE, fill=1.0)


class Headrace(System):
    name = "headrace"
    kind: ClassVar[Kind] = "ours"

    def build(self) -> None:
        create_relation(self.path, self.data)

    def open(self, memory: int, batch: int) -> None:
        import headrace as hr
        from headrace.semistream import AdaptiveJoin

        relation = hr.Relation.open(self.path, disk=DISK)
        self._op = AdaptiveJoin(relation, on="k", memory=memory, how="inner")

    def join(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        return self.run([batch])

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for out in self._op.run(iter(batches)):
            yield out if out.schema.names == OUTPUT.names else out.select(OUTPUT.names)

    def close(self) -> None:
        del self._op

    def stats(self) -> dict[str, Any]:
        return dict(self._op.stats.as_dict())

    def settings(self) -> dict[str, Any]:
        import headrace as hr

        return {
            "version": getattr(hr, "__version__", "unknown"),
            "access": "AdaptiveJoin, inner",
            "options": f"disk={DISK!r} (O_DIRECT), pages of {PAGE_SIZE}, fill 1.0, one shard",
            "cache": "the budget",
        }


class HeadraceMemory(Headrace):
    """Headrace with a budget of three times R, after it has seen every key once."""

    name = "headrace-memory"
    kind: ClassVar[Kind] = "memory"

    def __init__(self, data: Dataset) -> None:
        super().__init__(data)
        self.path = data.directory / Headrace.name  # the same relation

    def open(self, memory: int, batch: int) -> None:
        super().open(3 * self.data.bytes, batch)
        order = np.random.default_rng(self.data.seed).permutation(self.data.rows)
        every_key = (batch_of(self.data.keys(order[i : i + _WARM_ROWS])) for i in range(0, self.data.rows, _WARM_ROWS))
        for _ in self.run(every_key):
            pass

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "cache": "three times R, warmed with every key once"}
