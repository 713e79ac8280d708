"""One version of the relation for all tasks of a micro-batch. (DESIGN D9)

The first task of a micro-batch notes the version it opened in the relation's directory, which all executors see; the others read
the note. So do tasks that are tried again and micro-batches that are replayed, and they give the same rows: writers keep what a
query's last note names for a day (`headrace.relation.batch_versions`).

A relation made in the place of another (overwrite=True) takes its path, and its versions count from 1 again; the notes are gone
with the old directory. So every task is told the identity of the relation that its query began with, and compares it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakKeyDictionary

from headrace.errors import DamagedRelation, RelationReplaced, VersionGone
from headrace.files import NotRegular, close, lock, make_directory, open_lock, open_regular
from headrace.relation import Relation
from headrace.relation.batch_versions import NOTE_CURE, BatchNote, batch_notes, read_batch_note, write_batch_note
from headrace.relation.disk import DiskKind
from headrace.relation.manifest import Manifest, manifest_path, versions
from headrace.spark.steps import SparkTask

_LOCK = ".lock"  # in the directory of a query's notes
Stamp = tuple[str, int, int, int, int, int]  # path, device, inode, size, times of change of the bytes and of the inode


def open_for_batch(
    root: Path, identity: str, task: SparkTask, disk: DiskKind, at: int, current: Relation | None
) -> Relation:
    """Open the relation as the task's micro-batch sees it.

    Parameters
    ----------
    identity
        Of the relation that the query began with; another one is refused.
    at
        The version for a task of no streaming query, or where no note can be written.
    current
        The relation that this process has open.
    """
    if task.query is None or task.batch is None:
        return open_at(root, identity, disk, at, current)
    return open_noted(root, identity, task.query, task.batch, task.run, disk, at, current)


def open_noted(
    root: Path,
    identity: str,
    query: str,
    batch: int,
    run: str,
    disk: DiskKind,
    at: int,
    current: Relation | None = None,
) -> Relation:
    """Open the relation at the version that a query's micro-batch noted; the first to ask notes the latest.

    Parameters
    ----------
    query, batch, run
        The query's id, the number of the micro-batch, and the id of the query's run: a restart has another.
    identity, at, current
        See `open_for_batch`.
    """
    directory = batch_notes(root, query)
    try:
        with _locked(directory):
            note = read_batch_note(directory, batch)
            if note is not None and note.identity == identity:
                try:
                    return open_at(root, identity, disk, note.version, current)
                except VersionGone:
                    # Other tasks of this run may have joined with it: only a run that starts over may take another.
                    if note.run == run:
                        raise
            latest = open_latest(root, identity, disk, current)
            if (
                note is not None and note.identity != identity
            ):  # a relation made in the place of another has none of its notes
                raise DamagedRelation(directory / str(batch), f"it is the note of another relation, {NOTE_CURE}")
            write_batch_note(directory, BatchNote(batch=batch, version=latest.version, run=run, identity=identity))
            return latest
    except OSError as error:
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            return open_at(root, identity, disk, at, current)
        raise


def open_at(root: Path, identity: str, disk: DiskKind, version: int, current: Relation | None) -> Relation:
    """Open the relation at a version; the relation that is open already, if it is that version."""
    if current is not None and current.version == version and current.disk.kind == disk and _is_there(root, current):
        current.check_identity(identity)
        return current
    try:
        return _identical(Relation.open(root, version=version, disk=disk), identity)
    except VersionGone:
        # A relation made in its place may have no such version: that is what is to be said then.
        _identical(Relation.open(root, disk=disk), identity).close()
        raise


def open_latest(root: Path, identity: str, disk: DiskKind, current: Relation | None) -> Relation:
    """Open the relation at its latest version: a version that was looked up before may be removed by now."""
    newest = versions(root)[-1]
    if current is not None and current.version == newest and current.disk.kind == disk and _is_there(root, current):
        current.check_identity(identity)
        return current
    return _identical(Relation.open(root, disk=disk), identity)


def _identical(relation: Relation, identity: str) -> Relation:
    """The relation, if it has that identity; else it is closed and refused."""
    try:
        relation.check_identity(identity)
    except RelationReplaced:
        relation.close()
        raise
    return relation


def _is_there(root: Path, current: Relation) -> bool:
    """Whether the relation at the path is the one that is open, and not another that was made in its place.

    Every task asks, so the manifest is parsed again only if its file is another than when it was last compared. The file is
    opened, and not only looked up: a network file system may answer a look-up from memory.
    """
    path = manifest_path(root, current.version)
    try:
        stamp = _stamp(path)
        if stamp is not None and _compared.get(current) == stamp:
            return True
        same = Manifest.load(path) == current.opened.manifest
    except FileNotFoundError:
        return False
    if same and stamp is not None:
        _compared[current] = stamp
    return same


def _stamp(path: Path) -> Stamp | None:
    """What tells a file from another of its name, or from itself when it is changed; None of what is no regular file."""
    try:
        fd = open_regular(path)
    except NotRegular:
        return None
    try:
        stat = os.fstat(fd)
    finally:
        close(fd)
    return str(path), stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


#: Relations that this process has open, with the file of the manifest that was found to be theirs.
_compared: WeakKeyDictionary[Relation, Stamp] = WeakKeyDictionary()


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    make_directory(directory, parents=True)
    fd = open_lock(directory / _LOCK)
    try:
        lock(fd, wait=True)
        yield
    finally:
        close(fd)
