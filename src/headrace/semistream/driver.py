"""The driver of joins whose tuples wait: it reads the stream, and knows when a step is due although nothing comes. [SSIJ] §IV.F

source --poll--> offer --> [join] --advance--> results
         |                   ^
         `-- nothing came ---'  for `idle` seconds, or until a deadline is near: a step for what is there
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from headrace.clock import SystemClock

if TYPE_CHECKING:
    from headrace.semistream.protocols import DrivenOperator

_AHEAD = 1  # batch that is read before the join takes it: no budget counts it, and a silent stream needs no more
_SHED_AHEAD = 16  # batches, where the join sheds: enough to see that the source is ahead of it
_LOOK = 0.1  # seconds between two looks of the reading thread at whether anybody still wants its batches


@runtime_checkable
class PolledSource(Protocol):
    """A stream that can be asked for what has come, and does not let the join wait for longer than it will."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        ...

    def poll(self, seconds: float | None) -> pa.RecordBatch | None:
        """The next batch; None if none comes within so many seconds, or if the stream ends. None: wait as long as it takes."""
        ...


def drive(
    op: DrivenOperator, batches: Iterable[pa.RecordBatch] | PolledSource, idle: float | None
) -> Iterator[pa.RecordBatch]:
    """Results of a stream: a step whenever the join is ready for one, or one is due, and all that is left at the end.

    Parameters
    ----------
    op
        The join. Its deadline and its clock count.
    batches
        The stream. A plain iterable is read by a thread of its own where the time counts: it may block for longer than a step can
        wait. A list does not block, and a clock that is set by hand moves only while the stream is read.
    idle
        Seconds without a batch after which tuples wait no longer; None for as long as their deadlines let them.
    """
    timed = idle is not None or op.deadline is not None or op.shed is not None
    if isinstance(batches, PolledSource):
        source = batches
    elif timed and not isinstance(batches, Sequence) and isinstance(op.clock, SystemClock):
        source = ThreadedSource(batches, _AHEAD if op.shed is None else _SHED_AHEAD)
    else:
        source = BlockingSource(batches)
    pace, step = _Pace(op, idle), 0.0  # seconds of the last step
    try:
        while not source.ended:
            while op.ready:
                begun = op.clock.now()
                if op.shed is not None:  # what has come meanwhile is part of the choice
                    while (batch := source.poll(0)) is not None:
                        yield from pace.came(batch)
                        if op.clock.now() - begun >= step:  # a stream that is always there would keep it from any step
                            break
                    begun = op.clock.now()
                yield from op.advance()
                step = op.clock.now() - begun
            asked = op.clock.now()
            batch = source.poll(pace.patience())
            op.has_waited(op.clock.now() - asked)
            if batch is not None:
                yield from pace.came(batch)
            # A stream that is always there lets no silence tell that a deadline is near.
            if not source.ended and (batch is None or pace.is_due):
                yield from op.advance(quiet=True)
        yield from op.drain()
    finally:
        if isinstance(source, ThreadedSource):
            source.close()


async def drive_async(
    op: DrivenOperator, batches: AsyncIterable[pa.RecordBatch], idle: float | None
) -> AsyncIterator[pa.RecordBatch]:
    """As `drive` does, for a stream that is awaited: other tasks of the event loop run while nothing is there to join."""
    pace, stream = _Pace(op, idle), aiter(batches)
    step, ended = 0.0, op.clock.now()  # seconds of the last step, and when it ended
    coming: asyncio.Future[pa.RecordBatch | None] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(_next(stream))
            if op.ready:
                there = False
                if op.shed is not None and op.clock.now() - ended < step:  # as in `drive`
                    there = bool((await asyncio.wait({coming}, timeout=0))[0])
                if not there:
                    begun = op.clock.now()
                    for out in op.advance():
                        yield out
                    ended = op.clock.now()
                    step = ended - begun
                    await asyncio.sleep(0)  # a join that is always ready would keep all other tasks from running
                    continue
            asked = op.clock.now()
            done, _ = await asyncio.wait({coming}, timeout=pace.patience())
            op.has_waited(op.clock.now() - asked)
            if not done:
                for out in op.advance(quiet=True):
                    yield out
                continue
            batch, coming = coming.result(), None
            if batch is None:
                break
            for out in pace.came(batch):
                yield out
            if pace.is_due:
                for out in op.advance(quiet=True):
                    yield out
        for out in op.drain():
            yield out
    finally:
        if coming is not None:
            coming.cancel()


async def _next(stream: AsyncIterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    """The next batch; None at the end."""
    try:
        return await anext(stream)
    except StopAsyncIteration:
        return None


class _Pace:
    """How long the stream may let a join wait.

    Parameters
    ----------
    op, idle
        See `drive`.
    """

    def __init__(self, op: DrivenOperator, idle: float | None) -> None:
        self._op = op
        self._idle = np.inf if idle is None else idle
        self._last = op.clock.now()  # when the last batch came

    def came(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Hand a batch over; results of tuples that cannot match come at once."""
        self._op.offer(batch)
        self._last = self._op.clock.now()
        yield from self._op.take_in()

    @property
    def is_due(self) -> bool:
        """Whether a step must come now so that no deadline passes."""
        return self._op.waiting > 0 and self._op.due <= self._op.clock.now()

    def patience(self) -> float | None:
        """Seconds to wait for the stream at most; None where nothing is due."""
        if not self._op.waiting:
            return None
        moment = min(self._op.due, self._last + self._idle)
        return None if np.isinf(moment) else max(0.0, moment - self._op.clock.now())


class BlockingSource:
    """A stream that is read where it is needed, and waited for however long it takes.

    Parameters
    ----------
    batches
        The stream.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self.ended = False
        self._batches = iter(batches)

    def poll(self, seconds: float | None) -> pa.RecordBatch | None:
        """The next batch. None where it must be there at once, which nobody can tell."""
        if seconds == 0:
            return None
        batch = next(self._batches, None)
        self.ended = batch is None
        return batch


class ThreadedSource:
    """A stream that is read by a thread, one or a few batches ahead.

    Parameters
    ----------
    batches
        The stream. What it raises is raised where it is asked for.
    ahead
        Batches that wait to be asked for at most; the thread may have one more in its hands.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], ahead: int) -> None:
        self.ended = False
        self._queue: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(ahead)
        self._closed = threading.Event()
        # Nobody can end a thread that is waiting for a stream; as a daemon it does not keep the process from ending.
        threading.Thread(target=self._read, args=(batches,), name="headrace stream", daemon=True).start()

    def _read(self, batches: Iterable[pa.RecordBatch]) -> None:
        last: BaseException | None = None
        try:
            for batch in batches:
                if not self._put(batch):
                    return
        except BaseException as error:  # whatever it is, the join is told
            last = error
        self._put(last)

    def _put(self, item: pa.RecordBatch | BaseException | None) -> bool:
        """Whether somebody still wants it."""
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=_LOOK)
            except queue.Full:
                continue
            return True
        return False

    def poll(self, seconds: float | None) -> pa.RecordBatch | None:
        """The next batch, or None if none comes in time."""
        if self.ended:
            return None
        try:
            item = self._queue.get(timeout=seconds) if seconds != 0 else self._queue.get_nowait()
        except queue.Empty:
            return None
        if isinstance(item, BaseException):
            self.ended = True
            raise item
        self.ended = item is None
        return item

    def close(self) -> None:
        """Read no more."""
        self._closed.set()
