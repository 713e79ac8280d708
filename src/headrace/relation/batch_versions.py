"""Versions that micro-batches were joined with: each query's last may be wanted again, and stays.

A process that has a version open holds it by a lock, which goes with the process. A task that is tried again elsewhere, or a
micro-batch that is replayed after a restart, still needs the version of its first attempt, and a note says which that is:

    relation/batches/<query>/<batch>     {"version": 3, "run": "..."}
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace.clock import WallClock

_KEPT = 100  # micro-batches of a query whose notes are kept: Spark replays the last one only
_DAY = 86_400.0  # seconds: a query that has done nothing for longer holds nothing


def batch_notes(root: Path, query: str) -> Path:
    """Where a query's notes are."""
    return root / "batches" / query


def read_batch_note(path: Path) -> dict[str, Any] | None:
    """What a note says; nothing if it is missing or damaged."""
    try:
        note = json.loads(path.read_text())
        return {"version": int(note["version"]), "run": str(note["run"])}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def write_batch_note(directory: Path, batch: int, note: dict[str, Any]) -> None:
    """Note it, and forget what nobody asks for any more."""
    draft = directory / f".{batch}"
    draft.write_text(json.dumps(note))
    draft.replace(directory / str(batch))
    for old, path in _numbered(directory).items():
        if old < batch - _KEPT:
            path.unlink(missing_ok=True)


def versions_of_last_batches(root: Path) -> set[int]:
    """The version of each query's last micro-batch, unless that began more than a day ago."""
    since = WallClock().now() - _DAY
    held = set()
    for directory in (root / "batches").glob("*/"):
        notes = _numbered(directory)
        if not notes:
            continue
        last = notes[max(notes)]
        with suppress(FileNotFoundError):
            note = read_batch_note(last)
            if note is not None and last.stat().st_mtime > since:
                held.add(int(note["version"]))
    return held


def _numbered(directory: Path) -> dict[int, Path]:
    return {int(path.name): path for path in directory.iterdir() if path.name.isdigit()}
