"""QueryRun: a query over the logged pulls of feeds, with results in its log, each once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

import pyarrow as pa

from headrace.clock import Clock
from headrace.feeds.pulls import Pull, moment
from headrace.feeds.result_log import ResultLog
from headrace.feeds.sql.operator import QueryOperator
from headrace.feeds.sql.plan import QueryPlan
from headrace.feeds.sql.result_rows import item_keys
from headrace.feeds.store import FeedStore

AT_ONCE = 64  # pulls whose results are one file: two syncs of the disk are shared, and results wait a few milliseconds
_REBUILD = (
    64  # pulls that have expired before the operator is made anew: that costs as much as inserting those that have not
)


class QueryRun:
    """Brings a query from one pull to the next.

        pulls 1 … k | k+1 … n          results of pulls up to k are in the log when k counts as done
                    |
        restart: the operator takes the pulls that still matter, up to k, and what it gives is dropped; then it goes on with k+1

    The results of pull n are those that the items of pull n have with each other and with all before: a function of the numbered
    pulls alone. So the pulls of a file may be divided as one likes, a kill before a file has its name costs the work and
    nothing else, and results that were made before are known by the number of their pull.

    With a bound on the time between items (`plan.history`) older pulls no longer matter. When as many have expired as have not,
    the operator is made anew of the latter, so that state is at most twice what the bound asks for.

    Parameters
    ----------
    name
        What the query is called among those that hold pulls.
    plan
        The query.
    store
        Has the pulls.
    directory
        Of the results, and of what does not fit the memory.
    memory
        The budget of the operator.
    keep
        Results that are kept; all if None.
    clock
        Says when results are produced.
    """

    def __init__(
        self,
        name: str,
        plan: QueryPlan,
        store: FeedStore,
        directory: Path,
        *,
        memory: int | str,
        keep: int | None,
        clock: Clock,
    ) -> None:
        self.name, self.plan, self.store, self.directory = name, plan, store, directory
        self.memory, self.clock = memory, clock
        self.log = ResultLog(directory / "results", plan.schema, keep)
        self.pull = self.log.pull
        self.operator: QueryOperator | None = None
        self._inserted: deque[tuple[int, datetime]] = (
            deque()
        )  # the pulls that the operator has, and when they were made
        self._latest: datetime | None = None  # when the last pull was made, of any feed
        self._expired = 0  # pulls that it has beside these, and no longer needs
        store.hold(name, 0 if plan.history is None else self.pull)

    def advance(self, pulls: Sequence[Pull] = (), stopped: Callable[[], bool] = lambda: False) -> int:
        """Take the pulls that follow the last one, at most AT_ONCE; those that are not given are read from the store.

        Returns how many pulls were taken: 0 if there are no more, or if `stopped` says so.
        """
        if self.operator is None:
            self._restore(stopped)
        if not pulls or pulls[0].number != self.pull + 1:
            pulls = list(islice(self.store.pulls(after=self.pull), AT_ONCE))
        pulls = pulls[:AT_ONCE]
        if not pulls or stopped():
            return 0
        first, last = pulls[0].number or 0, pulls[-1].number or 0
        self.log.append(first, last, self._results(pulls), moment(self.clock.now()))
        self.pull = last
        self._expire()
        return len(pulls)

    def forget(self) -> None:
        """Free the memory; the next call makes the operator anew."""
        self.operator, self._expired = None, 0
        self._inserted.clear()

    def _results(self, pulls: Sequence[Pull], settle: bool = True) -> Iterator[pa.RecordBatch]:
        assert self.operator is not None
        for pull in pulls:
            self._latest = pull.at if self._latest is None else max(self._latest, pull.at)
            if pull.url in self.plan.urls:
                items = pull.items
                self._inserted.append((pull.number or 0, pull.at))
                keys = item_keys(items, pull.identities, pull.contents)
                yield from self.operator.insert(pull.url, items, keys, settle=False)
        if settle:
            yield from self.operator.settle()

    def _restore(self, stopped: Callable[[], bool]) -> None:
        """Make the operator, and have it take the pulls up to the last one that still matter. Their results are in the log."""
        self.forget()
        self.operator = self.plan.operator(self.memory, spill=self.directory)
        history = self.plan.history
        since: datetime | None = None
        if history is not None:
            done = next(self.store.pulls(after=self.pull - 1), None) if self.pull else None
            since = None if done is None else done.at - timedelta(seconds=history)
        for pull in self.store.pulls() if self.pull else ():
            if (pull.number or 0) > self.pull:
                break
            if since is not None and pull.at < since:
                continue
            if stopped():
                self.forget()
                return
            deque(self._results([pull], settle=False), maxlen=0)
        deque(self.operator.settle(), maxlen=0)

    def _expire(self) -> None:
        """Let go of pulls that no longer matter."""
        history = self.plan.history
        if history is None or self._latest is None:
            return
        oldest = self._latest - timedelta(seconds=history)
        while self._inserted and self._inserted[0][1] < oldest:
            self._inserted.popleft()
            self._expired += 1
        self.store.hold(self.name, self._inserted[0][0] - 1 if self._inserted else self.pull)
        if self._expired >= max(_REBUILD, len(self._inserted)):
            self.operator = None
            self._restore(lambda: False)
