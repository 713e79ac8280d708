"""The log of a Delta table, on disk: delta-rs gives its files their names without waiting for the disk. (DESIGN D8)

A micro-batch counts as loaded when its entry would be there after a power cut, and all that the entry names: files and their
directories are synced by the tasks, before the commit. A cut between a commit and its sync can leave a file of the log cut short,
which makes the table unreadable; nothing that counts is in it, and it is named with what to do.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from headrace.errors import OutsideFailure
from headrace.files import is_file, paths_in, read_regular, sync_directory, sync_regular

LOG = "_delta_log"
_LAST_CHECKPOINT = "_last_checkpoint"
_PARQUET = b"PAR1"  # begins and ends a file


def sync_table(table: Path) -> None:
    """Have a table's directory, its log and the entry that made it on disk. Whoever made them may have been killed before."""
    sync_regular(_entry(table, 0))
    for directory in (table / LOG, table, table.parent):
        sync_directory(directory)


def sync_entries(table: Path, version: int, app: str) -> None:
    """Have entries of the log on disk: from the newest back to the one that holds the application's last transaction.

    A commit does not say what version it became, and other writers may have committed since. A checkpoint that was made with one
    of the commits is synced too.
    """
    newest = version
    while version >= 0 and sync_regular(_entry(table, version)) and not _of(_entry(table, version), app):
        version -= 1
    for number in range(max(version, 0), newest + 1):
        if sync_regular(_checkpoint(table, number)):
            sync_regular(table / LOG / _LAST_CHECKPOINT)
    sync_directory(table / LOG)


def refuse_cut_short(table: Path) -> None:
    """Refuse a table whose log ends with a file that a power cut has cut short, with what to do; pass any other."""
    entries = paths_in(table / LOG, "*.json", missing_ok=True)
    if entries and is_file(entries[-1]) and not _is_whole(entries[-1]):
        raise OutsideFailure(
            f"{entries[-1]} is cut short, as a power cut leaves a file that was just written; what it would have committed was"
            " not loaded yet: remove it, and load again"
        )
    for path in paths_in(table / LOG, "*.checkpoint.parquet", missing_ok=True)[-1:]:
        if is_file(path) and read_regular(path)[-4:] != _PARQUET:
            raise OutsideFailure(
                f"{path} is cut short, as a power cut leaves a file that was just written; the entries before it hold the same:"
                f" remove it and {path.with_name(_LAST_CHECKPOINT)}, and load again"
            )


def _entry(table: Path, version: int) -> Path:
    return table / LOG / f"{version:020d}.json"


def _checkpoint(table: Path, version: int) -> Path:
    return table / LOG / f"{version:020d}.checkpoint.parquet"


def _of(path: Path, app: str) -> bool:
    """Whether an entry holds a transaction of an application."""
    for line in read_regular(path).splitlines():
        with suppress(ValueError, KeyError, TypeError):
            if b'"txn"' in line and json.loads(line)["txn"]["appId"] == app:
                return True
    return False


def _is_whole(entry: Path) -> bool:
    lines = read_regular(entry).splitlines()
    try:
        return bool(lines) and all(isinstance(json.loads(line), dict) for line in lines)
    except ValueError:
        return False
