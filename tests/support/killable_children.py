"""Processes that may be killed or stopped at any step of a create, an apply or a compact.

`Children` starts one process that has loaded Headrace and forks it for every task, so that a child costs
milliseconds. A task can be told to signal itself just before the n-th call of the functions in CALLS:
these are all that change what others see on disk.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1  # linux/prctl.h: a signal for when the parent ends
CALLS = ("fsync", "link", "mkdir", "open", "rename", "replace", "rmdir", "unlink")


class Children:
    """Start tasks in children of their own, and wait for their ends."""

    def __init__(self, *modules: str) -> None:
        """Modules: loaded once for all children, beside those of relations."""
        self._server = subprocess.Popen(
            [sys.executable, __file__, *modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        """End all: the server with its input, what a failed test left stopped or at work with the server."""
        try:
            self._server.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.communicate()

    def start(self, task: str, *args: object, **arm: object) -> int:
        """The child's pid. `arm`: see `_arm`; without, the task runs to its end."""
        self._send(["start", task, [str(a) if isinstance(a, Path) else a for a in args], arm])
        return int(self._receive())

    def wait(self, pid: int, timeout: float | None = None) -> dict[str, Any]:
        """How a child ended or stopped: {"signal", "stopped", "result", "error", "calls"}.

        One that is not done by the timeout is killed.
        """
        self._send(["wait", pid])
        if timeout is not None and not self._answers(timeout):
            with suppress(ProcessLookupError):  # it may have ended by itself this very moment
                os.kill(pid, signal.SIGKILL)
        return dict(self._receive())

    def _answers(self, timeout: float) -> bool:
        """Whether there is an answer in time. By poll: select takes no number of a file above 1,023."""
        assert self._server.stdout
        poll = select.poll()
        poll.register(self._server.stdout, select.POLLIN)
        return bool(poll.poll(timeout * 1000))

    def run(self, task: str, *args: object, **arm: object) -> dict[str, Any]:
        return self.wait(self.start(task, *args, **arm))

    def _send(self, message: object) -> None:
        assert self._server.stdin
        self._server.stdin.write(json.dumps(message) + "\n")
        self._server.stdin.flush()

    def _receive(self) -> Any:
        assert self._server.stdout
        line = self._server.stdout.readline()
        assert line, "the server of children is gone"
        return json.loads(line)


# -- tasks, each in a child ------------------------------------------------------------------------


def table(rows: int, tag: int) -> Any:
    """Keys 0..rows-1, every row marked with the version it belongs to, in no order."""
    import numpy as np
    import pyarrow as pa

    keys = np.random.default_rng(tag).permutation(rows)
    text = pa.array(["x" * (i % 60) for i in range(rows)])
    return pa.table({"k": keys, "tag": np.full(rows, tag), "s": text})


def create(path: str, rows: int, tag: int, overwrite: bool, memory: str = "64MiB") -> int:
    import headrace as hr

    reader = table(rows, tag).to_reader(max_chunksize=20_000)
    options = {"key": "k", "page_size": 4096, "memory": memory, "overwrite": overwrite}
    return hr.Relation.create(path, reader, **options).version


def apply(path: str, rows: int, tag: int) -> int:
    import headrace as hr

    return hr.Relation.open(path).apply(upserts=table(rows, tag))


def compact(path: str) -> int:
    import headrace as hr

    return hr.Relation.open(path).compact()


def apply_often(path: str, first: int, times: int) -> int:
    """Each apply has a key of its own; another writer's turn is waited for."""
    import pyarrow as pa

    import headrace as hr

    done = refused = 0
    with hr.Relation.open(path) as rel:
        while done < times:
            row = pa.table({"k": [first + done], "tag": [0], "s": ["x"]})
            try:
                rel.apply(upserts=row, on_conflict="rebase")
                done += 1
            except hr.VersionConflict:
                refused += 1
    return refused


