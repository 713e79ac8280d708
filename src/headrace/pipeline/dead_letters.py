"""Dead letters: records that could not be read, kept with the reason, in Parquet files that any tool reads.

    dead-letters/batch=12/part-00003.parquet            reason, record, source
    dead-letters/batch=12/part-payments-00003.parquet   of the source [sources.payments]

A task writes its file before it ends, by write-then-rename, so a micro-batch that is done has all of its dead letters. Inside a
run a task that is repeated has the same rows and the same name. A restart may cut the micro-batch that it repeats into other
tasks: what the earlier run left of it is put aside first (`settle`), and thrown away when the new run has written its own. It is
put back if the new run writes none: then the sink had the micro-batch already, and its tasks did not run again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from headrace.files import exists, is_directory, names_in, paths_in, remove_tree, replace
from headrace.pipeline.reasons import why
from headrace.runlog.files import count_rows
from headrace.spark.dead_letter_file import BATCH, DeadLetterFile

SCHEMA = pa.schema({"reason": pa.string(), "record": pa.string(), "source": pa.string()})
_ASIDE = ".aside-"  # prefix of files put aside, which readers skip


@dataclass(frozen=True)
class DeadLetterSplitter:
    """Separates malformed records from good rows in tasks, and writes them as dead letters.

    Args:
        directory: the directory of the dead letters.
        format: of a record: json, csv, or "" if records cannot be malformed.
        schema: the columns; batches have two more, the malformed record (or null) and its origin.
        required: columns that must not be null.
        separator: of the values of CSV.
        name: of the source among those that steps join with; the tasks of each are counted from 0.
    """

    directory: str
    format: str
    schema: pa.Schema
    required: tuple[str, ...]
    separator: str = ","
    name: str = ""

    def sort(self, batches: Iterator[pa.RecordBatch], batch: str, partition: int) -> Iterator[pa.RecordBatch]:
        """Yield the good rows, and write the others to the file of this task."""
        names = self.schema.names
        part = f"part-{self.name}-{partition:05d}" if self.name else f"part-{partition:05d}"
        with DeadLetterFile(self.directory, int(batch), part, SCHEMA) as letters:
            for rows in batches:
                record = rows.column(len(names))
                good = pc.is_null(record)
                for name in self.required:
                    good = pc.and_(good, pc.is_valid(rows.column(names.index(name))))
                if good.false_count:
                    letters.write(self._letters(rows.filter(pc.invert(good))))
                    rows = rows.filter(good)
                yield rows.select(list(range(len(names))))

    def _letters(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        # A loop over rows suits the few malformed ones, as each has a reason of its own.
        names = self.schema.names
        values = pa.RecordBatch.from_arrays(rows.columns[: len(names)], names=names)
        # Spark passes bytes that are not valid text on as text.
        raw = rows.column(len(names)).cast(pa.binary()).to_pylist()
        records: list[str] = []
        reasons: list[str] = []
        for i, bytes_ in enumerate(raw):
            records.append((bytes_ or b"").decode(errors="backslashreplace"))
            if bytes_ is None:
                missing = next(n for n in self.required if not values.column(n)[i].is_valid)
                reasons.append(f"column {missing!r} is null, and it is required")
                records[-1] = json.dumps(values.slice(i, 1).to_pylist()[0], default=str)
            elif records[-1].encode() != bytes_:
                reasons.append("not UTF-8 text; the bytes that are not are shown as \\x..")
            else:
                reasons.append(why(records[-1], self.format, self.schema, self.separator))
        return pa.record_batch([pa.array(reasons), pa.array(records), rows.column(len(names) + 1)], schema=SCHEMA)


def settle(directory: Path, done: int, *, begin: bool = False) -> None:
    """Remove files of repeated tasks, so that each record of the micro-batches up to `done` is there once.

    Args:
        directory: the directory of the dead letters.
        done: the last micro-batch that Spark has committed; -1 if none.
        begin: whether a run starts, which repeats later micro-batches.
    """
    if not is_directory(directory):
        return
    for aside in paths_in(directory, f"{_ASIDE}*"):
        number = int(aside.name.removeprefix(_ASIDE))
        if exists(directory / f"{BATCH}{number}"):
            remove_tree(aside, errors=True)
        elif number <= done:
            replace(aside, directory / f"{BATCH}{number}")
    if begin:
        for folder in paths_in(directory, f"{BATCH}*"):
            number = int(folder.name.removeprefix(BATCH))
            if number > done:
                replace(folder, directory / f"{_ASIDE}{number}")


def last_done(checkpoint: Path) -> int:
    """Return the last micro-batch that Spark has committed in a checkpoint; -1 if none."""
    commits = checkpoint / "commits"
    numbers = [int(name) for name in names_in(commits) if name.isdigit()] if is_directory(commits) else []
    return max(numbers, default=-1)


def count(directory: Path) -> int:
    """Return the number of dead letters; a damaged file of them is refused by name."""
    folders = paths_in(directory, f"{BATCH}*", missing_ok=True)
    letters = (file for folder in folders for file in paths_in(folder, "part-*.parquet"))
    return sum(count_rows(file, unsummed=SCHEMA) for file in letters)
