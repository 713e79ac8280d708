"""The Parquet file that a task writes its shed rows to."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.files import sync_directory
from headrace.runlog.files import DRAFT


class ShedDraft:
    """A Parquet file of shed rows that gets its name when it is complete and on disk."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.rows = 0
        self._draft = path.with_name(f"{DRAFT}{path.stem}-{uuid.uuid4().hex}")
        self._writer = pq.ParquetWriter(self._draft, schema, write_page_checksum=True)

    def add(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        self._writer.write_batch(batch)
        self.rows += batch.num_rows

    def commit(self) -> None:
        """Flush the file and give it its name. It may replace the file of an earlier attempt, which has the same rows."""
        self._writer.close()
        with self._draft.open("rb+") as file:
            os.fsync(file.fileno())
        self._draft.replace(self.path)
        sync_directory(self.path.parent)

    def discard(self) -> None:
        """Remove the file."""
        self._writer.close()
        self._draft.unlink(missing_ok=True)
