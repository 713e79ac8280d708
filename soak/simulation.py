"""Simulation: writers, readers, queries, tasks that die and are tried again, compaction, clocks that jump; in an order by a seed.

    python -m soak simulation --seconds 60
    python -m soak simulation --seed 17          one history again, the same in every call

What must hold, whatever the order and whoever dies:
- a version, once seen, is followed by later ones alone, and never changes while somebody reads it;
- numbers that are given out have no gaps, and nobody gets another's;
- what a writer was told is done is in every version from then on;
- all tasks of a micro-batch see one version of the relation, however often they are tried;
- of two streams every pair comes once;
- a row is kept or shed, and what was shed is loaded once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.clock import ManualClock, SystemClock
from headrace.errors import RunLogError, VersionConflict, VersionGone
from headrace.files.faulty import Killed
from headrace.progressive.grids.partitioning_for import partitioning_for
from headrace.progressive.logged.join import LoggedJoin
from headrace.progressive.logged.join_spec import JoinSpec
from headrace.progressive.logged.sharding import Sharding
from headrace.progressive.logged.state_cache import StateCache
from headrace.progressive.policies import POLICIES
from headrace.relation.update import Change
from headrace.runlog import RunLog
from headrace.runlog.shard import ShardLog
from headrace.shedding import Cut
from headrace.shedding.ledger import Decision, Ledger
from headrace.spark.state.versions import open_noted
from soak.faults import in_memory
from soak.scheduler import Scheduler, SimulatedClock

STEPS = 20_000  # of one history
_KILL, _JUMP = 1e-3, 2e-4  # chances at a call
_PATIENCE = 30.0  # seconds of the simulation that an attempt waits for another


class Wrong(AssertionError):
    """A promise was not kept."""


@dataclass
class History:
    """What the actors saw, which outlives them."""

    rows: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """rows of the relation by version"""
    told: dict[int, tuple[int, int]] = field(default_factory=dict)
    """by number that was given out: to whom, and the version that has it"""
    batches: dict[tuple[int, str], set[int]] = field(default_factory=dict)
    """versions that tasks of a run of a micro-batch saw"""
    pairs: dict[int, Counter[tuple[int, ...]]] = field(default_factory=dict)
    """pairs by micro-batch, of the attempt that the sink took"""
    decisions: dict[int, set[object]] = field(default_factory=dict)
    """decisions of the ledger by micro-batch"""
    done: Counter[str] = field(default_factory=Counter)

    def see(self, version: int, rows: tuple[tuple[int, int], ...]) -> None:
        """Note what a version holds: the same as everybody saw who saw it, and what was told to be in it."""
        if self.rows.setdefault(version, rows) != rows:
            raise Wrong(f"version {version} held {self.rows[version]} and holds {rows}")
        numbers = [number for number, _ in rows]
        if numbers != list(range(len(numbers))):
            raise Wrong(f"version {version} has numbers {numbers}: there is a gap, or one is given twice")
        for number, (owner, since) in self.told.items():
            if version >= since and (number >= len(rows) or rows[number][1] != owner):
                raise Wrong(
                    f"{owner} was told that it has number {number} since version {since}; version {version} has {rows}"
                )


class World:
    """A relation, two streams and a ledger on disk, and the actors that use them.

    Parameters
    ----------
    root
        An empty directory.
    seed
        Of the order.
    """

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.history = root, History()
        self.scheduler = Scheduler(seed, kill=_KILL, jump=_JUMP)
        self.clock = SimulatedClock(self.scheduler)
        start = pa.table({"k": pa.array([0], pa.int64()), "owner": pa.array([-1], pa.int64())})
        with hr.Relation.create(root / "r", start, key="k", page_size="4KiB") as relation:
            self.identity = relation.identity
        condition = hr.equal("k")
        partitioning, ask = partitioning_for(condition, 2)
        self.spec = JoinSpec(condition=condition, schemas=STREAMS, partitioning=partitioning, ask=ask, capacity=8)

    def run(self, steps: int = STEPS) -> None:
        """Run a history, and look at it when it has ended."""
        for i in range(3):
            self.always(f"writer {i}", partial(self.write, i))
        self.always("compactor", self.compact)
        for i in range(2):
            self.always(f"reader {i}", self.read)
        self.always("query", self.query)
        self.always("two streams", self.join)
        self.always("overload", self.shed)
        self.scheduler.run(steps)
        self.look()

    def always(self, name: str, role: object) -> None:
        """Run a role in a process that is started again when it is killed."""
        assert callable(role)

        def life() -> None:
            try:
                while True:
                    role()
                    self.history.done[name.split()[0]] += 1
            except Killed:
                self.scheduler.spawn(name, life)
                raise

        self.scheduler.spawn(name, life)

    # -- the relation ------------------------------------------------------------------------------------------------------

    def write(self, me: int) -> None:
        """Give out the next number."""
        found: list[int] = []

        def decide(latest: hr.Relation) -> Change:
            number = len(rows_in(latest))
            found[:] = [number]
            return Change(pa.table({"k": [number], "owner": [me]}), None)

        with hr.Relation.open(self.root / "r") as relation:
            version = relation.revise(decide)
        self.history.told[found[0]] = me, version

    def compact(self) -> None:
        """Write the relation anew, now and then."""
        self.clock.sleep(0.5)
        with hr.Relation.open(self.root / "r") as relation:
            try:
                relation.compact()
            except VersionConflict:
                self.history.done["conflict"] += 1

    def read(self) -> None:
        """Read the relation, and read it again while others change it."""
        last = 0
        for _ in range(5):
            with hr.Relation.open(self.root / "r") as relation:
                if relation.version < last:
                    raise Wrong(f"version {relation.version} came after version {last}")
                last = relation.version
                self.history.see(last, rows_in(relation))
                self.clock.sleep(0.05)
                self.history.see(last, rows_in(relation))

    # -- a query that joins with it -----------------------------------------------------------------------------------------

    def query(self) -> None:
        """Run the next micro-batch: two tasks, each of which may be tried again, by a driver that may be started again."""
        batch = self.history.done["batch"]
        run = f"run {self.scheduler.kills} {self.scheduler.steps}"
        ended: list[int] = []
        for task in range(2):
            self._attempt(f"task {task} of {batch}", partial(self._task, batch, run, ended))
        while len(ended) < 2:
            self.clock.sleep(0.01)
        seen = self.history.batches[(batch, run)]
        if len(seen) != 1:
            raise Wrong(f"tasks of micro-batch {batch} saw versions {sorted(seen)}")
        self.history.done["batch"] += 1

    def _task(self, batch: int, run: str, ended: list[int]) -> None:
        try:
            relation = open_noted(self.root / "r", self.identity, "q", batch, run, "buffered", 1)
        except VersionGone:
            # A jump of the clock by a day lets notes expire; the run fails, and one that starts over takes another version.
            self.history.done["gone"] += 1
            ended.append(-1)
            self.history.batches.setdefault((batch, run), {0})
            return
        with relation:
            self.history.batches.setdefault((batch, run), set()).add(relation.version)
            self.history.see(relation.version, rows_in(relation))
        ended.append(relation.version)

    def _attempt(self, name: str, work: object) -> None:
        """Start a process that does some work, and another when it is killed."""
        assert callable(work)

        def life() -> None:
            try:
                work()
            except Killed:
                self.scheduler.spawn(name, life)
                raise

        self.scheduler.spawn(name, life)

    # -- two streams ---------------------------------------------------------------------------------------------------------

    def join(self) -> None:
        """Run the next micro-batch of two streams: attempts side by side, of which the sink takes the first that ends."""
        batch = len(self.history.pairs)
        attempts, ended = 1 + (self.scheduler.draw() < 0.3), list[int]()
        for attempt in range(attempts):
            self._attempt(f"attempt {attempt} at {batch}", partial(self._pairs, batch, ended))
        awaited = (
            attempts if self.scheduler.draw() < 0.5 else 1
        )  # an attempt that is not awaited comes back when it is too late
        while len(ended) < awaited:
            self.clock.sleep(0.01)

    def _pairs(self, batch: int, ended: list[int]) -> None:
        log = RunLog(self.root / "state", "q", "join", shards=1)
        sharding = Sharding(self.spec.partitioning)
        cache = StateCache(sharding, POLICIES["rrpj"](), 1 << 18, self.spec.schemas)
        try:
            with ShardLog(log.path, 0).held(_PATIENCE, self.clock) as shard:
                join = LoggedJoin(self.spec, shard, cache, batch, idle=0.35, clock=ManualClock())
                results = list(join.join(iter(rows_of_streams(batch))))
        except RunLogError:
            if batch not in self.history.pairs:
                raise
            self.history.done["late"] += 1
            ended.append(batch)
            return  # the query went on with what the other attempt gave
        ended.append(batch)
        rows = Counter(tuple(row.values()) for result in results for row in result.to_pylist())
        if self.history.pairs.setdefault(batch, rows) != rows:
            raise Wrong(f"two attempts at micro-batch {batch} gave {self.history.pairs[batch]} and {rows}")

    # -- overload ------------------------------------------------------------------------------------------------------------

    def shed(self) -> None:
        """Decide what a micro-batch sheds, by two tasks, each with an opinion of its own."""
        batch = self.history.done["shed"]
        decided: list[object] = []
        for task in range(2):
            self._attempt(f"shedding {task} of {batch}", partial(self._decide, batch, task, decided))
        while len(decided) < 2:
            self.clock.sleep(0.01)
        if len(self.history.decisions[batch]) != 1:
            raise Wrong(f"micro-batch {batch} was decided on in several ways: {self.history.decisions[batch]}")
        self.history.done["shed"] += 1

    def _decide(self, batch: int, task: int, decided: list[object]) -> None:
        ledger = Ledger(self.root / "state", "q", "shed")
        decision, _ = ledger.decide(batch, "run", Decision(Cut(float(task), task), 0.5))
        self.history.decisions.setdefault(batch, set()).add(decision)
        decided.append(decision)

    # -- the end -------------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Check the state that the history has led to."""
        with hr.Relation.open(self.root / "r") as relation:
            relation.verify()
            self.history.see(relation.version, rows_in(relation))
        pairs = sum(self.history.pairs.values(), Counter[tuple[int, ...]]())
        if max(pairs.values(), default=1) > 1:
            raise Wrong(f"pairs came twice: {[pair for pair, count in pairs.items() if count > 1]}")
        if not pairs <= every_pair(len(self.history.pairs)):
            raise Wrong("pairs came that are none")


