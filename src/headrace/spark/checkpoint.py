"""Spark's checkpoint of a query, on a local disk: what a sink's commit stands on is on disk before the commit. (DESIGN D8)

    checkpoint/metadata       the query's id, whose transactions its micro-batches are
               offsets/7      where micro-batch 7 ends; written before it runs
               sources/0/7    what a source notes for itself, such as the files that it has listed
               commits/7      micro-batch 7 is done; written after it

Spark gives these files their names without waiting for the disk. If a power cut took the offsets of a micro-batch that a table
has committed, Spark would put other rows under the same number, and the table would take them for a repetition: they would be
lost. So they are synced before each commit. A commit of Spark's that is lost is harmless: the micro-batch runs again, and its
number is found in the table.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from headrace.errors import OutsideFailure
from headrace.files import is_directory, names_in, paths_in, read_regular, sync_directory, sync_regular
from headrace.paths import local_path

_ENTRY = re.compile(r"(\d+)(\.compact)?")


class LocalCheckpoint:
    """The checkpoint of one run of a query.

    Parameters
    ----------
    path
        Its directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._synced: dict[Path, set[str]] = {}  # names by directory

    def check(self) -> None:
        """Refuse files that a power cut has cut short, with what to do; Spark's own message names no file."""
        for directory in self._logs():
            numbered = [(int(match[1]), name) for name in _names(directory) if (match := _ENTRY.fullmatch(name))]
            if numbered and _is_cut_short(directory / max(numbered)[1]):
                self._refuse(directory, *max(numbered))
        metadata = self.path / "metadata"
        if "metadata" in _names(self.path) and not _is_json(read_regular(metadata)):
            raise OutsideFailure(
                f"{metadata} is cut short, as a power cut leaves a file that Spark has just written; it is on disk before"
                f" anything is loaded, so nothing is: remove {self.path}, and start the query again"
            )

    def _refuse(self, directory: Path, number: int, name: str) -> None:
        remove = [directory / name]
        if directory.parent.name == "sources":  # the offsets that name the entry go with it
            offsets, names = self.path / "offsets", f'"logOffset":{number}}}'.encode()
            remove += [
                p
                for p in map(offsets.joinpath, _names(offsets))
                if _ENTRY.fullmatch(p.name) and names in read_regular(p)
            ]
        remove += [path.with_name(f".{path.name}.crc") for path in remove]
        raise OutsideFailure(
            f"{directory / name} is cut short, as a power cut leaves a file that Spark has just written; what is loaded does not"
            f" depend on it: remove {', '.join(map(str, remove))}, and start the query again"
        )

    def sync(self) -> None:
        """Have the query's id and all offsets on disk, so that what is committed from now on can stand on them.

        Without Hadoop's checksums beside them, which Spark does not compare, and without Spark's commits.
        """
        first = not self._synced
        for directory in (*self._sources(), self.path / "offsets", self.path):
            names = {name for name in _names(directory) if name == "metadata" or _ENTRY.fullmatch(name)}
            new = names - self._synced.get(directory, set())
            for name in sorted(new):
                sync_regular(directory / name)
            if new:
                sync_directory(directory)
            self._synced[directory] = names
        if first:
            for directory in filter(is_directory, (self.path / "sources", self.path.parent)):
                sync_directory(directory)

    def _logs(self) -> list[Path]:
        return [*self._sources(), self.path / "offsets", self.path / "commits"]

    def _sources(self) -> list[Path]:
        return [path for path in paths_in(self.path / "sources", missing_ok=True) if is_directory(path)]


def local_checkpoint(place: str | Path) -> Path | None:
    """The directory of a checkpoint on a local disk; None of one that only Spark can reach."""
    text = str(place)
    if text.startswith("file:"):
        return local_path(text, "checkpoint")
    return None if "://" in text else Path(text).absolute()


def _names(directory: Path) -> list[str]:
    return names_in(directory) if is_directory(directory) else []


def _is_cut_short(path: Path) -> bool:
    """Whether an entry is not whole: a line with its version, and then lines of JSON, or of a source's own."""
    # Kafka's source puts a zero byte in front, so that a Spark before 2.1 refuses its notes.
    version, *lines = read_regular(path).removeprefix(b"\0").split(b"\n")
    if not re.fullmatch(rb"v\d+", version) or not any(lines):
        return True
    last = [line for line in lines if line][-1]
    return last[:1] in (b"{", b"[") and not _is_json(last)


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
