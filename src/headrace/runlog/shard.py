"""One shard of a run log, held by one attempt at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace import files
from headrace.clock import Clock
from headrace.errors import BadInput, RunLogError
from headrace.runlog.files import DRAFT, IN_LOG, LogFile, StateDraft, read_state, write_rows, write_state
from headrace.units import format_duration

_STATE = re.compile(r"(\d{10,})(?:-(\d{10,}))?\.([a-z][a-z0-9_]*)\.arrow")
_KIND = re.compile(r"[a-z][a-z0-9_]{0,40}")
_LOCK = ".lock"  # in the directory of a shard


@dataclass(frozen=True, order=True)
class Entry:
    """A file of state of one kind, of the micro-batches from `first` to `last`; both are the same unless it was compacted."""

    last: int
    first: int
    path: Path


class ShardLog:
    """The files of one shard. `RunLog.shard` gives it, locked: every other attempt at the same shard waits.

    Parameters
    ----------
    directory
        The log's directory.
    number
        Which shard it is.
    """

    def __init__(self, directory: Path, number: int) -> None:
        self.directory = directory
        self.number = number
        self.path = directory / f"shard-{number:04d}"

    # -- reading --------------------------------------------------------------------------------------------------------

    def find(self, kind: str, batch: int) -> LogFile | None:
        """Open what an earlier attempt at this batch wrote; None if there was none, or it died before."""
        with suppress(FileNotFoundError):
            return read_state(self.path / _name(kind, batch))
        return None

    def entries(self, kind: str, *, before: int, since: int = 0) -> list[Entry]:
        """List the files of earlier batches, oldest first."""
        check_kind(kind)
        found = sorted(e for k, e in self._all() if k == kind)
        # A compaction that was interrupted leaves the files that it merged beside the merged one.
        whole = [e for e in found if e.first < e.last]
        found = [e for e in found if not any(w != e and w.first <= e.first and e.last <= w.last for w in whole)]
        return [e for e in found if e.last < before and e.last >= since]

    def last(self, kind: str, *, before: int) -> LogFile | None:
        """Open the newest file of earlier batches."""
        entries = self.entries(kind, before=before)
        return read_state(entries[-1].path) if entries else None

    def read(self, kind: str, *, before: int, since: int = 0) -> Iterator[LogFile]:
        """Open the files of earlier batches, oldest first, one at a time."""
        return (read_state(e.path) for e in self.entries(kind, before=before, since=since))

    def listed(self) -> Iterator[tuple[str, Entry]]:
        """List every file of state with its kind, without those that a compaction replaced."""
        if files.is_directory(self.path):
            for kind in sorted({kind for kind, _ in self._all()}):
                yield from ((kind, e) for e in self.entries(kind, before=1 << 62))

    def _all(self) -> Iterator[tuple[str, Entry]]:
        for path in files.paths_in(self.path):
            if match := _STATE.fullmatch(path.name):
                first = int(match[1])
                yield match[3], Entry(int(match[2] or first), first, path)

    # -- writing ----------------------------------------------------------------------------------------------------------

    def write(
        self,
        kind: str,
        batch: int,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        facts: Mapping[str, Any] | None = None,
    ) -> LogFile:
        """Write state of a batch, unless an earlier attempt has: its file stays, and is what comes back.

        Parameters
        ----------
        batches
            The rows, which are written batch by batch.
        facts
            Anything that JSON can hold. It is read when all rows are written.
        """
        path = self.path / _name(kind, batch)
        if not files.exists(path):
            write_state(path, schema, batches, {} if facts is None else facts, IN_LOG)
        return read_state(path)

    def draft(self, kind: str, batch: int, schema: pa.Schema) -> StateDraft:
        """Begin a file of state whose rows become known one after the other; for a batch that `find` has nothing of."""
        return StateDraft(self.path / _name(kind, batch), schema, IN_LOG)

    def keep(
        self,
        kind: str,
        batch: int,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        facts: Mapping[str, Any] | None = None,
        *,
        part: str = "",
        replace: bool = False,
    ) -> Path:
        """Keep rows of a batch for people, as Parquet in a directory of their kind, unless an earlier attempt has.

        Parameters
        ----------
        part
            Added to the file's name, where a batch has several files.
        replace
            Whether this attempt replaces what an earlier one kept.
        """
        path = self.kept(kind, batch, part)
        if replace or not files.exists(path):
            files.make_directory(path.parent)
            write_rows(path, self.path, schema, batches, {} if facts is None else facts, replace=replace)
        return path

    def kept(self, kind: str, batch: int, part: str = "") -> Path:
        """The path of the rows of a batch that are kept for people."""
        name = _name(kind, batch).split(".")[0]
        return self.directory / kind / f"{self.path.name}-{name}{f'-{check_kind(part)}' if part else ''}.parquet"

    # -- removing --------------------------------------------------------------------------------------------------------

    def compact(
        self,
        kind: str,
        *,
        before: int,
        since: int = 0,
        facts: Mapping[str, Any] | None = None,
        merge: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] = iter,
    ) -> None:
        """Merge files of earlier batches into one, with the facts of the last. That of `before`, which may be replayed, stays.

        A reader sees either the files or the merged one, which has its name before the others lose theirs.

        Parameters
        ----------
        facts
            The facts of the merged file, instead of those of the last one.
        merge
            Makes the rows of the merged file from those of all files.
        """
        entries = self.entries(kind, before=before, since=since)
        if len(entries) < 2:
            return
        last = read_state(entries[-1].path)
        rows = (batch for entry in entries for batch in read_state(entry.path).batches())
        name = _name(kind, entries[0].first).replace(".", f"-{entries[-1].last:010d}.", 1)
        write_state(self.path / name, last.schema, merge(rows), last.facts if facts is None else facts, IN_LOG)
        self.remove([entry.path for entry in entries])

    def expire(self, kind: str, *, before: int) -> None:
        """Remove the files of batches before this one."""
        self.remove([e.path for k, e in self._all() if k == kind and e.last < before])

    def discard(self, kind: str, batch: int) -> None:
        """Remove the file of this kind and batch, which an attempt wrote that died before its decision."""
        self.remove([path for path in [self.path / _name(kind, batch)] if files.exists(path)])

    def remove(self, paths: list[Path]) -> None:
        """Remove files of this shard."""
        for path in paths:
            files.remove(path)
        if paths:
            files.sync_directory(self.path)

    def unkeep(self, batch: int, part: str) -> None:
        """Remove the rows of a batch that are kept for people, of every kind, in files with this part in their names."""
        name = self.kept("any", batch, part).name
        for kind in files.paths_in(self.directory):
            if files.exists(kind / name):
                files.remove(kind / name)

    # -- one attempt at a time -------------------------------------------------------------------------------------------

    @contextmanager
    def held(self, patience: float, clock: Clock | None = None) -> Iterator[ShardLog]:
        """Hold the lock of this shard, and remove the drafts of attempts that died."""
        files.make_directory(self.path)
        with files.locked(self.path / _LOCK, patience=patience, clock=clock) as held:
            if not held:
                raise RunLogError(
                    f"another attempt has held {self.path} for {format_duration(patience)}; is the query running twice?"
                )
            for path in files.paths_in(self.path, f"{DRAFT}*"):
                files.remove(path)
            yield self


def check_kind(kind: str) -> str:
    """Refuse a kind that cannot be part of a file's name."""
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise BadInput(
            f"kind={kind!r} is not a kind of log file; give lower-case letters, digits and _, such as 'dead_letter'"
        )
    return kind


def _name(kind: str, batch: int) -> str:
    if not isinstance(batch, int) or batch < 0:
        raise BadInput(f"batch={batch!r} is not the number of a micro-batch; give 0 or more")
    return f"{batch:010d}.{check_kind(kind)}.arrow"
