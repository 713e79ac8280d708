"""The protocol of attempts, once for every operator that remembers across micro-batches. (DESIGN D7)

Spark may run a micro-batch of a shard several times: an attempt dies, a speculative one starts beside it, a query restarts. A
sink may take the results of any of them, so all must give the same ones. Therefore the first attempt that comes to its end
writes a *decision*, and every later one follows it.

    shard-0003/0000000007.decision.arrow     rows and facts that the first attempt at micro-batch 7 decided on
               0000000007.<kind>.arrow       files beside it, such as the rows that came; they count with the decision alone
               0000000007.finishing.arrow    hr.finish has begun to give out what was owed after micro-batch 7
               0000000007.finished.arrow     all of that has arrived in the sink
               .draft-<uuid>                 a file that is being written

An attempt at micro-batch N, in the order of its effects:

1. The caller holds the shard's lock (`RunLog.shard`), so attempts come one after the other. A process that dies lets go of it,
   and whoever takes it removes the drafts that are there.
2. The newest decision before N is restored; only files of N and of earlier micro-batches are ever read. If hr.finish was
   interrupted after that decision, the attempt is refused: part of what is owed may be in the sink already. An attempt that
   comes when a later micro-batch is decided is refused, too.
3. If N has a decision, the operator replays it, and step 6 follows.
4. Otherwise this is the first attempt. Decisions that are needed no longer are removed, and many small ones are compacted;
   neither changes the rows that a reader finds, so an attempt may die anywhere in it. Files beside a decision of N, left by an
   attempt that died before it gave the decision its name, are removed. Then the operator works and gives out results.
5. The files beside the decision get their names, and then the decision gets its own, each by a link to a complete and synced
   draft. An attempt that died before this has left nothing that another one reads, whatever results it gave: Spark drops the
   output of a failed task. From here on the micro-batch is decided. A heartbeat that found nothing to do decides nothing.
6. The operator does what every attempt repeats (`on_decided`), such as keeping rows for people.

A source must give the same rows to every attempt, in any order.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from headrace import files
from headrace.errors import RunLogError
from headrace.runlog.decision import DECISION, Decision, DecisionDraft, Snapshot
from headrace.runlog.files import understood
from headrace.runlog.shard import ShardLog

_log = logging.getLogger(__name__)

FINISHING, FINISHED = "finishing", "finished"
#: Rows that `on_finish` keeps for people have this part in their file's name: `forget_finish` removes them.
FINISH_PART = "finish"
_MOST_DECISIONS = 16  # files; each is opened by every micro-batch that reads them, so more are compacted
_LOOKS = 5  # at a shard that is being written, before it is given up: each new decision can remove an old one
_AFTER_ALL = 1 << 62  # a number later than every micro-batch's

Batches = Iterator[pa.RecordBatch]
Item = TypeVar("Item")  # what a micro-batch consists of: a record batch, or one with its side
ItemIn = TypeVar("ItemIn", contravariant=True)


class ReplayedOperator(Protocol[ItemIn]):
    """An operator of one shard and one micro-batch, as ReplayDriver calls it.

        restore --+-- no decision --+-- rows ----> on_batch --+
                  |                 +-- no rows -> on_idle ---+--> snapshot --> (commit) --+--> on_decided
                  +-- a decision ----------------> on_replay ------------------------------+
                  +-- hr.finish -----------------> on_finish

    It is made anew for every attempt, and holds nothing that must survive one.
    """

    @property
    def decision_schema(self) -> pa.Schema:
        """The columns of a decision's rows."""
        ...

    @property
    def beside(self) -> tuple[str, ...]:
        """The kinds of files that it may write beside a decision."""
        ...

    def restore(self, decision: Decision | None) -> None:
        """Take up the state after the last micro-batch that was decided; None if there was none."""
        ...

    def on_batch(self, rows: Iterator[ItemIn], draft: DecisionDraft) -> Batches:
        """Give the results of the first attempt at a micro-batch that has rows; add the rows of the decision to the draft."""
        ...

    def on_idle(self, draft: DecisionDraft) -> Batches:
        """Give the results of the first attempt at a micro-batch without rows: work that was put off."""
        ...

    def snapshot(self) -> Snapshot | None:
        """Say what the decision holds after `on_batch` or `on_idle`; None if nothing has changed."""
        ...

    def on_replay(self, decision: Decision, rows: Iterator[ItemIn]) -> Batches:
        """Give the results that the first attempt gave, in any order, or refuse rows that are others."""
        ...

    def on_decided(self) -> None:
        """End an attempt. The micro-batch is decided, by this attempt or an earlier one, or there was nothing to decide."""
        ...

    def on_finish(self) -> Batches:
        """Give the results of all that is owed. It may be called again, until `close_finish`."""
        ...


