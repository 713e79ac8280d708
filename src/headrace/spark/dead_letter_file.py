"""DeadLetterFile: what one task put aside, as a Parquet file that is there whole or not at all."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import pyarrow as pa

from headrace.files import draft_name, make_directory, remove, replace
from headrace.runlog.files import RowsDraft

BATCH = "batch="  # prefix of the directory of a micro-batch


class DeadLetterFile:
    """A file that is made with the first letter, and gets its name when the task has no error: a context manager.

    A task that is repeated replaces the file of the same name. All its bytes have a checksum, as those of kept rows.

    Args:
        directory: of the dead letters.
        batch: the number of the micro-batch.
        part: the name of the file, without its ending.
        schema: of the letters.
    """

    def __init__(self, directory: str | Path, batch: int, part: str, schema: pa.Schema) -> None:
        self.folder = Path(directory, f"{BATCH}{batch}")
        self.path = self.folder / f"{part}.parquet"
        self._draft = draft_name(self.path, f".{part}-")
        self._schema = schema
        self._file: RowsDraft | None = None

    def write(self, letters: pa.RecordBatch) -> None:
        """Add letters."""
        if self._file is None:
            make_directory(self.folder, parents=True)
            self._file = RowsDraft(self._draft, self._schema)
        self._file.add(letters)

    def __enter__(self) -> DeadLetterFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is None:
            return
        try:
            if kind is None:
                self._file.seal({}, self.path, levels=2)
                replace(self._draft, self.path)
        finally:
            try:
                self._file.close()
            finally:
                remove(self._draft)
