"""The Parquet file that a task writes its shed rows to."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headrace import files
from headrace.runlog.files import DRAFT, RowsDraft


class ShedDraft:
    """A Parquet file of shed rows that gets its name when it is complete and on disk."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self._draft = RowsDraft(files.draft_name(path, f"{DRAFT}{path.stem}-"), schema)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self._draft.rows

    def add(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        self._draft.add(batch)

    def commit(self) -> None:
        """Complete the file and give it its name. It may replace the file of an earlier attempt, which has the same rows."""
        self._draft.seal({}, self.path)
        files.replace(self._draft.path, self.path)

    def discard(self) -> None:
        """Remove the file."""
        try:
            self._draft.close()
        finally:
            files.remove(self._draft.path)
