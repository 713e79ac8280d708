"""Commits: pulls that end together are written together, so that thousands of feeds do not mean thousands of syncs."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from headrace.clock import SystemClock
from headrace.feeds.pulls import Pull
from headrace.feeds.store import Change, FeedStore


class Commits:
    """Writes changes to a store, from one thread of its own. What comes while it writes goes into the next group.

    Parameters
    ----------
    store
        The store, held.
    gap
        Seconds between two commits.
    """

    def __init__(self, store: FeedStore, gap: float) -> None:
        self.store, self.gap = store, gap
        self.news = asyncio.Event()
        """set when pulls are on disk that were not when it was taken"""
        self.closed = False
        self.noted = False
        """whether outcomes of pulls without items are still to be written"""
        self._ready: list[tuple[Change, asyncio.Future[Pull]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "headrace-feeds-writer")
        self._clock = SystemClock()
        self._next = self._clock.now()

    def note(self, change: Change) -> None:
        """Remember the outcome of a pull without items; it is written with the next commit or flush."""
        self.store.note(change)
        self.noted = True

    async def commit(self, change: Change) -> Pull:
        """Have the items of a pull on disk, and return the pull with its number."""
        done: asyncio.Future[Pull] = asyncio.get_running_loop().create_future()
        self._ready.append((change, done))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return await done

    async def flush(self) -> None:
        """Write what was noted. If that fails it stays noted, and is written when there is room again."""
        if self.noted:
            self.noted = False
            try:
                await asyncio.get_running_loop().run_in_executor(self._thread, self.store.commit)
            except OSError:
                self.noted = True

    async def close(self) -> None:
        """Wait for what is being written. Followers are told that nothing more comes."""
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
        await asyncio.to_thread(self._thread.shutdown)
        self.closed = True
        self.news.set()

    async def _write(self) -> None:
        while self._ready:
            await asyncio.sleep(max(0.0, self._next - self._clock.now()))
            ready, self._ready = self._ready, []
            changes = [change for change, _ in ready]
            self.noted = False
            try:
                pulls = await asyncio.get_running_loop().run_in_executor(self._thread, self.store.commit, changes)
            except Exception as error:
                # Nothing has changed, so each of these feeds is pulled again later, and gives the same items.
                self.noted = True
                for _, done in ready:
                    if not done.done():
                        done.set_exception(error)
                continue
            self._next = self._clock.now() + self.gap
            for (_, done), pull in zip(ready, pulls, strict=True):
                if not done.done():  # its pull may have been cancelled meanwhile
                    done.set_result(pull)
            told, self.news = self.news, asyncio.Event()
            told.set()
