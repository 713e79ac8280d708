"""ResultLog: the results of a query, each once, in files that are whole or not there.

results/000000000019-000000000021.000000000007.results.arrow   results of pulls 19 to 21, numbered from 7 on
        000000000001-000000000018.000000000001.results.arrow   results of pulls 1 to 18, merged

A name says that all results of these pulls are in the file, so pulls up to the last one are done. Files of pulls without
results are not written.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.errors import OtherLog
from headrace.feeds.items import MOMENT
from headrace.files import make_directory, paths_in, remove, size_of
from headrace.runlog.files import DRAFT, StateDraft, read_state

NUMBERED = (pa.field("_number", pa.int64()), pa.field("_produced", MOMENT))
"""What a result has in the log beside its own columns: its running number, from 1 on, and when it was produced."""
_NAME = re.compile(r"(\d{12,})-(\d{12,})\.(\d{12,})\.results\.arrow")
_LEVELS = 3  # of a file's name that are its own: the query, results, its name
_MANY = 32  # small files in a row that are merged: a reader opens as many at most
_LARGE = 8 << 20  # bytes of a file that is not merged again


@dataclass(frozen=True, order=True)
class Segment:
    """A file of results: of which pulls, and the numbers of the first and of the last."""

    first_pull: int
    last_pull: int
    first: int
    last: int
    path: Path


class ResultLog:
    """Results in the order in which they were produced. One thread writes; others may read meanwhile.

    Parameters
    ----------
    directory
        Where the files are; made if it is not there.
    schema
        The columns of results.
    keep
        Results that are kept at least; older files are removed. All if None.
    """

    def __init__(self, directory: Path, schema: pa.Schema, keep: int | None = None) -> None:
        self.directory, self.keep = directory, keep
        self.schema = pa.schema([*NUMBERED, *schema])
        make_directory(directory, parents=True)
        self._lock = threading.RLock()
        self._segments = self._found()
        self.produced = self._last_produced()

    @property
    def pull(self) -> int:
        """The last pull of which the results are here; 0 if there are none."""
        with self._lock:
            return self._segments[-1].last_pull if self._segments else 0

    @property
    def last(self) -> int:
        """The number of the newest result; 0 if there is none."""
        with self._lock:
            return self._segments[-1].last if self._segments else 0

    @property
    def first(self) -> int:
        """The number of the oldest result that is kept."""
        with self._lock:
            return self._segments[0].first if self._segments else 1

    def append(self, first_pull: int, last_pull: int, batches: Iterable[pa.RecordBatch], now: datetime) -> int:
        """Write the results of some pulls, if there are any: all of them, or none. Returns how many there are."""
        first = self.last + 1
        path = self.directory / f"{first_pull:012d}-{last_pull:012d}.{first:012d}.results.arrow"
        with StateDraft(path, self.schema, _LEVELS) as draft:
            for batch in batches:
                draft.add(self._numbered(batch, first + draft.rows, now))
            if not draft.rows:
                return 0
            draft.commit({"last": first + draft.rows - 1})
            rows = draft.rows
        with self._lock:
            self._segments.append(Segment(first_pull, last_pull, first, first + rows - 1, path))
            self.produced = now
        self._tidy()
        return rows

    def read(self, after: int = 0, limit: int = 100) -> pa.RecordBatch:
        """Results with higher numbers, oldest first, at most so many."""
        with self._lock:
            wanted = [one for one in self._segments if one.last > after and one.first <= after + limit]
            # A file that is removed meanwhile stays readable for who has opened it.
            files = [(one, read_state(one.path, check=False)) for one in wanted]
        parts: list[pa.RecordBatch] = []
        left = limit
        for segment, file in files:
            at = segment.first
            for batch in file.batches():
                begin, end = max(0, after + 1 - at), min(batch.num_rows, after + 1 + limit - at)
                if begin < end and left:
                    parts.append(batch.slice(begin, min(left, end - begin)))
                    left -= parts[-1].num_rows
                at += batch.num_rows
        # Copies, since the batches lie in mapped files.
        return pa.Table.from_batches(parts, self.schema).combine_chunks().to_batches()[0] if parts else self._nothing()

    # -- files -----------------------------------------------------------------------------------------------------------------

    def _numbered(self, batch: pa.RecordBatch, first: int, now: datetime) -> pa.RecordBatch:
        numbers = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
        moments = pa.repeat(pa.scalar(now, MOMENT), batch.num_rows)
        return pa.RecordBatch.from_arrays([numbers, moments, *batch.columns], schema=self.schema)

    def _nothing(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in self.schema], schema=self.schema)

    def _found(self) -> list[Segment]:
        """The files that are there, without drafts and those that a merged file replaces, which are removed."""
        segments = []
        for path in paths_in(self.directory):
            if path.name.startswith(DRAFT):
                remove(path)
            elif found := _NAME.fullmatch(path.name):
                file = read_state(path)
                if file.schema != self.schema:
                    raise OtherLog(
                        f"{path} has results of another query, with columns {', '.join(file.schema.names)}; give another state"
                    )
                segments.append(Segment(int(found[1]), int(found[2]), int(found[3]), int(file.facts["last"]), path))
        kept = [one for one in segments if not any(_replaces(other, one) for other in segments)]
        for gone in set(segments) - set(kept):
            remove(gone.path)
        return sorted(kept)

    def _last_produced(self) -> datetime | None:
        if not self._segments:
            return None
        batch = self.read(self.last - 1, 1)
        produced: datetime = batch.column("_produced")[0].as_py()
        return produced

    def _tidy(self) -> None:
        """Merge small files when they are many, and remove those that are too old."""
        with self._lock:
            segments = self._segments
            tail = 0
            while tail < len(segments) and size_of(segments[-1 - tail].path) < _LARGE:
                tail += 1
            if tail >= _MANY:
                self._segments = [*segments[:-tail], self._merged(segments[-tail:])]
            while self.keep is not None and len(self._segments) > 1 and self.last - self._segments[0].last >= self.keep:
                remove(self._segments.pop(0).path)

    def _merged(self, segments: list[Segment]) -> Segment:
        first, last = segments[0], segments[-1]
        path = self.directory / f"{first.first_pull:012d}-{last.last_pull:012d}.{first.first:012d}.results.arrow"
        with StateDraft(path, self.schema, _LEVELS) as draft:
            for batch in _batches(segments):
                draft.add(batch)
            draft.commit({"last": last.last})
        for one in segments:
            remove(one.path)
        return Segment(first.first_pull, last.last_pull, first.first, last.last, path)


def _batches(segments: list[Segment]) -> Iterator[pa.RecordBatch]:
    for one in segments:
        yield from read_state(one.path).batches()


def _replaces(merged: Segment, one: Segment) -> bool:
    return merged != one and merged.first_pull <= one.first_pull and one.last_pull <= merged.last_pull
