"""ReadPool: threads that read runs of pages in compiled code and never take the interpreter's lock. (DESIGN D3)

    caller   submit --> tasks |a|b|c| | | --> threads: take a task, read its runs, count down its group
             wait   <-- a semaphore for each group, which whoever read the last run posts

A thread of the interpreter's that reads takes its lock twice a call, and with many threads and small reads most of the
processor's time goes into handing the lock around: 70 µs a read were measured. Here a thread enters compiled code once and
stays there.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from dataclasses import dataclass, field

import numpy as np
from numba import types

from headrace.arrays import Int32s, Int64s
from headrace.files import files
from headrace.kernels.jit import (
    I32,
    I64,
    atomic_add,
    atomic_load,
    atomic_replace,
    helper,
    i64,
    int64,
    kernel,
    load_i64,
    store_i64,
    void,
)
from headrace.relation.columns import address

# Declared by symbol and not by address, so that compiled code can be cached on disk.
_pread = types.ExternalFunction("pread", types.intp(types.int32, types.int64, types.uintp, types.int64))
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.uintp))
_sem_init = types.ExternalFunction("sem_init", types.int32(types.uintp, types.int32, types.uint32))
_sem_post = types.ExternalFunction("sem_post", types.int32(types.uintp))
_sem_wait = types.ExternalFunction("sem_wait", types.int32(types.uintp))

# The control block, in 64-bit words: a semaphore that counts reasons to wake up, how many tasks were taken and handed in since
# the pool began, and a record for each group: a semaphore that says it is done, tasks left, the first run that could not be
# read (-1: none), nanoseconds in reads, and the addresses of its arrays.
_SEMAPHORE = 8  # words: sem_t has 32 bytes on Linux, and a cache line of its own
_TAKEN, _HANDED_IN = _SEMAPHORE, 2 * _SEMAPHORE
_GROUPS_AT = 3 * _SEMAPHORE
_LEFT, _BAD, _NANOSECONDS = _SEMAPHORE, _SEMAPHORE + 1, _SEMAPHORE + 2
_FDS, _OFFSETS, _SIZES, _TARGETS = range(_SEMAPHORE + 3, _SEMAPHORE + 7)
_GROUP = 2 * _SEMAPHORE
_GROUPS = 64  # groups that may be pending at the same time
_TASKS = 4096  # tasks that may be pending at the same time; a power of two
_TASK = 3  # words of a task: group, first run, end of its runs


@helper
def _now(times):  # type: ignore[no-untyped-def]
    """Return the nanoseconds of the monotonic clock; `times` is scratch space."""
    _clock_gettime(types.int32(time.CLOCK_MONOTONIC), times.ctypes.data)
    return times[0] * 1_000_000_000 + times[1]


@helper
def _read_run(fd, offset, size, target):  # type: ignore[no-untyped-def]
    """Read `size` bytes to an address; returns whether they were all there."""
    done = np.int64(0)
    while done < size:
        got = _pread(fd, target + done, types.uintp(size - done), offset + done)
        if got <= 0:
            return False
        done += got
    return True


@kernel(int64(I32, I64, I64, I64, i64))
def read_runs(fds, offsets, sizes, targets, nanoseconds):  # type: ignore[no-untyped-def]
    """Read every run in this thread; returns -1, or the number of the first run that could not be read in full.

    nanoseconds[0] receives the time it took. It is taken here because a thread that returns from compiled code first waits for
    the interpreter's lock.
    """
    times = np.empty(2, np.int64)
    begun = _now(times)
    bad = np.int64(-1)
    for i in range(fds.size):
        if not _read_run(fds[i], offsets[i], sizes[i], targets[i]):
            bad = np.int64(i)
            break
    nanoseconds[0] = _now(times) - begun
    return bad


def read_runs_one_by_one(fds: Int32s, offsets: Int64s, sizes: Int64s, targets: Int64s) -> int:
    """Read every run by the form of files in use, which compiled code knows nothing of; returns what `read_runs` returns."""
    for i in range(fds.size):
        memory = (ctypes.c_ubyte * int(sizes[i])).from_address(int(targets[i]))
        view, at, done = memoryview(memory).cast("B"), int(offsets[i]), 0
        try:
            while done < len(view) and (got := files().read_into(int(fds[i]), view[done:], at + done)):
                done += got
        except OSError:
            return i
        if done < len(view):
            return i
    return -1


@helper
def _do(group, first, end, times):  # type: ignore[no-untyped-def]
    """Read the runs of a task, and count its group down."""
    fds, offsets = load_i64(group + 8 * _FDS), load_i64(group + 8 * _OFFSETS)
    sizes, targets = load_i64(group + 8 * _SIZES), load_i64(group + 8 * _TARGETS)
    begun = _now(times)
    for i in range(first, end):
        fd = types.int32(load_i64(fds + 8 * i))
        if not _read_run(fd, load_i64(offsets + 8 * i), load_i64(sizes + 8 * i), load_i64(targets + 8 * i)):
            store_i64(group + 8 * _BAD, i)  # the last of several that fail is as good as the first
    atomic_add(group + 8 * _NANOSECONDS, _now(times) - begun)
    if atomic_add(group + 8 * _LEFT, np.int64(-1)) == 1:
        _sem_post(types.uintp(group))


@kernel(void(int64, int64))
def _serve(control, tasks):  # type: ignore[no-untyped-def]
    """Take tasks and do them, for ever: what a thread of the pool runs."""
    times = np.empty(2, np.int64)
    while True:
        if _sem_wait(types.uintp(control)) != 0:
            continue  # a signal came
        while True:
            taken = atomic_load(control + 8 * _TAKEN)
            if taken >= atomic_load(control + 8 * _HANDED_IN):
                break
            # The task is looked at before it is taken: once it is, its place may be filled with another.
            task = tasks + 8 * _TASK * (taken & (_TASKS - 1))
            group, first, end = load_i64(task), load_i64(task + 8), load_i64(task + 16)
            if atomic_replace(control + 8 * _TAKEN, taken, taken + 1):
                _do(group, first, end, times)


@kernel(void(int64, int64, int64, int64, int64, int64))
def _submit(control, tasks, group, runs, in_task, threads):  # type: ignore[no-untyped-def]
    """Hand in the runs of a group, some in a task, and wake up so many threads."""
    count = -(-runs // in_task)
    store_i64(group + 8 * _BAD, np.int64(-1))
    store_i64(group + 8 * _NANOSECONDS, np.int64(0))
    store_i64(group + 8 * _LEFT, count)
    next_task = atomic_load(control + 8 * _HANDED_IN)
    for i in range(count):
        task = tasks + 8 * _TASK * ((next_task + i) & (_TASKS - 1))
        store_i64(task, group)
        store_i64(task + 8, i * in_task)
        store_i64(task + 16, min(runs, (i + 1) * in_task))
    atomic_add(control + 8 * _HANDED_IN, count)
    for _ in range(min(count, threads)):
        _sem_post(types.uintp(control))


@kernel(void(int64))
def _await(group):  # type: ignore[no-untyped-def]
    """Wait until a group has been read."""
    while _sem_wait(types.uintp(group)) != 0:
        pass  # a signal came


@kernel(void(int64))
def _init(semaphore):  # type: ignore[no-untyped-def]
    _sem_init(types.uintp(semaphore), types.int32(0), types.uint32(0))


@dataclass
class PendingReads:
    """Reads that were started and may not be complete. Whoever started them waits for them: they write to its memory."""

    bad: int = -1
    nanoseconds: int = 0
    pool: ReadPool | None = None
    group: int = 0
    arrays: tuple[Int64s, ...] = ()  # kept while threads read them
    done: bool = field(default=False, init=False)

    def wait(self) -> int:
        """Wait for all reads; returns -1, or the number of a run that could not be read in full."""
        if self.pool is not None and not self.done:
            self.done = True
            self.bad, self.nanoseconds = self.pool.wait(self.group)
            self.arrays = ()
        return self.bad


class ReadPool:
    """Threads of one process that read for all who ask. Threads are started when they are first needed."""

    def __init__(self) -> None:
        self._control = np.zeros(_GROUPS_AT + _GROUP * _GROUPS, np.int64)
        self._tasks = np.zeros(_TASK * _TASKS, np.int64)
        self._at, self._tasks_at = address(self._control), address(self._tasks)
        self._free = [self._at + 8 * (_GROUPS_AT + _GROUP * i) for i in range(_GROUPS)]
        self._lock = threading.Lock()
        self._threads = 0
        _init(self._at)
        for group in self._free:
            _init(group)

    def start(self, fds: Int32s, offsets: Int64s, sizes: Int64s, targets: Int64s, threads: int) -> PendingReads | None:
        """Start to read runs with so many threads; None if too much is pending."""
        runs = fds.size
        arrays = (fds.astype(np.int64), *(np.ascontiguousarray(a, np.int64) for a in (offsets, sizes, targets)))
        in_task = -(-4 * runs // _TASKS)
        with self._lock:
            pending = int(self._control[_HANDED_IN] - self._control[_TAKEN])
            if not self._free or pending + runs // in_task + 1 > _TASKS:
                return None
            group = self._free.pop()
            while self._threads < threads:
                name = f"headrace-read-{self._threads}"
                threading.Thread(target=_serve, args=(self._at, self._tasks_at), name=name, daemon=True).start()
                self._threads += 1
            record = self._control[(group - self._at) // 8 :]
            record[_FDS : _TARGETS + 1] = [address(array) for array in arrays]
            _submit(self._at, self._tasks_at, group, runs, in_task, threads)
        return PendingReads(pool=self, group=group, arrays=arrays)

    def wait(self, group: int) -> tuple[int, int]:
        """Wait for a group; returns the run that could not be read, or -1, and the nanoseconds of its reads."""
        _await(group)
        record = self._control[(group - self._at) // 8 :]
        result = int(record[_BAD]), int(record[_NANOSECONDS])
        with self._lock:
            self._free.append(group)
        return result


_pool: tuple[int, ReadPool] | None = None
_making = threading.Lock()


def read_pool() -> ReadPool:
    """Return the pool of this process. A forked child has the object of its parent, but not its threads."""
    global _pool
    with _making:
        if _pool is None or _pool[0] != os.getpid():
            _pool = os.getpid(), ReadPool()
        return _pool[1]
