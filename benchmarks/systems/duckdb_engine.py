"""DuckDB: the stream batch joined with a table on disk, or with one in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import duckdb
import pyarrow as pa

from benchmarks.systems.base import SEGMENT, Kind, System

_JOIN = "SELECT s.*, r.* EXCLUDE (k) FROM s JOIN r USING (k)"
# DuckDB counts the scan and the hash table of the batch in its limit; the others have these in the
# allowance that every process gets beside its budget.
_SCAN = 12 << 20
_BATCH_ROW = 40


class DuckDB(System):
    """A plain join against a table sorted by key.

    Measured at a million rows it beats the ART index every way we could use it: a query a key
    (by a factor of 300), IN lists (by 10); and the index alone would not fit the budget.
    """

    name = "duckdb"
    kind: ClassVar[Kind] = "engine"

    def build(self) -> None:
        self.path.mkdir(parents=True)
        with duckdb.connect(str(self.path / "r.duckdb")) as db:
            db.execute(f"CREATE TABLE r AS SELECT * FROM read_parquet('{self.data.parquet}') ORDER BY k")

    def open(self, memory: int, batch: int) -> None:
        limit = max(memory, _SCAN) + _BATCH_ROW * batch
        self._db = duckdb.connect(
            str(self.path / "r.duckdb"),
            read_only=True,
            config={
                "threads": 1,
                "memory_limit": f"{limit}B",
                "preserve_insertion_order": False,
            },
        )

    def join(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._db.register("s", pa.Table.from_batches([batch]))
        yield from self._db.sql(_JOIN).to_arrow_reader(SEGMENT)
        self._db.unregister("s")

    def close(self) -> None:
        self._db.close()

    def settings(self) -> dict[str, Any]:
        return {
            "version": duckdb.__version__,
            "access": "hash join of the registered Arrow batch with the table",
            "options": "threads=1, sorted by key, no index, preserve_insertion_order=false",
            "cache": f"memory_limit = budget (>= {_SCAN >> 20} MiB) + {_BATCH_ROW} B/batch row",
        }


class DuckDBMemory(DuckDB):
    """DuckDB's join with the table in memory: an upper bound."""

    name = "duckdb-memory"
    kind: ClassVar[Kind] = "memory"

    def build(self) -> None:
        self.path.mkdir(parents=True)

    def open(self, memory: int, batch: int) -> None:
        self._db = duckdb.connect(":memory:", config={"threads": 1, "preserve_insertion_order": False})
        self._db.execute(f"CREATE TABLE r AS SELECT * FROM read_parquet('{self.data.parquet}') ORDER BY k")

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "cache": "the whole table in memory, uncompressed"}
