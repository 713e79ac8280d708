"""FragmentsTask: a task's documents, from files or from a column, as rows of fragments, and as dead letters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from headrace import files
from headrace.errors import IllFormed
from headrace.spark.dead_letter_file import DeadLetterFile
from headrace.xml import DocumentMatcher, Limits
from headrace.xml.documents import Partial, open_document
from headrace.xml.twig import Pattern

#: Columns of a dead letter: those of pipelines, and where the error is. `fragments` says how many rows its document has given.
LETTER = pa.schema(
    {
        "reason": pa.string(),
        "record": pa.string(),
        "source": pa.string(),
        "line": pa.int64(),
        "column": pa.int64(),
        "fragments": pa.int64(),
    }
)
_ROWS = 8192  # of a batch of results
_BYTES = 1 << 20  # of a batch of results, from which it is sent: documents may be small, and have a few fragments each


@dataclass(frozen=True)
class FragmentsTask:
    """What a task does, as it travels to the executors.

    Its batches have the document, or the path of its file, as their first column, and then those that are kept.

    Args:
        twig: the pattern.
        kept: the names of the columns that are kept; those of batches are numbered.
        files: whether documents are paths of files.
        text: whether a column of documents is of text, not of bytes.
        partial: what becomes of fragments of an ill-formed document.
        memory: of a task, for one document at a time.
        limits: of a document.
    """

    twig: Pattern
    kept: tuple[str, ...]
    files: bool
    text: bool
    partial: Partial
    memory: int | str
    limits: Limits | None

    def run(self, batches: Iterator[pa.RecordBatch], letters: DeadLetterFile | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows: the twig's columns and those that are kept. Without a file for letters, IllFormed is raised."""
        matcher = DocumentMatcher(self.twig, partial=self.partial, memory=self.memory, limits=self.limits)
        if letters is None:
            for batch in batches:
                yield from self._match(matcher, batch, None)
            return
        with letters:
            for batch in batches:
                yield from self._match(matcher, batch, letters)

    def _match(
        self, matcher: DocumentMatcher, batch: pa.RecordBatch, letters: DeadLetterFile | None
    ) -> Iterator[pa.RecordBatch]:
        kept = pa.RecordBatch.from_arrays(batch.columns[1:], names=list(self.kept))
        column = batch.column(0)
        if not self.files and self.text:
            column = column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())
        rows = _Rows(kept)
        dead: list[pa.RecordBatch] = []
        for i in range(batch.num_rows):
            if not column[i].is_valid:
                continue
            path = column[i].as_py() if self.files else ""
            document = partial(open_document, path) if self.files else partial(pa.BufferReader, column[i].as_buffer())
            before = rows.taken
            try:
                for fragments in matcher.fragments(document, path or "document", text=not self.files and self.text):
                    yield from rows.add(i, fragments)
            except IllFormed as error:
                if letters is None:
                    raise
                record = None if self.files else column[i].as_py().decode(errors="backslashreplace")
                source = path if self.files else _origin(kept, i)
                dead.append(_letter(error, record, source, rows.taken - before))
        if letters is not None and dead:
            letters.write(pa.concat_batches(dead))
        yield from rows.flush()


class _Rows:
    """Gathers the fragments of a batch of documents, each with the kept columns of its document."""

    def __init__(self, kept: pa.RecordBatch) -> None:
        self.kept = kept
        self.taken = 0
        self._clear()

    def _clear(self) -> None:
        self._fragments: list[pa.RecordBatch] = []
        self._documents: list[int] = []
        self._rows = self._bytes = 0

    def add(self, document: int, fragments: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take fragments of a document, by its number, and yield what makes a batch."""
        self.taken += fragments.num_rows
        # A kept value is repeated for each fragment, and may be large.
        width = self.kept.slice(document, 1).nbytes if self.kept.num_columns else 0
        step = max(1, _BYTES // (width + 1))
        for at in range(0, fragments.num_rows, step):
            piece = fragments.slice(at, step)
            self._fragments.append(piece)
            self._documents.append(document)
            self._rows += piece.num_rows
            self._bytes += piece.nbytes + width * piece.num_rows
            if self._rows >= _ROWS or self._bytes >= _BYTES:
                yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield what is there."""
        if not self._fragments:
            return
        fragments = pa.concat_batches(self._fragments)
        counts = [piece.num_rows for piece in self._fragments]
        at = np.repeat(np.asarray(self._documents, np.int64), counts)
        self._clear()
        # From its buffer: pa.array of a NumPy array imports pandas.
        indices = pa.Array.from_buffers(pa.int64(), at.size, [None, pa.py_buffer(at)])
        columns = [*fragments.columns, *(column.take(indices) for column in self.kept.columns)]
        yield pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(len(columns))])


def _origin(kept: pa.RecordBatch, row: int) -> str | None:
    """Say where a document of a column comes from: the columns that are kept, as JSON."""
    if not kept.num_columns:
        return None
    return json.dumps(kept.slice(row, 1).to_pylist()[0], default=str, ensure_ascii=False)


def _letter(error: IllFormed, record: str | None, source: str | None, fragments: int) -> pa.RecordBatch:
    values = [error.reason, record, source, error.line, error.column, fragments]
    arrays = [pa.array([value], field.type) for value, field in zip(values, LETTER, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=LETTER)


def task_letters(directory: str, operator: str) -> DeadLetterFile:
    """The file for dead letters of the task that this runs in.

    A restart may cut the micro-batch that it repeats into other tasks, with other letters in each: what an earlier run of the
    query left of the micro-batch is removed by the first task that runs it again. If the sink has the micro-batch
    already, no task runs, and the letters stay.

    Args:
        directory: of the dead letters.
        operator: tells the operators of a query apart.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = int(context.getLocalProperty("streaming.sql.batchId") or 0) if query else 0
    part = f"part-{operator}-{context.partitionId():05d}"
    if not query:
        return DeadLetterFile(directory, batch, part, LETTER)
    # Spark runs the jobs of a streaming query in a group that has the name of the run.
    mine = f"part-{query[:8]}-{(context.getLocalProperty('spark.jobGroup.id') or '')[:8]}-"
    letters = DeadLetterFile(directory, batch, mine + part.removeprefix("part-"), LETTER)
    for left in files.paths_in(letters.folder, f"part-{query[:8]}-*.parquet", missing_ok=True):
        if not left.name.startswith(mine):
            files.remove(left)
    return letters