def apply_with_few_files(path: str, times: int, files: int) -> int:
    """Under a limit of open files, as `ulimit -n` sets it."""
    import pyarrow as pa

    import headrace as hr

    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    for i in range(times):
        row = pa.table({"k": [i], "tag": [-1], "s": ["x"]})
        with hr.Relation.open(path) as rel:
            rel.apply(upserts=row)
    return hr.Relation.open(path).version


def under_file_limit(size: int, task: str, *args: object) -> object:
    """Another task with a limit on the size of files, as `ulimit -f` sets it. Python ignores the signal that comes with it."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return TASKS[task](*args)


def use(path: str) -> str:
    """Read and change a relation in every way."""
    import headrace as hr

    with hr.Relation.open(path) as rel:
        rel.lookup([1])
        rel.verify()
        rel.apply(upserts=table(3, 2))
        rel.compact()
    return "done"


def read_until(path: str, stop: str) -> dict[str, int]:
    """Open and read again and again until the file `stop` is there; every read is of one version."""
    import headrace as hr

    seen: dict[str, int] = {}
    last = False
    begun = time.monotonic()
    while True:
        # A writer makes some hundred syncs meanwhile, and on a busy disk one takes a second.
        assert time.monotonic() - begun < 500, "nobody said stop"
        with hr.Relation.open(path) as rel:
            for found in (rel.lookup(list(range(rel.num_rows))), hr_scan(rel)):
                tags = set(found["tag"].to_pylist())
                assert tags == {rel.version}, f"version {rel.version} read as {sorted(tags)}"
                assert found.num_rows == rel.num_rows
            seen[str(rel.version)] = seen.get(str(rel.version), 0) + 1
        if last:
            return seen
        last = Path(stop).exists()


def give_out(path: str, flat: list[Any]) -> list[int]:
    """Surrogate keys for (source, id) pairs, written one after the other."""
    import pyarrow as pa

    import headrace as hr
    from headrace.etl.allocate import Lookup, surrogates_of

    keys = pa.table({"source": flat[::2], "id": pa.array(flat[1::2], pa.int64())})
    with hr.Relation.open(path) as lookup:
        return surrogates_of(keys, lookup, Lookup("skey", "inferred", 1)).to_pylist()


def keep(path: str, number: int, rows: list[list[Any]]) -> bool:
    """Changes (op, k, tag) of a numbered batch; says whether they were there already."""
    import pyarrow as pa

    import headrace as hr
    from headrace.etl.apply_changes import DELETES, UPSERTS, ChangeApplier

    ops, keys, tags = zip(*rows, strict=True)
    changes = pa.table({"op": ops, "k": keys, "tag": tags, "s": pa.nulls(len(rows), pa.string())})
    with hr.Relation.open(path) as rel:
        return ChangeApplier(rel, "op", None, UPSERTS, DELETES, "refuse").apply(changes, "app", number).repeated


def scan_feeds(state: str, recording: str, urls: list[str]) -> int:
    """Replay a recording from where the state stands to its end; returns the number of the last pull."""
    import asyncio

    from headrace.clock import ManualClock
    from headrace.feeds.recorded import RecordedFetcher
    from headrace.feeds.scanner import Scanner
    from headrace.feeds.store import FeedStore

    async def run() -> int:
        clock = ManualClock()
        store, fetcher = FeedStore(state, clock=clock), RecordedFetcher(recording, clock)
        clock.advance(max([fetcher.start.timestamp(), *(s.pulled or 0.0 for s in store.states().values())]))
        async with Scanner(fetcher, store, host_gap=0, per_host=50, commit_gap=0, listed=False) as scanner:
            scanner.claim("test", urls)
            await scanner.run(until=fetcher.end)
            await scanner.step()
        return store.newest

    return asyncio.run(run())


def run_desk(state: str, recording: str, queries: dict[str, str]) -> dict[str, int]:
    """Run a desk over a recording, from where the state stands to the recording's end; returns how many results there are."""
    import asyncio
    from datetime import timedelta

    from headrace.clock import ManualClock
    from headrace.feeds.desk import Desk
    from headrace.feeds.recorded import RecordedFetcher
    from headrace.feeds.scanner import Scanner
    from headrace.feeds.store import FeedStore

    async def run() -> dict[str, int]:
        clock = ManualClock()
        store, fetcher = FeedStore(state, clock=clock), RecordedFetcher(recording, clock)
        clock.advance(max([fetcher.start.timestamp(), *(s.pulled or 0.0 for s in store.states().values())]))
        scanner = Scanner(fetcher, store, host_gap=0, per_host=50, commit_gap=0, listed=False)
        desk = Desk(state, scanner)
        for name, sql in queries.items():
            desk.subscribe(name, sql)
        await desk.run(until=fetcher.end + timedelta(minutes=1))
        return {query.name: query.results for query in desk.queries()}

    return asyncio.run(run())


