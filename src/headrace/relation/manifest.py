"""Versions of a relation: each has a manifest, committed by an atomic link and kept while a reader holds it. (DESIGN D9)

    relation/
      manifest-000001.json     what version 1 consists of; never changed
      manifest-000002.json
      shard-0000-000001.pages  .index  .fences  .filter  .stats      immutable; a version names the files it uses
      locks/000001             a reader of version 1 holds it shared; removing version 1 needs it alone
      locks/writer             held by the one writer

A version exists from the moment its manifest has its name, and a manifest gets its name last.
"""

from __future__ import annotations

import base64
import difflib
import errno
import json
import logging
import re
import stat
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from headrace.errors import (
    SUGGEST_ABOVE,
    BadInput,
    DamagedRelation,
    NewerFormat,
    NotARelation,
    UnfinishedRelation,
    VersionConflict,
    VersionGone,
    shown,
)
from headrace.files import (
    NotRegular,
    close,
    create_exclusively,
    draft_name,
    exists,
    is_directory,
    lock,
    make_directory,
    names_in,
    open_directory,
    open_lock,
    open_new,
    open_regular,
    paths_in,
    read_regular,
    remove,
    remove_abandoned,
    status,
    sync_directory,
)
from headrace.relation.batch_versions import versions_of_last_batches
from headrace.relation.manifest_check import ManifestCheck
from headrace.units import format_size

_log = logging.getLogger(__name__)

# The latest. A manifest has 5 if a shard has index pages, 4 if rows stored by frequency were changed, 3 if it has notes, 2 if it
# is stored by frequency, else 1.
FORMAT = 5
_MOST_BYTES = (
    256 << 20
)  # of a manifest: that of 32,767 shards has some 30 MB, and a damaged one must not ask for gigabytes
StorageOrder = Literal["key", "frequency"]
SCRATCH = "scratch-"  # directories in a relation for spilled runs, each with the lease of its writer
UNFINISHED = ".unfinished-"  # a relation is created in a sibling directory, see `Lease`
# Names as `manifest_path` gives them. Whoever opened version 9 for the sake of manifest-0000009.json would never find it.
_MANIFEST = re.compile(r"manifest-([0-9]{6}|[1-9][0-9]{6,})\.json")


@dataclass(slots=True)
class FileFacts:
    """A file of a version. Every page, or the header of a sidecar, has its tag, which tells it from files of other versions."""

    name: str
    bytes: int
    tag: int
    pages: int = 0

    @staticmethod
    def new_tag() -> int:
        """Draw a random tag of 31 bits."""
        return uuid.uuid4().int & 0x7FFFFFFF


@dataclass(slots=True)
class IndexFileFacts(FileFacts):
    """The file of a shard's index pages: the pages of each level, the leaves first, and whether data pages have moved.

    Where none has moved, page i of the index is page i of the shard's first file.
    """

    levels: list[int] = field(default_factory=list)
    moved: bool = False


