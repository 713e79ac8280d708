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
import errno
import fcntl
import json
import os
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

import pyarrow as pa

from headrace.errors import DamagedRelation, NewerFormat, NotARelation, UnfinishedRelation, VersionConflict, VersionGone
from headrace.files import NotRegular, open_new, read_regular, sync_directory, write_all
from headrace.relation.batch_versions import versions_of_last_batches
from headrace.relation.manifest_check import ManifestCheck

# The latest. A manifest has 5 if a shard has index pages, 4 if rows stored by frequency were changed, 3 if it has notes, 2 if it
# is stored by frequency, else 1.
FORMAT = 5
StorageOrder = Literal["key", "frequency"]
UNFINISHED = ".unfinished-"  # a relation is created in a sibling directory, NAME.unfinished-PID-XXXXXXXX
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
            body = json.loads(read_regular(path))
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
        if body.pop("checksum", None) != _checksum(body):
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
    if not root.exists():
        unfinished = drafts(root)
        if unfinished:
            raise UnfinishedRelation(
                f"{root} was never finished: its creation stopped and left {unfinished[0].name}; create it again"
            )
        raise NotARelation(f"there is no relation at {root}; create one with Relation.create")
    if not root.is_dir():
        raise NotARelation(f"{root} is a file; a Headrace relation is a directory")
    if UNFINISHED in root.name:
        raise UnfinishedRelation(f"{root} is what a stopped creation left; create the relation again")
    found = sorted(int(m[1]) for p in root.iterdir() if (m := _MANIFEST.fullmatch(p.name)))
    if not found:
        raise NotARelation(f"{root} is not a Headrace relation: it has no manifest")
    return found


def directory_at(root: Path) -> tuple[int, int] | None:
    """Return what tells the directory at a path from another in its place; None if there is none."""
    try:
        found = root.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def drafts(root: Path) -> list[Path]:
    """List the directories of unfinished creates of this relation, stopped or still running."""
    if not root.parent.is_dir():
        return []
    return sorted(p for p in root.parent.iterdir() if p.name.startswith(f"{root.name}{UNFINISHED}"))


def commit(root: Path, manifest: Manifest) -> None:
    """Commit a version by giving its manifest its name. The files are on disk already; no version is ever replaced."""
    check_sizes(root, manifest)
    path = manifest_path(root, manifest.version)
    draft = path.with_suffix(f".draft-{os.getpid()}")
    try:
        with open_new(draft) as file:
            write_all(file, manifest.dump())
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError as error:
        raise VersionConflict(
            f"version {manifest.version} of {root} was committed by another writer; open the relation again and retry"
        ) from error
    finally:
        draft.unlink(missing_ok=True)
    sync_directory(root)


def check_sizes(root: Path, manifest: Manifest) -> None:
    """Refuse to commit a version one of whose files is not as long as it was written."""
    for number, shard in enumerate(manifest.shards):
        for file in shard.all_files():
            try:
                size = (root / file.name).stat(follow_symlinks=False).st_size
            except FileNotFoundError as error:
                raise DamagedRelation(
                    root / file.name, "the file is missing; nothing was committed", shard=number
                ) from error
            if size != file.bytes:
                raise DamagedRelation(
                    root / file.name,
                    f"it has {size:,} bytes where {file.bytes:,} were written; nothing was committed. Is the disk full?",
                    shard=number,
                )


def pin(root: Path, version: int | None) -> tuple[Manifest, int]:
    """Lock a version (the latest by default) against removal; returns its manifest and the descriptor of the lock."""
    while True:
        existing = versions(root)
        wanted = existing[-1] if version is None else version
        if wanted not in existing:
            raise VersionGone(f"{root} has no version {wanted}; it has {', '.join(map(str, existing))}")
        fd = _lock_file(root, f"{wanted:06d}")
        fcntl.flock(fd, fcntl.LOCK_SH)
        try:
            return Manifest.load(manifest_path(root, wanted)), fd
        except FileNotFoundError:  # a writer removed the version before the lock was taken
            os.close(fd)
        except BaseException:
            os.close(fd)
            raise


@contextmanager
def writing(root: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the writer's lock of a relation. If another writer has it, wait for it, or refuse."""
    fd = _lock_file(root, "writer")
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise VersionConflict(
                f"another writer is at work on {root}; one apply or compact runs at a time: retry when it is done"
            ) from error
        yield
    finally:
        os.close(fd)


def remove_old(root: Path) -> list[int]:
    """Remove old versions that no reader holds, and files that no version names. The caller holds the writer's lock."""
    removed = []
    for version in sorted({*versions(root)[:-1]} - versions_of_last_batches(root)):
        fd = _lock_file(root, f"{version:06d}")
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            manifest_path(root, version).unlink()
            (root / "locks" / f"{version:06d}").unlink(missing_ok=True)
            removed.append(version)
        except (BlockingIOError, IsADirectoryError):
            pass
        finally:
            os.close(fd)
    kept: set[str] = set()
    for version in versions(root):
        try:
            shards = Manifest.load(manifest_path(root, version)).shards
        except DamagedRelation:
            return removed  # what it names is not known, so no file is known to be nobody's
        kept |= {name for shard in shards for name in shard.names()}
    for path in root.iterdir():
        if (path.name.startswith("shard-") and path.name not in kept) or ".draft-" in path.name:
            with suppress(FileNotFoundError, IsADirectoryError):
                path.unlink()
    return removed


def _lock_file(root: Path, name: str) -> int:
    path = root / "locks" / name
    try:
        path.parent.mkdir(exist_ok=True)
        if path.parent.is_symlink():
            raise DamagedRelation(path.parent, "it is a symbolic link; expected a directory of the relation's own")
        # O_NONBLOCK: a FIFO of that name would block the open for ever.
        flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(path, flags, 0o666)
    except FileNotFoundError as error:
        raise NotARelation(f"there is no relation at {root} any more") from error
    except FileExistsError as error:
        raise DamagedRelation(path.parent, "it is not a directory; remove it, and it is made anew") from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise DamagedRelation(path, "it is not a regular file; remove it, and it is made anew") from error
        # Without permission to write, read without a lock: nobody removes a version from a read-only file system.
        if error.errno not in (errno.EROFS, errno.EACCES) or name == "writer":
            raise
        return os.open(root, os.O_RDONLY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise DamagedRelation(path, "it is not a regular file; remove it, and it is made anew")
    return fd