STREAMS = pa.schema({"k": pa.int64(), "a": pa.int64()}), pa.schema({"k": pa.int64(), "b": pa.int64()})


def rows_of_streams(batch: int) -> list[tuple[int, pa.RecordBatch]]:
    """The rows that come in a micro-batch."""
    rng = np.random.default_rng(batch)
    return [
        (side, pa.record_batch({"k": rng.integers(0, 6, 2), name: np.arange(2) + 10 * batch}, schema=STREAMS[side]))
        for side, name in ((0, "a"), (1, "b"))
    ]


def every_pair(batches: int) -> Counter[tuple[int, ...]]:
    """All pairs of rows that have come."""
    sides: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    for batch in range(batches):
        for side, rows in rows_of_streams(batch):
            sides[side].extend(zip(rows[0].to_pylist(), rows[1].to_pylist(), strict=True))
    return Counter((k, a, b) for k, a in sides[0] for j, b in sides[1] if j == k)


def rows_in(relation: hr.Relation) -> tuple[tuple[int, int], ...]:
    """The rows of a relation, by number."""
    table = relation.to_arrow()
    return tuple(sorted(zip(table["k"].to_pylist(), table["owner"].to_pylist(), strict=True)))


def simulate(seed: int, place: Path, steps: int = STEPS) -> World:
    """Run the history of a seed; raises what went wrong in it."""
    root = place / "world"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    world = World(root, seed)
    world.run(steps)
    return world


