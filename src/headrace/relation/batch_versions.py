"""Notes of the version that each micro-batch was joined with, which keep the version of a query's last micro-batch on disk.

A process that has a version open holds it by a lock, and the lock ends with the process. A task that is retried elsewhere, or a
micro-batch that is replayed after a restart, still needs the version of its first attempt. A note per micro-batch names it:

    relation/batches/<query>/<batch>     {"version": 3, "run": "..."}
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.clock import WallClock

_KEPT = 100  # notes kept per query, in micro-batches; Spark replays the last one only, so this is ample
_EXPIRES_AFTER = 86_400.0  # seconds; a query that has run no micro-batch for a day holds no version any more


@dataclass(frozen=True)
class BatchNote:
    """What a micro-batch was joined with."""

    version: int
    """version of the relation"""
    run: str
    """id of the run of the query; a restart of the query has another"""


def batch_notes(root: Path, query: str) -> Path:
    """Return the directory with the notes of a query."""
    return root / "batches" / query


def read_batch_note(path: Path) -> BatchNote | None:
    """Read a note; a note that is missing or damaged is None."""
    try:
        note = json.loads(path.read_text())
        return BatchNote(int(note["version"]), str(note["run"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def write_batch_note(directory: Path, batch: int, note: BatchNote) -> None:
    """Write the note of a micro-batch by an atomic rename, and remove notes that are too old to be needed."""
    draft = directory / f".{batch}"
    draft.write_text(json.dumps(asdict(note)))
    draft.replace(directory / str(batch))
    for old, path in _numbered(directory).items():
        if old < batch - _KEPT:
            path.unlink(missing_ok=True)


def versions_of_last_batches(root: Path) -> set[int]:
    """Return the version of each query's last micro-batch, unless that began more than a day ago."""
    since = WallClock().now() - _EXPIRES_AFTER
    held = set()
    for directory in (root / "batches").glob("*/"):
        notes = _numbered(directory)
        if not notes:
            continue
        last = notes[max(notes)]
        with suppress(FileNotFoundError):
            note = read_batch_note(last)
            if note is not None and last.stat().st_mtime > since:
                held.add(note.version)
    return held


def _numbered(directory: Path) -> dict[int, Path]:
    return {int(path.name): path for path in directory.iterdir() if path.name.isdigit()}
