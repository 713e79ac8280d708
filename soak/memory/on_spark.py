"""`hr.enrich` in Spark's Python workers: a query over the same files again and again, whose results nobody keeps."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import headrace as hr
from soak.burst import local_session
from soak.memory.cells import Cell
from soak.memory.operators import Enrich, Facts
from soak.memory.relations import giant_keys

WORKERS = 2
_FILES = 8
_FILE_BATCHES = 8  # batches of a file, of 2 MiB each


class EnrichOnSpark(Enrich):
    """The driver of a local Spark; its workers are watched, and share the budget."""

    def __init__(self, cell: Cell, place: Path, relation: str) -> None:
        super().__init__(cell, place)
        self.cell_relation = relation
        self._input = place / f"in-{time.monotonic_ns()}"

    def warm_up(self) -> None:
        """Start Spark and its workers, with a small relation of the same columns."""
        self._session = local_session("headrace memory")
        self._spark = self._session.__enter__()
        # Rows come to a worker in batches of 2 MiB or so, as docs/how-to/size-memory.md says.
        self._spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(self.rows.batch_rows))
        with hr.Relation.open(self.place / self.cell_relation) as relation:
            self._write_input(relation)
        path = self.place / f"warm-{time.monotonic_ns()}"
        rows, page_size = self.rows.batch({"k": np.arange(256) * 2}, 256, long_texts=1), "8KiB"
        memory = 32 << 20
        if self.cell.shape == "long":
            page_size, memory = "1MiB", 64 << 20
        with hr.Relation.create(path, rows, key="k", shards=1, page_size=page_size) as relation:
            for _ in range(3):  # two tasks, and so two workers, each time
                self._enrich(relation, memory, self._spark.range(64).selectExpr("id * 2 AS k").repartition(WORKERS))
        shutil.rmtree(path)
        self.facts = Facts()

    def run(self, until: float) -> None:
        """One query after the other."""
        with hr.Relation.open(self.place / self.cell_relation) as relation:
            while time.monotonic() < until:
                df = self._spark.read.parquet(str(self._input))
                self._enrich(relation, self.cell.budget, df)
                self.facts.rows_in += self._rows
                self.facts.bytes_in += self._bytes
                self.facts.rounds += 1
        self._session.__exit__(None, None, None)
        shutil.rmtree(self._input)

    def _enrich(self, relation: hr.Relation, memory: int, df: Any) -> None:
        out = hr.enrich(df, relation, on="k", memory=memory, suffix="_r", workers=WORKERS)
        out.write.format("noop").mode("overwrite").save()
        progress = hr.progress(out)
        if progress:
            stats = progress[-1].stats
            self.facts.results += stats.results
            self.facts.counted = max(self.facts.counted, stats.memory_peak)
            self.facts.notes = {"parts": dict(stats.memory), "hits": stats.hits / max(1, stats.tuples_in)}

    def _write_input(self, relation: hr.Relation) -> None:
        self._input.mkdir()
        self._rows = self._bytes = 0
        giants = giant_keys(relation)
        for number in range(_FILES):
            batches = [self._keyed(relation.distinct_keys, giants) for _ in range(_FILE_BATCHES)]
            self._rows += sum(batch.num_rows for batch in batches)
            self._bytes += sum(batch.nbytes for batch in batches)
            with pq.ParquetWriter(self._input / f"{number}.parquet", batches[0].schema) as file:
                for batch in batches:
                    file.write_batch(batch)
