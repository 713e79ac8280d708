"""The list of feeds that are pulled: a small file that any process may change while a scanner works."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.clock import Clock
from headrace.errors import BadInput, shown
from headrace.feeds.log_identity import STORE, check_state, log_identity
from headrace.files import close, lock, open_lock, status
from headrace.runlog.files import read_facts, replace_facts

_NAME, _LOCK = "feeds.json", "feeds.lock"
_CURE = "restore it from a copy, or remove it and add the feeds again"
Stamp = tuple[int, ...]


@dataclass(frozen=True)
class Feed:
    """A feed as it was added."""

    url: str
    interval: float | None = None
    """seconds between two pulls; None: the scanner's own"""
    added: float = 0.0
    """when, in seconds since 1970; a feed that is gone is tried again when it is added again"""


class FeedList:
    """The feeds of a state directory, by their addresses.

    Parameters
    ----------
    directory
        Where the file is.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / _NAME

    def read(self) -> dict[str, Feed]:
        """Return all feeds, in the order in which they were added."""
        try:
            facts = read_facts(self.path, _CURE)
        except FileNotFoundError:
            return {}
        check_state(self.path, self.directory, facts.get(STORE))
        return {entry["url"]: Feed(**entry) for entry in facts["feeds"]}

    def stamp(self) -> Stamp:
        """Return what differs when the file was written again: it always gets another inode."""
        found = status(self.path)
        if found is None:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size

    def add(self, urls: Iterable[str], *, interval: float | None, clock: Clock) -> list[Feed]:
        """Add feeds, or give those that are there another interval."""
        with self._changing() as feeds:
            added = [Feed(url, interval, clock.now()) for url in dict.fromkeys(urls)]
            feeds.update((feed.url, feed) for feed in added)
        return added

    def remove(self, urls: Iterable[str]) -> None:
        """Remove feeds; refuses an address that is not in the list."""
        with self._changing() as feeds:
            for url in dict.fromkeys(urls):
                if feeds.pop(url, None) is None:
                    raise BadInput(f"there is no feed {shown(url)}; headrace feeds list shows those that are there")

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Feed]]:
        """Read the list, let it be changed and write it, while other processes that would change it wait."""
        fd = open_lock(self.directory / _LOCK)
        try:
            lock(fd, wait=True)
            feeds = self.read()
            yield feeds
            known = {"feeds": [asdict(feed) for feed in feeds.values()], STORE: log_identity(self.directory)}
            replace_facts(self.path, known)
        finally:
            close(fd)