@dataclass(slots=True, kw_only=True)
class ShardFacts:
    """The files and the statistics of one shard in one version. Small indexes, and versions before format 4, have no pages."""

    rows: int
    pages: int
    used_bytes: int
    distinct: int
    max_frequency: int
    files: list[FileFacts]
    index: FileFacts
    filter: FileFacts
    stats: FileFacts
    fences: IndexFileFacts | None = None

    @classmethod
    def load(cls, facts: dict[str, Any]) -> ShardFacts:
        facts = dict(facts)
        if facts.get("fences") is not None:
            facts["fences"] = IndexFileFacts(**facts["fences"])
        facts["files"] = [FileFacts(**f) for f in facts["files"]]
        for part in ("index", "filter", "stats"):
            facts[part] = FileFacts(**facts[part])
        return cls(**facts)

    @property
    def moved(self) -> bool:
        """Whether some page is not where it would be if its shard were written anew: page i in the one file."""
        return len(self.files) > 1 or self.pages != sum(file.pages for file in self.files)

    def dump(self) -> dict[str, Any]:
        """Return the facts as JSON, without index pages where there are none."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def all_files(self) -> list[FileFacts]:
        """List every file of the shard."""
        return [*self.files, self.index, self.filter, self.stats, *([] if self.fences is None else [self.fences])]

    def names(self) -> set[str]:
        return {file.name for file in self.all_files()}


@dataclass(slots=True, kw_only=True)
class Manifest:
    """One version of a relation."""

    version: int
    schema: pa.Schema
    key: tuple[str, ...]
    page_size: int
    fill: float
    shards: list[ShardFacts]
    nulls: dict[str, int]
    variable_bytes: dict[str, int]
    order: StorageOrder = "key"
    # Random, given when the relation is made and kept in all its versions: a relation made in its place has another one.
    identity: str = field(default_factory=lambda: uuid.uuid4().hex)
    # JSON that writers commit with a version; later versions keep it.
    notes: dict[str, Any] = field(default_factory=dict)
    created: str = field(default_factory=lambda: Manifest.now())

    def summary(self) -> str:
        """Return what the version holds, in the words of a log line."""
        pages = sum(shard.pages for shard in self.shards)
        nbytes = sum(file.bytes for shard in self.shards for file in shard.files)
        return f"version {self.version}, {self.rows:,} rows in {pages:,} pages, {format_size(nbytes)}"

    @staticmethod
    def now() -> str:
        # Shown to people only; nothing depends on it.
        return datetime.now(UTC).isoformat(timespec="seconds")  # noqa: TID251

    @property
    def rows(self) -> int:
        return sum(shard.rows for shard in self.shards)

    @property
    def _format(self) -> int:
        """The earliest format that has all that this manifest needs: earlier releases read what they can."""
        if any(shard.fences is not None for shard in self.shards):
            return FORMAT
        if self.order == "frequency" and any(shard.moved for shard in self.shards):
            return 4
        return 3 if self.notes else 1 if self.order == "key" else 2

    def dump(self) -> bytes:
        body = {
            "relation": "headrace",
            "format": self._format,
            "version": self.version,
            "identity": self.identity,
            "created": self.created,
            "schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
            "key": list(self.key),
            "page_size": self.page_size,
            "fill": self.fill,
            "nulls": self.nulls,
            "variable_bytes": self.variable_bytes,
            "shards": [shard.dump() for shard in self.shards],
        }
        if self.order != "key":
            body["order"] = self.order
        if self.notes:
            body["notes"] = self.notes
        return json.dumps({**body, "checksum": _checksum(body)}, indent=1).encode()

    @classmethod
    def load(cls, path: Path) -> Manifest:
        try:
            body = json.loads(read_regular(path, most=_MOST_BYTES))
            if body["relation"] != "headrace":
                raise KeyError("relation")
            written = int(body["format"])
            if written < 1:
                raise ValueError("format")
        except NotRegular as error:
            raise DamagedRelation(path, "it is not a regular file") from error
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise DamagedRelation(path, "it is not the manifest of a Headrace relation") from error
        if written > FORMAT:
            raise NewerFormat(
                f"{path} has format {written}, written by a later Headrace; this one reads formats up to {FORMAT}:"
                " upgrade Headrace, or create the relation again"
            )
        try:
            same = body.pop("checksum", None) == _checksum(body)
        except RecursionError as error:  # what can be read may be too deep to be written
            raise DamagedRelation(path, "it is not the manifest of a Headrace relation") from error
        if not same:
            raise DamagedRelation(path, "its checksum does not match its text")
        try:
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(body["schema"], validate=True)))
        except (KeyError, TypeError, ValueError, pa.ArrowException, OSError) as error:
            raise DamagedRelation(path, "its schema cannot be read") from error
        ManifestCheck(path, body, schema).run()
        if path != manifest_path(path.parent, body["version"]):
            raise DamagedRelation(path, f"it is the manifest of version {body['version']}")
        return cls(
            version=body["version"],
            schema=schema,
            key=tuple(body["key"]),
            page_size=body["page_size"],
            fill=body["fill"],
            shards=[ShardFacts.load(shard) for shard in body["shards"]],
            nulls=body["nulls"],
            variable_bytes=body["variable_bytes"],
            order=body.get("order", "key"),
            identity=body.get("identity", ""),
            notes=body.get("notes", {}),
            created=body["created"],
        )


def _checksum(body: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())


def manifest_path(root: Path, version: int) -> Path:
    return root / f"manifest-{version:06d}.json"


def versions(root: Path) -> list[int]:
    """List the versions, oldest first. Refuses a path that is not a relation, and says what it is instead."""
    if not exists(root):
        unfinished = drafts(root)
        if unfinished:
            raise UnfinishedRelation(
                f"{root} was never finished: its creation stopped and left {unfinished[0].name}; create it again"
            )
        raise NotARelation(f"there is no relation at {root}; create one with Relation.create{_near(root)}")
    if not is_directory(root):
        raise NotARelation(f"{root} is a file; a Headrace relation is a directory")
    if UNFINISHED in root.name:
        raise UnfinishedRelation(f"{root} is what a stopped creation left; create the relation again")
    found = sorted(int(m[1]) for name in names_in(root) if (m := _MANIFEST.fullmatch(name)))
    if not found:
        inside = [p.name for p in paths_in(root) if is_relation(p)]
        meant = f"; it holds relations: did you mean {str(root / inside[0])!r}?" if inside else ""
        raise NotARelation(f"{root} is not a Headrace relation: it has no manifest{meant}")
    return found


def _near(root: Path) -> str:
    """Return the question whether a relation beside the path was meant, if one has a similar name."""
    try:
        beside = [p.name for p in paths_in(root.parent) if is_relation(p)]
    except OSError:
        return ""
    close = difflib.get_close_matches(root.name, beside, n=1, cutoff=SUGGEST_ABOVE)
    return f" (did you mean {str(root.with_name(close[0]))!r}?)" if close else ""


def is_relation(path: Path) -> bool:
    """Whether a path is that of a directory with a manifest."""
    try:
        return UNFINISHED not in path.name and is_directory(path) and any(map(_MANIFEST.fullmatch, names_in(path)))
    except OSError:
        return False


def directory_at(root: Path) -> tuple[int, int] | None:
    """Return what tells the directory at a path from another in its place; None if there is none."""
    try:
        found = status(root)
    except OSError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)


def drafts(root: Path) -> list[Path]:
    """List the directories of unfinished creates of this relation, stopped or still running."""
    if not is_directory(root.parent):
        return []
    return [p for p in paths_in(root.parent) if p.name.startswith(f"{root.name}{UNFINISHED}")]


def commit(root: Path, manifest: Manifest) -> None:
    """Commit a version by giving its manifest its name. The files are on disk already; no version is ever replaced."""
    check_sizes(root, manifest)
    path = manifest_path(root, manifest.version)
    draft = draft_name(path)
    try:
        with open_new(draft) as file:
            file.write(manifest.dump())
            file.sync()
        # The bytes of the version's files are on disk, and now their names are: a power cut could keep the manifest's name alone.
        sync_directory(root)
        if not create_exclusively(draft, path):
            raise VersionConflict(
                f"version {manifest.version} of {root} was committed by another writer; open the relation again and retry"
            )
    finally:
        with suppress(OSError):  # the next writer removes it
            remove(draft)


def check_sizes(root: Path, manifest: Manifest) -> None:
    """Refuse to commit a version one of whose files is not as long as it was written."""
    for number, shard in enumerate(manifest.shards):
        for file in shard.all_files():
            found = status(root / file.name, follow=False)
            if found is None:
                raise DamagedRelation(root / file.name, "the file is missing; nothing was committed", shard=number)
            if found.st_size != file.bytes:
                raise DamagedRelation(
                    root / file.name,
                    f"it has {found.st_size:,} bytes where {file.bytes:,} were written; nothing was committed. Is the disk full?",
                    shard=number,
                )


def pin(root: Path, version: int | None) -> tuple[Manifest, int]:
    """Lock a version (the latest by default) against removal; returns its manifest and the descriptor of the lock."""
    if version is not None and (isinstance(version, bool) or not isinstance(version, int | np.integer)):
        raise BadInput(
            f"version={shown(version)} is not a version's number; give a whole number, or None for the latest"
        )
    while True:
        existing = versions(root)
        wanted = existing[-1] if version is None else version
        if wanted not in existing:
            raise VersionGone(f"{root} has no version {wanted}; it has {', '.join(map(str, existing))}")
        fd = _lock_file(root, f"{wanted:06d}")
        try:
            lock(fd, shared=True, wait=True)
            return Manifest.load(manifest_path(root, wanted)), fd
        except FileNotFoundError:  # a writer removed the version before the lock was taken
            close(fd)
        except BaseException:
            close(fd)
            raise


@contextmanager
def writing(root: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the writer's lock of a relation. If another writer has it, wait for it, or refuse."""
    fd = _lock_file(root, "writer")
    try:
        if not lock(fd, wait=wait):
            raise VersionConflict(
                f"another writer is at work on {root}; one apply or compact runs at a time: retry when it is done"
            )
        yield
    finally:
        close(fd)


