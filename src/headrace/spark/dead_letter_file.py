"""DeadLetterFile: what one task put aside, as a Parquet file that is there whole or not at all."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.files import sync_directory

BATCH = "batch="  # prefix of the directory of a micro-batch


class DeadLetterFile:
    """A file that is made with the first letter, and gets its name when the task has no error: a context manager.

    A task that is repeated replaces the file of the same name.

    Args:
        directory: of the dead letters.
        batch: the number of the micro-batch.
        part: the name of the file, without its ending.
        schema: of the letters.
    """

    def __init__(self, directory: str | Path, batch: int, part: str, schema: pa.Schema) -> None:
        self.folder = Path(directory, f"{BATCH}{batch}")
        self.path = self.folder / f"{part}.parquet"
        self._draft = self.folder / f".{part}-{uuid.uuid4().hex}"
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None

    def write(self, letters: pa.RecordBatch) -> None:
        """Add letters."""
        if self._writer is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._draft, self._schema)
        self._writer.write_batch(letters)

    def __enter__(self) -> DeadLetterFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is None:
            return
        try:
            self._writer.close()
            if kind is None:
                with self._draft.open("rb") as file:
                    os.fsync(file.fileno())
                self._draft.replace(self.path)
                sync_directory(self.folder)
        finally:
            self._draft.unlink(missing_ok=True)