def hr_scan(rel: Any) -> Any:
    import pyarrow as pa

    return pa.Table.from_batches(rel.scan())


TASKS: dict[str, Callable[..., object]] = {
    t.__name__: t
    for t in (
        create,
        apply,
        compact,
        apply_often,
        apply_with_few_files,
        under_file_limit,
        use,
        read_until,
        give_out,
        keep,
        scan_feeds,
        run_desk,
    )
}


# -- the server --------------------------------------------------------------------------------------


def _arm(calls: list[str], at: int = -1, name: str = "", text: str = "", kill: bool = True) -> None:
    """Signal this process before call number `at`, or before the first of `name` with `text` in it."""
    sent = signal.SIGKILL if kill else signal.SIGSTOP
    stopped = False

    def wrap(function: str) -> None:
        original = getattr(os, function)

        def counted(*args: Any, **options: Any) -> Any:
            nonlocal stopped
            wanted = function == name and text in str(args[0]) and not stopped
            if len(calls) == at or wanted:
                stopped = True
                os.kill(os.getpid(), sent)
            calls.append(f"{function} {args[0]}")
            return original(*args, **options)

        setattr(os, function, counted)

    for function in CALLS:
        wrap(function)


def _child(task: str, args: list[Any], arm: dict[str, Any], out: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):
        os.dup2(nowhere, standard)  # a child left behind must not keep the server's pipes open
    calls: list[str] = []
    report: dict[str, Any] = {}
    try:
        _arm(calls, **arm)
        report["result"] = TASKS[task](*args)
    except BaseException as error:
        report["error"] = f"{type(error).__name__}: {error}"
    report["calls"] = calls
    with os.fdopen(out, "w") as file:
        json.dump(report, file)
    os._exit(0)


def _serve() -> None:
    # Loaded once, for all children: pandas too, which Arrow imports with its first array, in a second.
    import pyarrow as pa

    import headrace.etl.allocate
    import headrace.etl.apply_changes
    import headrace.relation  # noqa: F401

    pa.array([0])
    for name in sys.argv[1:]:
        importlib.import_module(name)

    pipes: dict[int, int] = {}
    for line in sys.stdin:
        command, *rest = json.loads(line)
        if command == "start":
            task, args, arm = rest
            into, out = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(into)
                _child(task, args, arm, out)
            os.close(out)
            pipes[pid] = into
            answer: object = pid
        else:
            answer = _ended(rest[0], pipes)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _ended(pid: int, pipes: dict[int, int]) -> dict[str, Any]:
    text = ""
    # The pipe first: a child with much to say waits until it is read. A stopped one says nothing yet.
    while True:
        readable = select.select([pipes[pid]], [], [], 0.005)[0]
        if readable:
            piece = os.read(pipes[pid], 1 << 16)
            if piece:
                text += piece.decode()
                continue
        found, status = os.waitpid(pid, os.WUNTRACED | (0 if readable else os.WNOHANG))
        if found:
            break
    if os.WIFSTOPPED(status):
        return {"stopped": True, "signal": None}
    os.close(pipes.pop(pid))
    try:
        report = json.loads(text) if text else {}
    except ValueError:  # killed while it wrote its report
        report = {}
    ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    return {"stopped": False, "signal": ended, "result": None, "error": None, "calls": [], **report}


if __name__ == "__main__":
    _serve()