def run(argv: list[str]) -> int:
    """Run histories for a while, or one; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m soak simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, help="one history; else those from --first on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--steps", type=int, default=STEPS, help="calls to the file system in a history")
    asked = parser.parse_args(argv)
    clock = SystemClock()
    begun = clock.now()
    if asked.seed is not None:
        outcomes = [_histories(asked.seed, 1, 0.0, asked.steps)]
    else:
        work = [(asked.first + i, asked.processes, asked.seconds, asked.steps) for i in range(asked.processes)]
        with get_context("spawn").Pool(asked.processes) as pool:
            outcomes = pool.starmap(_histories, work)
    took = clock.now() - begun
    done, failed = sum((done for done, _ in outcomes), Counter[str]()), sum(failed for _, failed in outcomes)
    steps = done.pop("steps", 0)
    print(
        f"simulation: {steps:,} steps in {took:.0f} s ({steps / took * 60:,.0f} a minute), {dict(done)}, {failed} failed"
    )
    return 1 if failed else 0


def _histories(first: int, every: int, seconds: float, steps: int) -> tuple[Counter[str], int]:
    """Run the histories of some seeds for a while; returns what was done, and how many failed."""
    clock = SystemClock()
    begun, seed, done, failed = clock.now(), first, Counter[str](), 0
    with tempfile.TemporaryDirectory(prefix="headrace-simulation-", dir=in_memory()) as name:
        while True:
            try:
                world = simulate(seed, Path(name), steps)
                done += world.history.done
                scheduler = world.scheduler
                done += Counter(steps=scheduler.steps, kills=scheduler.kills, jumps=scheduler.jumps, histories=1)
            except Exception as error:
                failed += 1
                print(f"WRONG with --seed {seed}: {type(error).__name__}: {error}", flush=True)
            seed += every
            if clock.now() - begun >= seconds:
                return done, failed


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