class ReplayDriver(Generic[Item]):
    """Runs one operator through one attempt at a micro-batch; the module says in which order.

    Parameters
    ----------
    shard
        The shard of the run log, held.
    batch
        The micro-batch's number; for `finish`, any that is later than all.
    operator
        What does the work.

    Example
    -------
    An operator that keeps the largest value of each micro-batch:

    >>> import pyarrow as pa, tempfile
    >>> from headrace.runlog import ReplayDriver, RunLog, Snapshot
    >>> class Largest:
    ...     decision_schema, beside = pa.schema({"v": pa.int64()}), ()
    ...     def restore(self, decision): ...
    ...     def on_batch(self, rows, draft):
    ...         top = max(v for batch in rows for v in batch["v"].to_pylist())
    ...         draft.add(pa.record_batch({"v": [top]}))
    ...         yield pa.record_batch({"v": [top]})
    ...     def on_idle(self, draft): yield from ()
    ...     def snapshot(self): return Snapshot(facts={}, owed=0)
    ...     def on_replay(self, decision, rows): yield from decision.file.batches()
    ...     def on_decided(self): ...
    >>> log = RunLog(tempfile.mkdtemp(), "q", "largest", shards=1)
    >>> for values in [3, 9, 4], [4, 9, 3]:  # two attempts
    ...     with log.shard(0) as shard:
    ...         out = list(ReplayDriver(shard, 7, Largest()).run([pa.record_batch({"v": values})]))
    ...     out[0]["v"].to_pylist()
    [9]
    [9]
    """

    def __init__(self, shard: ShardLog, batch: int, operator: ReplayedOperator[Item]) -> None:
        self.shard, self.batch, self.operator = shard, batch, operator

    def run(self, rows: Iterable[Item]) -> Batches:
        """Give the results of the micro-batch. `rows` are batches that are not empty."""
        self._refuse_late()
        last = self._restore()
        decided, rows = self.shard.find(DECISION, self.batch), iter(rows)
        if decided is not None:
            _log.info(
                "%s: batch %d was decided before a restart and is replayed as it was", self.shard.path, self.batch
            )
            finished = self.shard.find(FINISHED, self.batch) is not None
            yield from self.operator.on_replay(replace(Decision.of(decided), finished=finished), rows)
        else:
            self._tidy(last)
            with DecisionDraft(self.shard, self.batch, self.operator.decision_schema) as draft:
                yield from self._first_attempt(rows, draft)
                if (snapshot := self.operator.snapshot()) is not None:
                    draft.commit(snapshot)
        self.operator.on_decided()

    def finish(self) -> Batches:
        """Give the results of all that is owed. Until `close_finish` or `forget_finish` it can only be called again."""
        last = self._restore(finishing=True)
        if last is not None and last.owed:
            self.shard.write(FINISHING, last.batch, pa.schema([]), [])
            yield from self.operator.on_finish()

    def _refuse_late(self) -> None:
        """Refuse an attempt at a micro-batch when a later one is decided: Spark has taken another attempt's results long ago.

        A machine that was thought lost may come back with it. What the micro-batch decided may be compacted or gone by now, so
        that it would look like a first attempt, and remove what later ones need.
        """
        newest = max((entry.last for entry in self.shard.entries(DECISION, before=_AFTER_ALL)), default=-1)
        if newest > self.batch:
            raise RunLogError(
                f"batch {newest} of {self.shard.directory} is decided, so an attempt at batch {self.batch} comes too late, and"
                " has changed nothing; if the query runs twice, stop one of them; if its checkpoint was set back, begin anew"
                " with another state directory"
            )

    def _restore(self, *, finishing: bool = False) -> Decision | None:
        last = _last(self.shard, self.batch)
        if last is not None and not last.finished and not finishing and self.shard.find(FINISHING, last.batch):
            raise RunLogError(
                f"hr.finish was interrupted after batch {last.batch} of {self.shard.directory}; call it again before the query"
                " goes on"
            )
        if last is None:
            self.operator.restore(None)
        else:
            with understood(last.file.path):
                self.operator.restore(last)
            _log.debug(
                "%s: batch %d follows batch %d, which owed %d rows", self.shard.path, self.batch, last.batch, last.owed
            )
        return last

    def _tidy(self, last: Decision | None) -> None:
        """Remove what nobody needs: Spark may replay this micro-batch, but none before it."""
        if last is not None:
            for kind in (DECISION, FINISHING, FINISHED):
                self.shard.expire(kind, before=min(last.since, last.batch))
            if len(self.shard.entries(DECISION, before=self.batch)) > _MOST_DECISIONS:
                self.shard.compact(DECISION, before=self.batch, since=last.since)
        for kind in self.operator.beside:
            self.shard.discard(kind, self.batch)

    def _first_attempt(self, rows: Iterator[Item], draft: DecisionDraft) -> Batches:
        head = list(islice(rows, 1))
        yield from self.operator.on_batch(_joined(head, rows), draft) if head else self.operator.on_idle(draft)


