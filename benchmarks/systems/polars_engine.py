"""Polars: the stream batch joined with a frame in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa

from benchmarks.systems.base import OUTPUT, Kind, System


class PolarsMemory(System):
    name = "polars-memory"
    kind: ClassVar[Kind] = "memory"

    def build(self) -> None:
        self.path.mkdir(parents=True)

    def open(self, memory: int, batch: int) -> None:
        self._frame = pl.read_parquet(self.data.parquet).sort("k").rechunk()

    def join(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        stream = pl.DataFrame(batch)
        out = stream.join(self._frame, on="k", how="inner", maintain_order="none")
        yield from out.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(OUTPUT).to_batches()

    def close(self) -> None:
        del self._frame

    def settings(self) -> dict[str, Any]:
        return {
            "version": pl.__version__,
            "access": "DataFrame.join, then Arrow",
            "options": f"{pl.thread_pool_size()} thread",
            "cache": "the whole table in memory",
        }
