"""One version of the relation for all tasks of a micro-batch. (DESIGN D9)

The first task of a micro-batch notes the version it opened in the relation's directory, which all executors see; the others read
the note. So do tasks that are tried again and micro-batches that are replayed, and they give the same rows: writers keep what a
query's last note names for a day (`headrace.relation.batch_versions`).
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import VersionGone
from headrace.relation import Relation
from headrace.relation.batch_versions import BatchNote, batch_notes, read_batch_note, write_batch_note
from headrace.relation.disk import DiskKind
from headrace.relation.manifest import Manifest, manifest_path, versions
from headrace.spark.steps import SparkTask


def open_for_batch(root: Path, task: SparkTask, disk: DiskKind, at: int, current: Relation | None) -> Relation:
    """Open the relation as the task's micro-batch sees it.

    Parameters
    ----------
    at
        The version for a task of no streaming query, or where no note can be written.
    current
        The relation that this process has open.
    """
    if task.query is None or task.batch is None:
        return open_at(root, disk, at, current)
    return open_noted(root, task.query, task.batch, task.run, disk, at, current)


def open_noted(
    root: Path, query: str, batch: int, run: str, disk: DiskKind, at: int, current: Relation | None = None
) -> Relation:
    """Open the relation at the version that a query's micro-batch noted; the first to ask notes the latest.

    Parameters
    ----------
    query, batch, run
        The query's id, the number of the micro-batch, and the id of the query's run: a restart has another.
    at, current
        See `open_for_batch`.
    """
    directory = batch_notes(root, query)
    try:
        with _locked(directory):
            note = read_batch_note(directory / str(batch))
            if note is not None:
                try:
                    return open_at(root, disk, note.version, current)
                except VersionGone:
                    # Other tasks of this run may have joined with it: only a run that starts over may take another.
                    if note.run == run:
                        raise
            latest = open_latest(root, disk, current)
            write_batch_note(directory, batch, BatchNote(latest.version, run))
            return latest
    except OSError as error:
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            return open_at(root, disk, at, current)
        raise


def open_at(root: Path, disk: DiskKind, version: int, current: Relation | None) -> Relation:
    """Open the relation at a version; the relation that is open already, if it is that version."""
    if current is not None and current.version == version and current.disk.kind == disk and _is_there(root, current):
        return current
    return Relation.open(root, version=version, disk=disk)


def open_latest(root: Path, disk: DiskKind, current: Relation | None) -> Relation:
    """Open the relation at its latest version: a version that was looked up before may be removed by now."""
    newest = versions(root)[-1]
    if current is not None and current.version == newest and current.disk.kind == disk and _is_there(root, current):
        return current
    return Relation.open(root, disk=disk)


def _is_there(root: Path, current: Relation) -> bool:
    """Whether the relation at the path is the one that is open, and not another that was made in its place."""
    try:
        return Manifest.load(manifest_path(root, current.version)) == current.opened.manifest
    except FileNotFoundError:
        return False


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True)
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