def close_finish(shard: ShardLog) -> None:
    """Note that everything `ReplayDriver.finish` gave has arrived in the sink: it is owed no longer."""
    last = _last(shard)
    if last is not None and shard.find(FINISHING, last.batch) is not None:
        shard.write(FINISHED, last.batch, pa.schema([]), [])


def forget_finish(shard: ShardLog) -> None:
    """Note that nothing `ReplayDriver.finish` gave has arrived, or ever will: all of it is owed again."""
    last = _last(shard)
    if last is not None and not last.finished:
        shard.unkeep(last.batch, FINISH_PART)
        shard.expire(FINISHING, before=last.batch + 1)


def owing(shard: ShardLog) -> Decision | None:
    """The last decision, if something is owed after it that `ReplayDriver.finish` would give."""
    last = _last(shard)
    return last if last is not None and last.owed else None


def unfinished(shard: ShardLog) -> int:
    """The micro-batch after which something is owed that `ReplayDriver.finish` would give; -1 if nothing is."""
    last = owing(shard)
    return -1 if last is None else last.batch


def last_decision(shard: ShardLog) -> Decision | None:
    """The newest decision of a shard that nobody has to hold: a query that runs may remove the file between two looks."""
    for _ in range(_LOOKS):
        with suppress(FileNotFoundError):
            return _last(shard) if files.is_directory(shard.path) else None
    return None


def _joined(head: list[Item], rows: Iterator[Item]) -> Iterator[Item]:
    """Give the head and then the other rows. The list is emptied, so that the first batch does not stay in memory."""
    yield head.pop()
    yield from rows


def _last(shard: ShardLog, before: int = _AFTER_ALL) -> Decision | None:
    """The newest decision before a micro-batch. If it is finished, nothing is owed, and none of its rows is needed."""
    file = shard.last(DECISION, before=before)
    if file is None:
        return None
    last = Decision.of(file)
    if shard.find(FINISHED, last.batch) is None:
        return last
    return replace(last, owed=0, since=last.batch + 1, finished=True)
