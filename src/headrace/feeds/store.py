"""FeedStore: what a scanner remembers on disk: feeds, schedule, validators, items seen, and the numbered log of pulls.

state/
  feeds.json        the feeds, as they were added; any process may change it
  lock              held by the one scanner that works here
  log/              pulls, in groups (`pull_log.py`)
  snapshots/0000000042.feeds.arrow   states and items seen after group 42; with the groups after it, all that is remembered
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.clock import Clock, WallClock
from headrace.errors import BadInput, DamagedLog, RunLogError
from headrace.feeds.feed_list import Feed, FeedList
from headrace.feeds.feed_state import FeedState
from headrace.feeds.log_identity import STORE, log_identity, read_of_state
from headrace.feeds.pull_log import Group, PullLog, read_pulls
from headrace.feeds.pulls import Pull, moment
from headrace.feeds.seen import NOTHING_SEEN, PAIR_TYPE, Seen, pair_column, pair_up, pairs_of
from headrace.files import exists, locked, make_directory, names_in, paths_in, remove, size_of, sync_directory
from headrace.paths import feeds_directory, local_path
from headrace.runlog.files import CURE, DRAFT, write_state
from headrace.units import parse_duration

_SNAPSHOT = re.compile(r"(\d{10,})\.feeds\.arrow")
_SNAPSHOT_SCHEMA = pa.schema(
    [("feed", pa.int32()), ("pair", PAIR_TYPE), ("last", pa.float64()), ("current", pa.bool_())]
)
_LEAST_LOG = 1 << 20  # bytes of log before a snapshot is worth its two syncs
_MOST_GROUPS = 1000  # groups before a snapshot: opening reads them all, in about a second
_TRIES = 8  # readings of a state that another process compacts meanwhile


@dataclass(frozen=True)
class Change:
    """What a pull changes, and a commit makes true: the feed's state, its items seen, and the pull if it has items."""

    state: FeedState
    seen: Seen | None = None
    """None: as before"""
    pull: Pull | None = None


