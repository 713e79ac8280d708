"""Processes that join in one group, told what to do by a test, and killed by it.

`Workers` starts one process that has loaded Headrace and forks it for every worker, so that one costs milliseconds. A worker is
told the name of a function below and its arguments, and answers with what it gives, or with its error.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

PR_SET_PDEATHSIG = 1  # linux/prctl.h: a signal for when the parent ends
PATIENCE = 300.0  # seconds for an answer that takes a few on an idle machine: only one that never comes is a fault


class Worker:
    """A process, seen from the test."""

    def __init__(self, pid: int, connection: Connection) -> None:
        self.pid = pid
        self._connection = connection

    def tell(self, task: str, *args: Any) -> None:
        self._connection.send((task, args))

    def answered(self, patience: float = 0.0) -> bool:
        """Whether it has an answer, waited for as long as the patience lasts (seconds)."""
        return self._connection.poll(patience)

    def answer(self) -> Any:
        assert self.answered(PATIENCE), f"worker {self.pid} does not answer"
        done, value = self._connection.recv()
        assert done, f"worker {self.pid}: {value}"
        return value

    def do(self, task: str, *args: Any) -> Any:
        self.tell(task, *args)
        return self.answer()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(EOFError, OSError):  # it is gone when its end of the connection is
            while True:
                self._connection.recv()
        self._connection.close()


class Workers:
    """Starts workers. All of them end with it."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._listener = Listener(str(Path(self._directory.name, "socket")), "AF_UNIX", backlog=16)
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.group_workers", self._listener.address],
            stdin=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        self.started: list[Worker] = []

    def start(self) -> Worker:
        assert self._server.stdin is not None
        self._server.stdin.write(b"\n")
        self._server.stdin.flush()
        connection = self._listener.accept()
        worker = Worker(connection.recv(), connection)
        self.started.append(worker)
        return worker

    def kill_all(self) -> None:
        for worker in self.started:
            worker.kill()
        self.started.clear()

    def close(self) -> None:
        self.kill_all()
        self._server.communicate(timeout=PATIENCE)
        self._listener.close()
        self._directory.cleanup()


# -- in a worker -------------------------------------------------------------------------------------------------------

_operators: dict[str, Any] = {}
_relations: dict[tuple[str, int | None], Any] = {}
_ready: list[pa.RecordBatch] = []
_under_way: dict[str, tuple[Iterator[pa.RecordBatch], list[pa.RecordBatch]]] = {}


def make(name: str, path: Path, directory: Path, workers: int, version: int | None = None, **options: Any) -> int:
    """An operator in the group; one relation serves all operators of a version. Returns the version."""
    import headrace as hr
    from headrace.semistream import AdaptiveJoin
    from headrace.semistream.adaptive.group import Group

    relation = _relations.get((str(path), version))
    if relation is None:
        relation = _relations[str(path), version] = hr.Relation.open(path, version=version)
    defaults = {"on": "k", "group": Group(directory, workers), "clock": EvenClock()}
    _operators[name] = AdaptiveJoin(relation, **{**defaults, **options})
    return relation.version


class EvenClock:
    """Every look takes a millisecond: whether a generation is worth publishing does not hang on how busy the machine is."""

    def __init__(self) -> None:
        self._looks = 0

    def now(self) -> float:
        self._looks += 1
        return self._looks / 1000


def drop(name: str) -> None:
    """Forget an operator and its relation; what malloc and Arrow keep of them goes back."""
    from headrace.memory import release_freed_memory

    del _operators[name]
    _relations.clear()
    _ready.clear()
    release_freed_memory()


def enter(name: str) -> bool:
    return _operators[name].enter()


def leave(name: str) -> None:
    _operators[name].leave()


def join(name: str, batch: pa.RecordBatch) -> pa.Table | None:
    """The results of a batch; None if there was no slot."""
    op = _operators[name]
    if not op.enter():
        return None
    try:
        return joined(name, batch)
    finally:
        op.leave()


def joined(name: str, batch: pa.RecordBatch) -> pa.Table:
    """The same, in a slot that was entered."""
    op = _operators[name]
    return pa.Table.from_batches(list(op.join(batch)), op.output_schema(batch.schema))


def begin(name: str, batch: pa.RecordBatch) -> bool:
    """Join a batch up to its first results, and stop in the middle of it."""
    op = _operators[name]
    if not op.enter():
        return False
    results = op.join(batch)
    _under_way[name] = results, [next(results)]
    return True


def finish(name: str) -> pa.Table:
    """The results of the batch that was begun."""
    results, some = _under_way.pop(name)
    some += results
    _operators[name].leave()
    return pa.Table.from_batches(some)