def remove_old(root: Path) -> list[int]:
    """Remove old versions that no reader holds, and files that no version names. The caller holds the writer's lock."""
    removed = []
    there = versions(root)
    for version in sorted({*there[:-1]} - versions_of_last_batches(root, there)):
        fd = _lock_file(root, f"{version:06d}")
        try:
            if lock(fd):
                remove(manifest_path(root, version))
                remove(root / "locks" / f"{version:06d}")
                removed.append(version)
                _log.debug("removed version %d of %s, which nobody reads any more", version, root)
        except IsADirectoryError:
            pass
        finally:
            close(fd)
    remove_unnamed(root)
    return removed


def remove_unnamed(root: Path) -> None:
    """Remove files that no version names: of old versions, and of writers that failed. The caller holds the writer's lock."""
    kept: set[str] = set()
    for version in versions(root):
        try:
            shards = Manifest.load(manifest_path(root, version)).shards
        except DamagedRelation:
            return  # what it names is not known, so no file is known to be nobody's
        kept |= {name for shard in shards for name in shard.names()}
    for path in paths_in(root):
        if (path.name.startswith("shard-") and path.name not in kept) or ".draft-" in path.name:
            with suppress(IsADirectoryError):
                remove(path)
    remove_abandoned(root, SCRATCH)
    # A writer that was killed between removing a version and its lock has left that. Whoever holds it still reads a version that
    # is gone for good: numbers are not given out again.
    held = {f"{version:06d}" for version in versions(root)}
    for path in paths_in(root / "locks"):
        if path.name.isdigit() and path.name not in held:
            with suppress(IsADirectoryError):
                remove(path)


def _open_lock(root: Path, path: Path) -> int:
    """Open the file of a lock, in a directory that is made if it is not there."""
    while True:
        try:
            make_directory(path.parent)
            found = status(path.parent, follow=False)
            if found is not None and not stat.S_ISDIR(found.st_mode):
                raise DamagedRelation(path.parent, "it is a symbolic link; expected a directory of the relation's own")
            return open_lock(path)
        except FileNotFoundError as error:
            if not is_directory(root):
                raise NotARelation(f"there is no relation at {root} any more") from error
            # Another relation has taken the place of this one since its directory of locks was made, and has none yet.


def _lock_file(root: Path, name: str) -> int:
    """Open the file of a lock. Where it cannot be written to, a reader locks what is there, or nothing."""
    path = root / "locks" / name
    try:
        return _open_lock(root, path)
    except FileExistsError as error:
        raise DamagedRelation(path.parent, "it is not a directory; remove it, and it is made anew") from error
    except NotRegular as error:
        raise DamagedRelation(path, "it is not a regular file; remove it, and it is made anew") from error
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES) or name == "writer":
            raise
    try:
        return open_regular(path)  # of another user, who lets this one read
    except OSError:
        # Nobody removes a version from a read-only file system.
        return open_directory(root)
