"""Chaos without Spark: writers of relations and queries over the run log, each a small process, killed by the hundred.

    python -m soak.plain_chaos '{"root": ..., "small": ..., "kills": 700, "seed": 1, ...}'

It writes a line of JSON for everything that it does, and its summary last. It goes on, slowly, until its input ends, so that the
relation that Spark's queries join with keeps changing as long as they run. The process itself does nothing but fork, kill and
wait: what reads or writes data is a child.
"""

from __future__ import annotations

import json
import mmap
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.errors import RelationReplaced, VersionConflict
from soak.children import Child, ChildFailed
from soak.jumping_clock import follow, set_offset
from soak.logged_queries import Enrichment, LoggedQuery, Pairs, Sample, Verdict
from soak.small_disk import SmallDisk
from soak.summary import Summary
from soak.versions import Contents, check_relation, generation_of, left_behind

DAY = 86_400.0
#: What happens in a round, and how often.
EVENTS = {
    "write": 0.28,
    "overwrite": 0.12,
    "enrichment": 0.24,
    "pairs": 0.16,
    "sample": 0.12,
    "two processes of one query": 0.04,
    "stopped for a moment": 0.04,
}
_OPERATIONS = ("opening", "apply", "compact", "reorder", "overwrite", "create", "waiting")
_LIMIT = 180.0  # seconds that a child may take: what takes tens of milliseconds on an idle machine
_FULL = "No space left on device"


@dataclass(kw_only=True)
class Settings:
    """What is run, and where."""

    root: str
    """a directory that is there"""
    small: str
    """a directory for state and relations; a file system of its own unless there is `no_small`"""
    no_small: str = ""
    """why the disk cannot be filled"""
    kills: int
    seed: int
    keys: int = 3000
    batches: int = 30
    """micro-batches of a query, until its results are compared and the next one begins"""
    stop: float = 60.0
    """seconds of a long stop"""
    full: float = 10.0
    """seconds that the disk is full"""
    jump: float = 8.0
    """seconds that the clock is a day off"""
    extraordinary: int = 3
    """times that each of the long events happens: a long stop, a full disk, the clock forward and back"""
    drop: bool = False
    """the sink of a query drops a row, which must be found"""
    lost_products: bool = False
    """the oracle of the relation has one product more than the relation, which must be found"""


@dataclass
class _Query:
    """The query of a kind that is under way."""

    make: Callable[[Path, int, bool], LoggedQuery]
    number: int = 0
    lives: int = 0
    verdict: Verdict = field(default_factory=Verdict)


