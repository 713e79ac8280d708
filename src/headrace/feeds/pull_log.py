"""The numbered log of pulls: groups of pulls in files that are never changed, merged when they are many, removed when old.

log/0000000007-0000000007.000000000019-000000000021.pulls.arrow   group 7: pulls 19 to 21, a record batch each, and the
                                                                  states of all feeds that were pulled since group 6
    0000000001-0000000006.000000000001-000000000018.pulls.arrow   groups 1 to 6, merged
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.feeds.log_identity import STORE, read_of_state
from headrace.feeds.pulls import PULL_SCHEMA, Pull
from headrace.files import make_directory, names_in, paths_in, remove, size_of, sync_directory
from headrace.runlog.files import DRAFT, LogFile, write_state

_NAME = re.compile(r"(\d{10,})-(\d{10,})\.(\d{12,})-(\d{12,})\.pulls\.arrow")
_SMALL = 4 << 20  # bytes of a file that is worth merging: reading it takes a few milliseconds
_LARGE = 16 << 20  # bytes of a merged file: what a reader of a single pull has to check
_MANY = 16  # small files in a row that are merged: each item is then written again a few times at most
_TRIES = 8  # listings of the directory for a file that was merged away: a merge happens every few minutes


@dataclass(frozen=True, order=True)
class Group:
    """A file of the log: which groups and which pulls are in it. A group without pulls ends before it begins."""

    first_group: int
    last_group: int
    first: int
    last: int
    path: Path

    def holds(self, other: Group) -> bool:
        """Say whether another file was merged into this one."""
        return other != self and self.first_group <= other.first_group and other.last_group <= self.last_group


class PullLog:
    """The files of the log. One process writes; any may read meanwhile.

    Parameters
    ----------
    directory
        Where the files are.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        make_directory(directory, parents=True)

    def groups(self) -> list[Group]:
        """List the files, oldest first, without those that a merged file replaces."""
        names = (_NAME.fullmatch(name) for name in names_in(self.directory))
        found = [Group(int(m[1]), int(m[2]), int(m[3]), int(m[4]), self.directory / m[0]) for m in names if m]
        merged = [g for g in found if g.first_group < g.last_group]
        return sorted(g for g in found if not any(m.holds(g) for m in merged))

    def write(self, group: int, pulls: list[Pull], facts: Mapping[str, Any], *, first: int) -> Group:
        """Write the pulls of a group, whose numbers begin with `first`, together with facts: all is there, or nothing."""
        last = first + len(pulls) - 1
        path = self.directory / _name(group, group, first, last)
        write_state(path, PULL_SCHEMA, (p.rows for p in pulls), {**facts, "pulls": [_noted(p) for p in pulls]}, 2)
        return Group(group, group, first, last, path)

    def pulls(self, after: int = 0) -> Iterator[Pull]:
        """Iterate over the pulls with higher numbers, in order. A file that is merged meanwhile is found under its new name."""
        tries = 0
        while True:
            ahead = [g for g in self.groups() if g.last > after and g.last >= g.first]
            if not ahead:
                return
            try:
                for group in ahead:
                    for pull in read_pulls(group):
                        if pull.number is not None and pull.number > after:
                            after = pull.number
                            yield pull
                return
            except FileNotFoundError:
                tries += 1
                if tries == _TRIES:
                    raise

    def merge(self, before: int) -> None:
        """Merge small files of groups up to `before`, whose states a snapshot has, and remove those of them without pulls."""
        old = [g for g in self.groups() if g.last_group <= before]
        self._remove(g for g in old if g.last < g.first)
        run: list[Group] = []
        size = 0
        for group in [g for g in old if g.last >= g.first]:
            bytes_ = size_of(group.path)
            if bytes_ > _SMALL or size + bytes_ > _LARGE:
                self._merged(run)
                run, size = [], 0
            if bytes_ <= _SMALL:
                run, size = [*run, group], size + bytes_
        if len(run) >= _MANY:
            self._merged(run)

    def expire(self, before: datetime, needed: int, group: int) -> None:
        """Remove files of groups up to `group` whose pulls were all made before a moment and have numbers up to `needed`."""
        for old in self.groups():
            if old.last > needed or old.last_group > group:
                return
            if old.last >= old.first and max(_at(entry) for entry in read_of_state(old.path).facts["pulls"]) >= before:
                return
            self._remove([old])

    def clean(self) -> None:
        """Remove what a writer left that was killed: drafts, and files that were merged."""
        for path in paths_in(self.directory, f"{DRAFT}*"):
            remove(path)
        valid = {group.path for group in self.groups()}
        for path in paths_in(self.directory):
            if _NAME.fullmatch(path.name) and path not in valid:
                remove(path)

    def _merged(self, run: list[Group]) -> None:
        if len(run) < 2:
            return
        files = [read_of_state(group.path) for group in run]
        noted = [entry for file in files for entry in file.facts["pulls"]]
        path = self.directory / _name(run[0].first_group, run[-1].last_group, run[0].first, run[-1].last)
        rows: Iterator[pa.RecordBatch] = (batch for file in files for batch in file.batches())
        write_state(path, PULL_SCHEMA, rows, {"pulls": noted, "feeds": [], STORE: files[-1].facts.get(STORE)}, 2)
        self._remove(run)

    def _remove(self, groups: Iterable[Group]) -> None:
        gone = list(groups)
        for group in gone:
            remove(group.path)
        if gone:
            sync_directory(self.directory)


def read_pulls(group: Group, file: LogFile | None = None) -> Iterator[Pull]:
    """Read the pulls of a file; its checksum is compared first."""
    file = file or read_of_state(group.path)
    for number, (entry, rows) in enumerate(zip(file.facts["pulls"], file.batches(), strict=True), group.first):
        yield Pull(entry["url"], _at(entry), "items", rows, number=number)


def _noted(pull: Pull) -> dict[str, Any]:
    return {"url": pull.url, "at": pull.at.isoformat()}


def _at(entry: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(entry["at"])


def _name(first_group: int, last_group: int, first: int, last: int) -> str:
    return f"{first_group:010d}-{last_group:010d}.{first:012d}-{last:012d}.pulls.arrow"