def stats(name: str) -> dict[str, Any]:
    op = _operators[name]
    op.stats.check()
    shared = op._membership.shared  # private: what the members have agreed on, where they share a hot set
    return op.stats.as_dict() | {"agreed": getattr(shared, "hot_bytes", 0)}


def shared_memory(name: str) -> dict[str, int]:
    """Which memory it is, and how much of it is there."""
    memory = _operators[name]._membership.shared.memory  # private: the file that the system counts
    facts = os.fstat(memory._fd)
    return {"name": memory.name, "size": memory.size, "bytes": facts.st_blocks * 512, "inode": facts.st_ino}


def descriptors() -> int:
    """Files open, and pieces of memory with them."""
    return len(list(Path("/proc/self/fd").iterdir()))


def private(pid: int | str = "self") -> int:
    """Bytes of a process's own memory: what it maps of the shared memory is the group's, even if nobody else maps it yet."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def stream(rng: np.random.Generator, rows: int, keys: int, skewed: bool) -> pa.RecordBatch:
    """Keys 0, 2, ... are in the relation `numbered` made; the odd ones are not; some are null."""
    k = (keys ** rng.random(rows)).astype(np.int64) * 7919 % keys if skewed else rng.integers(0, keys, rows)
    k = 2 * k + (rng.random(rows) < 0.1)
    return pa.record_batch({"k": pa.array(k, mask=rng.random(rows) < 0.02), "seq": np.arange(rows)})


def numbered(keys: int, add: int = 0) -> pa.Table:
    """A relation that says by its key what must be in it."""
    k = np.random.default_rng(keys).permutation(keys) * 2
    return pa.table({"k": k, "v": k * 7 + add, "s": pa.array(np.char.add("name ", k.astype("U9")))})


def check(batch: pa.RecordBatch, out: pa.Table, add: int = 0) -> None:
    """Exactly the results of an inner join with `numbered`, in stream order."""
    k = batch["k"].to_numpy(zero_copy_only=False)
    there = np.flatnonzero(~np.isnan(k) & (k % 2 == 0))
    wanted = k[there].astype(np.int64)
    assert out.num_rows == wanted.size
    assert np.array_equal(out["seq"].to_numpy(), there)
    assert np.array_equal(out["k"].to_numpy(), wanted)
    assert np.array_equal(out["v"].to_numpy(), wanted * 7 + add)
    assert out["s"].to_pylist() == [f"name {key}" for key in wanted]


def work(name: str, seed: int, batches: int, keys: int, most: int = 4000, skewed: bool = True) -> dict[str, int]:
    """Join random batches and check each; says how many were joined and how often there was no slot."""
    rng = np.random.default_rng(seed)
    done = refused = 0
    for _ in range(batches):
        batch = stream(rng, int(rng.integers(1, most)), keys, skewed)
        out = join(name, batch)
        if out is None:
            refused += 1
            continue
        try:
            check(batch, out)
        except AssertionError as error:
            raise AssertionError(f"seed={seed}, batch {done + refused}: {error}") from error
        done += 1
    return {"done": done, "refused": refused}


def prepare(seed: int, batches: int, keys: int, rows: int, skewed: bool) -> int:
    """Random batches for `burden`; says what memory of its own this process has with them."""
    rng = np.random.default_rng(seed)
    _ready[:] = [stream(rng, rows, keys, skewed) for _ in range(batches)]
    return private()


def burden(name: str) -> int:
    """Join the batches that were prepared and keep nothing; how many results they had."""
    op, results = _operators[name], 0
    for batch in _ready:
        assert op.enter()
        for out in op.join(batch):
            results += out.num_rows
        op.leave()
    assert results == sum(int((batch["k"].to_numpy(zero_copy_only=False) % 2 == 0).sum()) for batch in _ready)
    return results


def _serve(address: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with Client(address, "AF_UNIX") as connection:
        connection.send(os.getpid())
        while True:
            try:
                task, args = connection.recv()
            except EOFError:
                return
            args, options = (args[:-1], args[-1]) if args and isinstance(args[-1], dict) else (args, {})
            try:
                answer = True, globals()[task](*args, **options)
            except BaseException:
                answer = False, traceback.format_exc()
            connection.send(answer)


def _fork(address: str) -> None:
    # Loaded once, for all workers: pandas too, which Arrow imports with its first array, in a second.
    import headrace.semistream  # noqa: F401

    pa.array([0])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while os.read(0, 1):
        if os.fork() == 0:
            os.close(0)
            _serve(address)
            os._exit(0)


if __name__ == "__main__":
    _fork(sys.argv[1])