class PlainChaos:
    """The run."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.root = Path(settings.root)
        self.disk = SmallDisk(Path(settings.small), settings.no_small)
        self.products, self.replaced = self.disk.path / "products", self.disk.path / "replaced"
        self.clock = self.root / "clock"
        self.rng = np.random.default_rng([settings.seed, 11])
        self.summary = Summary(settings.seed)
        self._operation = mmap.mmap(-1, 1)  # what the writer is doing, which a kill does not forget
        self._seen: dict[Path, tuple[int, int]] = {}
        self._lenient = ""  # why processes may fail just now; empty if they may not
        self._children = 0
        batches, contents = settings.batches, Contents(settings.seed, settings.keys)
        self._queries = {
            "enrichment": _Query(
                lambda where, seed, drop: Enrichment(
                    where, seed, batches, self.products, contents, drop, self._out(where)
                )
            ),
            "pairs": _Query(lambda where, seed, drop: Pairs(where, seed, batches, drop, self._out(where))),
            "sample": _Query(lambda where, seed, drop: Sample(where, seed, batches, drop, self._out(where))),
        }

    def _out(self, where: Path) -> Path:
        return self.root / "out" / where.name  # the sink is no part of what the full disk is about

    # -- the run -----------------------------------------------------------------------------------------------------------

    def run(self) -> Summary:
        """Kill until it is enough, and go on until the input ends; then all queries run to their end."""
        follow(self.clock)
        begun = time.monotonic()
        for path in (self.products, self.replaced):
            if not path.exists():
                self._child("create", self._contents().create, path).answer(_LIMIT)
            self._check(path)
        self._tell(ready=True)
        long = [name for name in self._long_events() for _ in range(self.settings.extraordinary)]
        self.rng.shuffle(long)
        every = max(1, self.settings.kills // (len(long) + 1))
        for event in self.rng.permutation(list(EVENTS)):
            self._round(str(event))
        while not self._over():
            if long and self.summary.kills.total() >= every * (1 + self._done_long):
                self._long(long.pop())
            else:
                self._round(str(self.rng.choice(list(EVENTS), p=list(EVENTS.values()))))
        while long:
            self._long(long.pop())
        for kind in self._queries:
            self._to_the_end(kind)
        for path in (self.products, self.replaced):
            self._check(path)
        self.summary.versions = sum(version for _, version in self._seen.values()) + self._generations_before()
        self.summary.seconds = time.monotonic() - begun
        return self.summary

    def _over(self) -> bool:
        """Whether it is enough. Once it has killed what it was told to, it goes slowly until its input ends."""
        if self.summary.kills.total() < self.settings.kills:
            return False
        return bool(select.select([sys.stdin], [], [], 1.5)[0])

    def _round(self, event: str) -> None:
        if event == "write":
            with self._at_work(self._writer(self.products)):
                self._pause(0.25)
        elif event == "overwrite":
            with self._at_work(self._writer(self.replaced), self._overwriter()):
                self._pause(0.4)
        elif event in self._queries:
            self._disturb_query(event)
        else:
            self._rivals(event)

    def _disturb_query(self, kind: str) -> None:
        """Kill a process of a query, and sometimes the writer of its relation too."""
        others = [self._writer(self.products)] if self.rng.random() < 0.3 else []
        with self._at_work(self._process(kind), *others):
            self._pause(0.5)
        self._settle(kind)

    def _rivals(self, event: str) -> None:
        """Two processes run the same query; in one of the two events one of them is stopped meanwhile, and wakes up later."""
        kind = str(self.rng.choice(list(self._queries)))
        stopped, other = self._process(kind), self._process(kind)
        with self._at_work(stopped, other):
            self._pause(0.3)
            if event == "stopped for a moment":
                stopped.signal(signal.SIGSTOP)
                self._pause(3.0)
                stopped.signal(signal.SIGCONT)
            self._pause(0.5)
        self._count(event)
        self._settle(kind)

    # -- long events -------------------------------------------------------------------------------------------------------

    _done_long = 0

    def _long_events(self) -> dict[str, Callable[[], None]]:
        found: dict[str, Callable[[], None]] = {
            f"SIGSTOP for {self.settings.stop:.0f} s": self._long_stop,
            "clock a day forward, and back": lambda: self._jump(DAY),
            "clock a day back, and forward": lambda: self._jump(-DAY),
        }
        if self.disk.reason:
            self.summary.skipped["disk full"] = self.disk.reason
        else:
            found[f"disk full for {self.settings.full:.0f} s"] = self._full_disk
        return found

    def _long(self, event: str) -> None:
        self._done_long += 1
        self._long_events()[event]()
        self._count(event)

    def _long_stop(self) -> None:
        """A writer and a process of a query are stopped; readers and other queries go on, and so do the stopped ones later."""
        kind = str(self.rng.choice(list(self._queries)))
        with self._at_work(self._writer(self.products), self._process(kind)) as stopped:
            self._pause(0.3)
            for child in stopped:
                child.signal(signal.SIGSTOP)
            until = time.monotonic() + self.settings.stop
            while time.monotonic() < until:
                for other in self._queries:
                    if other != kind:
                        with self._at_work(self._process(other)):
                            self._pause(min(0.5, self.settings.stop))
                        self._settle(other)
                with self._at_work(self._writer(self.replaced), self._overwriter()):
                    self._pause(0.4)
                if self.settings.stop > 10:
                    time.sleep(2.0)  # a minute of kills of this kind alone would be too many
            for child in stopped:
                child.signal(signal.SIGCONT)
            self._pause(1.0)
        self._settle(kind)

    def _jump(self, seconds: float) -> None:
        """The clock is set while processes are at work, and set back while others are."""
        for offset in (seconds, 0.0):
            with self._at_work(self._process("enrichment"), self._writer(self.products)):
                self._pause(0.2)
                set_offset(self.clock, offset)
                self._pause(0.5)
            self._settle("enrichment")
            until = time.monotonic() + (self.settings.jump if offset else 0.0)
            while time.monotonic() < until:
                self._round(str(self.rng.choice(["write", *self._queries])))

    def _full_disk(self) -> None:
        """Nothing more fits: processes may fail, with an error that names the file; nothing is lost."""
        kinds = list(self._queries)
        self._lenient = "disk full"
        try:
            with self._at_work(self._writer(self.products), self._process(kinds[0])):
                self._pause(0.2)
                self.disk.fill()
                until = time.monotonic() + self.settings.full
                while time.monotonic() < until:
                    for kind in kinds:
                        with self._at_work(self._process(kind), self._writer(self.products), kill=False):
                            self._pause(0.5)
                    self.disk.fill()  # those that failed have given some room back
        finally:
            self.disk.free()
            self._lenient = ""
        for kind in kinds:
            self._settle(kind)
        self._check(self.products)

    # -- processes ---------------------------------------------------------------------------------------------------------

    def _child(self, name: str, work: Callable[..., Any], *arguments: Any) -> Child:
        self._children += 1
        # One that is at work for a minute must not find its file taken by another.
        log = self.root / f"child-{self._children % 4096:04d}.log"
        log.with_suffix(".json").unlink(missing_ok=True)
        return Child(name, log, work, *arguments)

    def _writer(self, path: Path) -> Child:
        return self._child("writer", _write, path, self.settings.seed, self.settings.keys, self._operation)

    def _overwriter(self) -> Child:
        return self._child("overwriter", _overwrite, self.replaced, self.settings.seed, self.settings.keys)

    def _process(self, kind: str) -> Child:
        query = self._queries[kind]
        query.lives += 1
        self.summary.restarts += query.lives > 1
        return self._child(kind, _run_query, query.make, *self._place(kind))

    def _place(self, kind: str) -> tuple[Path, int, bool]:
        query = self._queries[kind]
        where = self.disk.path / f"{kind}-{query.number:04d}"
        return where, self.settings.seed + query.number, self.settings.drop and kind == "enrichment"

    def _pause(self, longest: float) -> None:
        time.sleep(self.rng.uniform(0.0, longest))

    @contextmanager
    def _at_work(self, *children: Child, kill: bool = True) -> Iterator[tuple[Child, ...]]:
        """Let children work, then kill them in any order; an error of one is ours unless it is allowed just now."""
        try:
            yield children
            for child in self.rng.permutation(np.array(children, object)):
                if child.kill() and kill:
                    self._killed(child)
        finally:
            with ExitStack() as stack:
                for child in children:
                    stack.callback(child.kill)
        for child in children:
            if child.error:
                self._failed(child)
        names = {child.name for child in children}
        if "overwriter" in names:
            self._check(self.replaced)
        elif "writer" in names and not self._lenient:
            self._check(self.products)

    def _killed(self, child: Child) -> None:
        name = child.name
        if name == "writer":
            name = f"writer, {_OPERATIONS[self._operation[0]]}"
        elif name in self._queries:
            name = f"query without Spark, {name}"
        self.summary.kills[name] += 1
        self._tell(kill=name)

    def _failed(self, child: Child) -> None:
        """An error is a fault, except that a full disk may be told of, by the name of a file."""
        if self._lenient and _FULL in child.error and str(self.disk.path) in child.error.splitlines()[-1]:
            self.summary.refused[self._lenient] += 1
            return
        raise ChildFailed(f"{child.name} failed{f' ({self._lenient})' if self._lenient else ''}:\n{child.error}")

    # -- what must hold ----------------------------------------------------------------------------------------------------

    def _check(self, path: Path) -> None:
        """The relation is one of its versions, none that was there is gone, and a writer leaves nothing behind."""
        keys = self.settings.keys
        arguments = path, self.settings.seed, keys, self._seen.get(path), self.settings.lost_products
        found = self._child(f"check of {path.name}", _check, *arguments).answer(_LIMIT)
        self._seen[path] = (found[0], found[1])

    def _generations_before(self) -> int:
        return max(0, self._seen[self.replaced][0])

    def _settle(self, kind: str) -> None:
        """If a query has ended, compare its results, and begin the next one."""
        where, *_ = self._place(kind)
        if not (where / "finished").exists():
            return
        query = self._queries[kind]
        found = self._child(f"verdict on {kind}", _verdict, query.make, *self._place(kind)).answer(_LIMIT)
        verdict = Verdict(**found)
        query.verdict.add(verdict)
        self.summary.rows += verdict.rows
        self.summary.lost += verdict.lost
        self.summary.doubled += verdict.doubled
        self.summary.faults += verdict.wrong
        if verdict.lost or verdict.doubled or verdict.wrong:
            raise ChildFailed(f"{kind} {query.number} in {where}: {verdict}")  # what it left is kept to be looked at
        for path in (where, where.with_name(f"{where.name}-quiet"), self._out(where)):
            shutil.rmtree(path, ignore_errors=True)
        query.number, query.lives = query.number + 1, 0
        self._tell(rows=verdict.rows)

    def _to_the_end(self, kind: str) -> None:
        before = self._queries[kind].number
        child = self._process(kind)
        try:
            child.answer(_LIMIT)
        finally:
            child.kill()
        self._settle(kind)
        assert self._queries[kind].number == before + 1, f"{kind} ended without being finished"

    def _count(self, event: str) -> None:
        self.summary.events[event] += 1
        self._tell(event=event)

    def _tell(self, **facts: Any) -> None:
        print(json.dumps(facts), flush=True)

    def _contents(self) -> Contents:
        return Contents(self.settings.seed, self.settings.keys)


# -- what children do ------------------------------------------------------------------------------------------------------


def _write(path: Path, seed: int, keys: int, operation: mmap.mmap) -> None:
    """Make versions until it is killed."""
    rng = np.random.default_rng()
    while True:
        operation[0] = _OPERATIONS.index("opening")
        with hr.Relation.open(path) as relation:
            contents = Contents(seed, keys, generation_of(relation))
            operation[0] = _OPERATIONS.index(contents.kind(relation.version + 1))
            with suppress(RelationReplaced, VersionConflict):  # the overwriter was faster
                contents.make_next(relation)
        operation[0] = _OPERATIONS.index("waiting")
        time.sleep(rng.uniform(0.0, 0.05))


def _overwrite(path: Path, seed: int, keys: int) -> None:
    """Make the relation anew in the place of itself until it is killed."""
    while True:
        with hr.Relation.open(path) as relation:
            generation = generation_of(relation) + 1
        Contents(seed, keys, generation).create(path)


def _run_query(make: Callable[..., LoggedQuery], *arguments: Any) -> None:
    make(*arguments).run()


def _verdict(make: Callable[..., LoggedQuery], *arguments: Any) -> dict[str, Any]:
    query = make(*arguments)
    found = asdict(query.verdict())
    query.close()
    return found


def _check(path: Path, seed: int, keys: int, before: list[int] | None, spoiled: bool) -> tuple[int, int]:
    """Open, verify, compare; make one more version, after which nothing may lie about that no version needs."""
    found = check_relation(path, seed, keys, extra=spoiled)
    assert before is None or found >= tuple(before), f"{path} was at {before}, and is at {found}"
    with hr.Relation.open(path) as relation:
        version = Contents(seed, keys, found[0]).make_next(relation)
    if path.name == "replaced":
        # A create that was killed leaves its directory until the next one.
        Contents(seed, keys, found[0] + 1).create(path)
        found, version = (found[0] + 1, 1), 1
    lying_about = left_behind(path)
    assert not lying_about, f"{path} at version {version} has files that no version needs: {lying_about}"
    return found[0], version


def main() -> int:
    """Run it; the summary is the last line."""
    settings = Settings(**json.loads(sys.argv[1]))
    pa.array([0])  # pandas, which Arrow imports with its first array, is imported before the first fork
    chaos = PlainChaos(settings)
    try:
        chaos.run()
    except ChildFailed as error:
        chaos.summary.faults.append(str(error))
    print(json.dumps({"summary": chaos.summary.as_json()}), flush=True)
    return 0 if chaos.summary.whole else 1


if __name__ == "__main__":
    raise SystemExit(main())