class FeedStore:
    """The state directory of a scanner, crash-safe: a pull's number, its items, the items seen and the ETag become true at once.

    Parameters
    ----------
    state
        The directory; by default `headrace.paths.feeds_directory()`.
    horizon
        How long items are remembered after they left their feed, with 41 bytes of memory each.
    keep
        How long pulls are kept that no query needs; as long as items by default.
    clock
        Seconds since 1970.

    Example
    -------
    >>> import tempfile
    >>> store = FeedStore(tempfile.mkdtemp())
    >>> [feed.url for feed in store.add(["https://example.org/feed"], interval="5m")]
    ['https://example.org/feed']
    >>> list(store.pulls(after=0))
    []
    """

    def __init__(
        self,
        state: str | Path | None = None,
        *,
        horizon: str | float | timedelta = "7d",
        keep: str | float | timedelta | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.path = feeds_directory() if state is None else local_path(state, "state")
        self.horizon = parse_duration(horizon, name="horizon")
        self.keep = self.horizon if keep is None else parse_duration(keep, name="keep")
        self.clock = clock or WallClock()
        make_directory(self.path, parents=True)
        self.list = FeedList(self.path)
        self.log = PullLog(self.path / "log")
        self._snapshots = self.path / "snapshots"
        make_directory(self._snapshots)
        self._memory = _Memory()
        self._notes: dict[str, FeedState] = {}
        self._holds: dict[str, int] = {}
        self._held = False

    def __repr__(self) -> str:
        return f"FeedStore({str(self.path)!r})"

    # -- feeds ------------------------------------------------------------------------------------------------------------

    def add(self, urls: Iterable[str], *, interval: str | float | timedelta | None = None) -> list[Feed]:
        """Add feeds to the list, or give them another interval. A scanner that works here pulls them within a second."""
        from headrace.feeds.addresses import check_url

        given = [urls] if isinstance(urls, str) else list(urls)
        for url in given:
            check_url(url, allow_files=True, any_port=True)  # the fetcher knows whether files and ports are allowed
        seconds = None if interval is None else parse_duration(interval, name="interval")
        return self.list.add(given, interval=seconds, clock=self.clock)

    def remove(self, urls: Iterable[str]) -> None:
        """Remove feeds from the list. Their items stay known for the horizon."""
        self.list.remove([urls] if isinstance(urls, str) else urls)

    def feeds(self) -> list[Feed]:
        """Return the feeds of the list."""
        return list(self.list.read().values())

    def state(self, url: str) -> FeedState:
        """Return what is remembered of a feed; of one that was never pulled, that it is due."""
        return self._memory.states.get(url) or FeedState(url)

    def states(self) -> dict[str, FeedState]:
        """Return what is remembered of every feed that was ever pulled. Read anew, unless a scanner of this process works."""
        if not self._held:
            self._memory = self._load()
        return dict(self._memory.states)

    def seen(self, url: str) -> Seen:
        """Return the items seen of a feed."""
        return self._memory.seen.get(url, NOTHING_SEEN)

    # -- pulls ------------------------------------------------------------------------------------------------------------

    @property
    def newest(self) -> int:
        """The number of the last pull in the log; 0 if there was none yet."""
        if self._held:
            return self._memory.next - 1
        snapshots = self._listed_snapshots()
        removed = read_of_state(snapshots[-1]).facts["next"] - 1 if snapshots else 0
        return max(removed, *(g.last for g in self.log.groups()), 0)

    def pulls(self, after: int = 0) -> Iterator[Pull]:
        """Iterate over the logged pulls with higher numbers, in order; again and in any process, the same ones."""
        return self.log.pulls(after)

    def hold(self, name: str, after: int) -> None:
        """Keep pulls with higher numbers, whatever their age, because the query of that name still needs them."""
        self._holds[name] = after

    def release(self, name: str) -> None:
        """Forget what a query needed."""
        self._holds.pop(name, None)

    # -- writing -----------------------------------------------------------------------------------------------------------

    @contextmanager
    def held(self) -> Iterator[FeedStore]:
        """Work here as the one scanner; another one is refused. At the end all states are on disk."""
        with locked(self.path / "lock") as alone:
            if not alone:
                raise RunLogError(
                    f"another scanner works in {self.path}; stop it first, or give this one another state directory"
                )
            try:
                self.log.clean()
                for path in paths_in(self._snapshots, f"{DRAFT}*"):
                    remove(path)
                self._memory, self._notes = self._load(), {}
                self._held = True
                yield self
                if self._notes:
                    self.commit()
                self.compact()
            finally:
                self._held = False

    def note(self, change: Change) -> None:
        """Remember the change of a pull without items. It goes to disk with the next commit: a crash costs one more request."""
        self._memory.remember(change)
        self._notes[change.state.url] = change.state

    def commit(self, changes: Sequence[Change] = ()) -> list[Pull]:
        """Make changes true, and what was noted: all of it, with one rename. Returns the pulls that have items, numbered."""
        memory = self._memory
        if not self._held:
            raise BadInput("nothing can be committed to a store that is not held; use `with store.held():`")
        notes, self._notes = self._notes, {}
        pulls = [change.pull for change in changes if change.pull is not None]
        states = [*notes.values(), *(change.state for change in changes)]
        try:
            facts = {"feeds": [state.as_json() for state in states], STORE: log_identity(self.path)}
            group = self.log.write(memory.group + 1, pulls, facts, first=memory.next)
        except BaseException:
            self._notes = {**notes, **self._notes}
            raise
        for change in changes:
            memory.remember(change)
        memory.group, memory.next = group.last_group, group.last + 1
        memory.log_bytes += size_of(group.path)
        if memory.log_bytes > max(_LEAST_LOG, memory.snapshot_bytes) or memory.group - memory.snapshot > _MOST_GROUPS:
            self.compact()
        return [replace(pull, number=number) for number, pull in enumerate(pulls, group.first)]

    def compact(self) -> None:
        """Write a snapshot, forget feeds that nobody pulls, merge small files, and remove pulls that are old and not needed."""
        memory, now = self._memory, self.clock.now()
        if memory.group > memory.snapshot:
            listed = self.list.read()
            for url, state in list(memory.states.items()):
                if url not in listed and (state.pulled or 0.0) < now - self.horizon:
                    del memory.states[url]
                    memory.seen.pop(url, None)
            self._write_snapshot(memory)
            self.log.merge(memory.snapshot)
        needed = min(self._holds.values(), default=memory.next)
        self.log.expire(moment(max(0.0, now - self.keep)), needed, memory.snapshot)

    def _write_snapshot(self, memory: _Memory) -> None:
        path = self._snapshots / f"{memory.group:010d}.feeds.arrow"
        urls = list(memory.states)
        rows = (_rows(i, memory.seen[url]) for i, url in enumerate(urls) if url in memory.seen)
        states = [memory.states[url].as_json() for url in urls]
        facts = {"feeds": states, "group": memory.group, "next": memory.next, STORE: log_identity(self.path)}
        write_state(path, _SNAPSHOT_SCHEMA, rows, facts, 2)
        memory.snapshot, memory.log_bytes, memory.snapshot_bytes = memory.group, 0, size_of(path)
        for old in paths_in(self._snapshots):
            if old != path:
                remove(old)
        sync_directory(self._snapshots)

    def _listed_snapshots(self) -> list[Path]:
        return [self._snapshots / name for name in names_in(self._snapshots) if _SNAPSHOT.fullmatch(name)]

    # -- reading what is remembered -----------------------------------------------------------------------------------------

    def _load(self) -> _Memory:
        for _ in range(_TRIES - 1):
            try:
                return self._load_once()
            except FileNotFoundError:  # another process has compacted meanwhile
                continue
        return self._load_once()

    def _load_once(self) -> _Memory:
        memory = _Memory()
        snapshots = self._listed_snapshots()
        if snapshots:
            _read_snapshot(snapshots[-1], memory)
        for group in self.log.groups():
            if group.first_group <= memory.snapshot:
                continue
            if group.first_group != memory.group + 1:
                if snapshots and not exists(snapshots[-1]):
                    raise FileNotFoundError(snapshots[-1])
                raise DamagedLog(
                    f"group {memory.group + 1} is missing in {self.log.directory}, which has group {group.first_group}; {CURE}"
                )
            _apply(group, memory)
        return memory


class _Memory:
    """What is remembered of all feeds, after a group of the log."""

    def __init__(self) -> None:
        self.states: dict[str, FeedState] = {}
        self.seen: dict[str, Seen] = {}
        self.group, self.next = 0, 1
        """the last group that it has, and the number of the next pull"""
        self.snapshot, self.snapshot_bytes, self.log_bytes = 0, 0, 0
        """the group of the last snapshot, its bytes, and those of the groups after it"""

    def remember(self, change: Change) -> None:
        """Take a change over."""
        self.states[change.state.url] = change.state
        if change.seen is not None:
            self.seen[change.state.url] = change.seen


def _rows(feed: int, seen: Seen) -> pa.RecordBatch:
    count = len(seen.pairs)
    columns = [np.full(count, feed, np.int32), pair_column(seen.pairs), seen.last, seen.current]
    return pa.record_batch([pa.array(column) for column in columns], schema=_SNAPSHOT_SCHEMA)


def _read_snapshot(path: Path, memory: _Memory) -> None:
    file = read_of_state(path)
    urls = [entry["url"] for entry in file.facts["feeds"]]
    memory.states = {entry["url"]: FeedState.from_json(entry) for entry in file.facts["feeds"]}
    memory.group = memory.snapshot = file.facts["group"]
    memory.next, memory.snapshot_bytes = file.facts["next"], size_of(path)
    for batch in file.batches():
        if batch.num_rows:
            feed, pair, last, current = batch.columns
            # Copies: the batch lies in a mapped file, and what is remembered lives longer than the file.
            memory.seen[urls[feed[0].as_py()]] = Seen(
                pairs_of(pair).copy(), np.array(last), np.array(current.to_numpy(zero_copy_only=False))
            )


def _apply(group: Group, memory: _Memory) -> None:
    file = read_of_state(group.path)
    for pull in read_pulls(group, file):
        pairs = pair_up(pull.identities, pull.contents).copy()
        before = memory.seen.get(pull.url, NOTHING_SEEN)
        memory.seen[pull.url] = before.added(pairs, pull.at.timestamp())
    for entry in file.facts["feeds"]:
        memory.states[entry["url"]] = FeedState.from_json(entry)
    memory.group, memory.next = group.last_group, group.last + 1
    memory.log_bytes += size_of(group.path)
