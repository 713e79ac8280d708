"""Notes of the version that each micro-batch was joined with, which keep the version of a query's last micro-batch on disk.

A process that has a version open holds it by a lock, and the lock ends with the process. A task that is retried elsewhere, or a
micro-batch that is replayed after a restart, still needs the version of its first attempt. A note per micro-batch names it:

    relation/batches/<query>/<batch>     {"batch": 7, "version": 3, "run": "...", "identity": "...", "file": ...}

Rows of a query that wait in its run log may have met a part of a version. Another note, for each shard of a log, names those:

    relation/batches/<query>/waiting-<log>-<shard>     {"versions": [3], "file": ..., "checksum": ...}

A note is on disk before its version is used. A note that is damaged is refused and never written again: tasks of the same
micro-batch may have joined with the version that it named.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.clock import WallClock
from headrace.errors import DamagedRelation
from headrace.files import make_directory, names_in, paths_in, remove, status
from headrace.files.checked_json import read_checked, replace_checked

_KEPT = 100  # notes kept per query, in micro-batches; Spark replays the last one only, so this is ample
_EXPIRES_AFTER = 86_400.0  # seconds; a query that has run no micro-batch for a day holds no version any more
_WAITING = "waiting-"  # begins the name of a note of rows that wait
_LEVELS = 2  # of a note's name that are its own: the query, and the micro-batch or the holder
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")  # the name of a note: Spark counts micro-batches in 64 bits
#: What to do about a note that is damaged.
NOTE_CURE = (
    "so nobody knows which version its micro-batch was joined with: stop the query, remove this file, and start the query again,"
    " which joins the whole micro-batch anew"
)


@dataclass(frozen=True, kw_only=True)
class BatchNote:
    """What a micro-batch was joined with."""

    batch: int
    """number of the micro-batch"""
    version: int
    """version of the relation"""
    run: str
    """id of the run of the query; a restart of the query has another"""
    identity: str
    """identity of the relation; one made in its place has another"""


def batch_notes(root: Path, query: str) -> Path:
    """Return the directory with the notes of a query."""
    return root / "batches" / query


def read_batch_note(directory: Path, batch: int) -> BatchNote | None:
    """Read the note of a micro-batch; None if there is none. A damaged one is refused."""
    path = directory / str(batch)
    try:
        note = BatchNote(**read_checked(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedRelation(
            path, f"it cannot be read ({error.strerror or 'it is no regular file'}), {NOTE_CURE}"
        ) from error
    except (ValueError, TypeError) as error:
        # A TypeError is of a note with other members: an earlier release wrote it.
        reason = error if isinstance(error, ValueError) else "it is not a note of this release"
        raise DamagedRelation(path, f"{reason}, {NOTE_CURE}") from error
    if not isinstance(note.version, int) or not isinstance(note.run, str) or not isinstance(note.identity, str):
        raise DamagedRelation(path, f"its version, run or identity is of another type, {NOTE_CURE}")
    if note.batch != batch:
        raise DamagedRelation(path, f"it is the note of micro-batch {note.batch}, {NOTE_CURE}")
    return note


def write_batch_note(directory: Path, note: BatchNote) -> None:
    """Write the note of a micro-batch to disk by an atomic rename, and remove notes that are too old to be needed.

    The caller holds the lock of the directory.
    """
    replace_checked(directory / str(note.batch), directory / f".{note.batch}", asdict(note), _LEVELS)
    for old in _numbers(directory):
        if old < note.batch - _KEPT:
            with suppress(OSError):  # a directory of that name is none of ours
                remove(directory / str(old))


def hold_versions(directory: Path, holder: str, versions: set[int]) -> None:
    """Note which versions rows that wait have met a part of, instead of what was noted before.

    `holder` names the shard of the log that they wait in; its lock is held. Where nothing can be written, nothing is held.
    """
    path, held = directory / f"{_WAITING}{holder}", sorted(versions)
    try:
        if _held(path) == held:
            return
        if held:
            make_directory(directory, parents=True)
            replace_checked(path, directory / f".{_WAITING}{holder}", {"versions": held}, _LEVELS)
        else:
            remove(path)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise


def _held(path: Path) -> list[int] | None:
    """Read the note of rows that wait; none where there is none, and None where it is damaged, so that nobody knows."""
    try:
        return [int(version) for version in read_checked(path)["versions"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError):
        return None


def versions_of_last_batches(root: Path, there: Collection[int] = ()) -> set[int]:
    """Return the version of each query's last micro-batch, and those that its rows wait for, unless it began over a day ago.

    What is no note is passed over: without its note a task of the micro-batch is refused, and needs no version. Of `there`, the
    versions that there are, none is given up while a note of rows that wait cannot be read: it is written again with the query's
    next micro-batch.
    """
    held = set[int]()
    with suppress(OSError):  # no query has joined with the relation
        for directory in paths_in(root / "batches"):
            with suppress(OSError):
                note = _last_note(directory)
                if note is not None:
                    held.add(note.version)
                    for path in paths_in(directory, f"{_WAITING}*"):
                        waiting = _held(path)
                        held.update(there if waiting is None else waiting)
    return held


def _last_note(directory: Path) -> BatchNote | None:
    """Return the note of a query's last micro-batch; None if there is none, or it is more than a day old."""
    since = WallClock().now() - _EXPIRES_AFTER
    for batch in sorted(_numbers(directory), reverse=True):
        with suppress(DamagedRelation):
            note = read_batch_note(directory, batch)
            if note is not None:
                written = status(directory / str(batch))
                return note if written is not None and written.st_mtime > since else None
    return None


def _numbers(directory: Path) -> list[int]:
    return [int(name) for name in names_in(directory) if _NUMBER.fullmatch(name)]
